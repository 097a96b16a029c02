package local

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/server/forge"
	"kici/internal/server/forge/git"
)

// repository is one that lies below its source's base folder.
type repository struct {
	dir     string // its folder, with every symbolic link resolved
	name    string // its path below the base folder, as it was asked for
	urlBase string // of the source
}

// locate finds a repository below the source's base folder. The name comes from a payload: it may be a
// path relative to the base, an absolute path or a file:// URL, and nothing that leads out of the base is opened, be it
// by dots, by a symbolic link or by the link that a worktree's .git file is.
func (p *Provider) locate(src forge.Source, repo string) (repository, error) {
	if src.Local == nil {
		return repository{}, fmt.Errorf("source %s has no local repositories: %w", src.Name, forge.ErrRefused)
	}
	base := filepath.Clean(src.Local.RepoBasePath)
	name, err := relative(base, repo)
	if err != nil {
		return repository{}, err
	}
	realBase, err := p.bases.real(base)
	if err != nil {
		return repository{}, fmt.Errorf("repository base folder %s: %w", base, forge.ErrNoRepository)
	}
	for _, candidate := range []string{name, name + ".git"} {
		dir, err := git.RealPath(realBase, candidate)
		if err != nil {
			continue
		}
		gitDir, err := git.Dir(dir)
		if err != nil && inside(realBase, dir) {
			continue
		}
		if !inside(realBase, dir) || !inside(realBase, gitDir) {
			return repository{}, fmt.Errorf("repository %q leads out of %s: %w", repo, base, forge.ErrRefused)
		}
		return repository{dir, name, src.Local.CloneURLBase}, nil
	}
	return repository{}, fmt.Errorf("%q below %s: %w", repo, base, forge.ErrNoRepository)
}

// relative is the path of a repository relative to the base folder, checked as text alone.
func relative(base, repo string) (string, error) {
	name := repo
	if strings.HasPrefix(repo, "file://") {
		u, err := url.Parse(repo)
		if err != nil || (u.Host != "" && u.Host != "localhost") || u.RawQuery != "" || u.Fragment != "" {
			return "", fmt.Errorf("repository %.300q: %w", repo, forge.ErrRefused)
		}
		name = u.Path
	}
	if filepath.IsAbs(name) {
		rel, err := filepath.Rel(base, name)
		if err != nil {
			return "", fmt.Errorf("repository %.300q: %w", repo, forge.ErrRefused)
		}
		name = rel
	}
	control := strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f })
	if name = filepath.Clean(name); !filepath.IsLocal(name) || name == "." || control || len(repo) > ci.MaxRepository {
		return "", fmt.Errorf("repository %.300q: %w", repo, forge.ErrRefused)
	}
	return name, nil
}

func inside(base, path string) bool {
	rel, err := filepath.Rel(base, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// cloneURL is what agents clone: below the base URL where one is configured, else the folder itself.
func (r repository) cloneURL() string {
	if r.urlBase == "" {
		return (&url.URL{Scheme: "file", Path: r.dir}).String()
	}
	parts := strings.Split(filepath.ToSlash(r.name), "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.TrimSuffix(r.urlBase, "/") + "/" + strings.Join(parts, "/")
}
