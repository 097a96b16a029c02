package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kici/internal/core/glob"
)

// maxPicked bounds the files of one artifact.
const maxPicked = 200_000

// picked are the files that an artifact is made of.
type picked struct {
	files []string // below the repository, with slashes, sorted
	// single says that one path named one file, which goes as it is. Everything else is packed, whatever it holds: what
	// an artifact is must not depend on how many files a pattern finds.
	single bool
}

// open opens the file that goes as it is. No link leads out of the repository, not even one that has come meanwhile.
func (p picked) open(root string) (*os.File, error) { return os.OpenInRoot(root, p.files[0]) }

// picker collects files. A path of the repository that leads out of it is refused, wherever it does so.
type picker struct {
	ctx     context.Context
	root    *os.Root
	at      string // where that is
	found   map[string]bool
	leaves  map[string]bool // links that lead out of the repository
	exclude []*glob.Pattern
}

// pick finds what the paths name: files, folders with all below them, and patterns. A path that begins with ! takes files
// out again. Each path must find something. The folder .git of the repository itself is never part.
func pick(ctx context.Context, root string, paths []string) (picked, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return picked{}, fmt.Errorf("artifact: %w", err)
	}
	defer dir.Close()
	p := &picker{ctx: ctx, root: dir, at: root, found: map[string]bool{}, leaves: map[string]bool{}}
	wanted, err := p.sort(paths)
	if err != nil {
		return picked{}, err
	}
	single := false
	for _, one := range wanted {
		file, err := p.add(one)
		if err != nil {
			return picked{}, fmt.Errorf("artifact: %w", err)
		}
		single = file && len(paths) == 1
	}
	p.takeOut()
	for name := range p.leaves {
		if p.found[name] {
			return picked{}, fmt.Errorf("artifact: %s is a link that leads out of the workspace", name)
		}
	}
	if len(p.found) == 0 {
		return picked{}, fmt.Errorf("artifact: all that %s finds is taken out again", strings.Join(paths, ", "))
	}
	return picked{files: slices.Sorted(maps.Keys(p.found)), single: single}, nil
}

// sort tells the paths that take files out from those that are wanted.
func (p *picker) sort(paths []string) (wanted []string, err error) {
	for _, one := range paths {
		rest, out := strings.CutPrefix(one, "!")
		if !out {
			wanted = append(wanted, one)
			continue
		}
		pattern, err := glob.Compile(path.Clean(filepath.ToSlash(rest)))
		if err != nil {
			return nil, fmt.Errorf("artifact: path %s: %w", one, err)
		}
		p.exclude = append(p.exclude, pattern)
	}
	if len(wanted) == 0 {
		return nil, errors.New("artifact: there is no path of what to upload")
	}
	return wanted, nil
}

// add takes what one path names, and tells whether that is one file and no pattern.
func (p *picker) add(text string) (file bool, err error) {
	name, err := p.relative(text)
	if err != nil {
		return false, err
	}
	info, err := p.root.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return false, p.walk(name, func(string) bool { return true }, text)
	case err == nil && info.Mode().IsRegular():
		return true, p.take(name, false)
	case err == nil:
		return false, fmt.Errorf("%s is neither a file nor a folder", text)
	case strings.ContainsAny(name, "*?[{("):
		return false, p.match(name, text)
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("there is no %s in the workspace", text)
	}
	return false, fmt.Errorf("%s cannot be taken from the workspace: %w", text, err)
}

// relative is the path below the repository.
func (p *picker) relative(text string) (string, error) {
	name := text
	if filepath.IsAbs(text) {
		rel, err := filepath.Rel(p.at, text)
		if err != nil {
			return "", fmt.Errorf("%s lies outside of the workspace", text)
		}
		name = rel
	}
	name = path.Clean(filepath.ToSlash(name))
	if text == "" || !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", fmt.Errorf("%q lies outside of the workspace", text)
	}
	return name, nil
}

// match takes what a pattern finds. A folder that it finds counts with all below it.
func (p *picker) match(name, text string) error {
	pattern, err := glob.Compile(name)
	if err != nil {
		return fmt.Errorf("path %s: %w", text, err)
	}
	from := "."
	if head := pattern.Prefix(); strings.Contains(head, "/") {
		from = head[:strings.LastIndexByte(head, '/')]
	}
	if _, err := p.root.Stat(from); err != nil {
		return fmt.Errorf("nothing in the workspace fits %s", text)
	}
	return p.walk(from, func(name string) bool {
		for ; name != "."; name = path.Dir(name) {
			if pattern.Match(name) {
				return true
			}
		}
		return false
	}, text)
}

// walk takes the files below a folder that fit.
func (p *picker) walk(from string, fits func(string) bool, text string) error {
	none := true
	err := fs.WalkDir(p.root.FS(), from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || p.ctx.Err() != nil {
			return errors.Join(err, context.Cause(p.ctx))
		}
		if entry.IsDir() {
			if name == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		link := entry.Type()&fs.ModeSymlink != 0
		if !link && !entry.Type().IsRegular() || !fits(name) {
			return nil // sockets and devices mean nothing elsewhere
		}
		none = false
		return p.take(name, link)
	})
	if err != nil {
		return err
	}
	if none {
		return fmt.Errorf("nothing in the workspace fits %s", text)
	}
	return nil
}

func (p *picker) take(name string, link bool) error {
	if len(p.found) >= maxPicked {
		return fmt.Errorf("more than %d files", maxPicked)
	}
	p.found[name] = true
	if !link {
		return nil
	}
	target, err := p.root.Readlink(name)
	if err != nil {
		return err
	}
	if filepath.IsAbs(target) || !filepath.IsLocal(filepath.Join(filepath.Dir(filepath.FromSlash(name)), target)) {
		p.leaves[name] = true // unless it is taken out again
	}
	return nil
}

// takeOut removes what a path with ! names, a folder with all below it.
func (p *picker) takeOut() {
	for _, pattern := range p.exclude {
		for name := range p.found {
			for at := name; at != "."; at = path.Dir(at) {
				if pattern.Match(at) {
					delete(p.found, name)
					break
				}
			}
		}
	}
}
