package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A workflow may depend on packages of its own repository, its neighbours: by the path of a folder, or as members of one
// workspace. The package manager makes links to them.

// manifest is the part of a package.json that matters here.
type manifest struct {
	PackageManager       string
	Workspaces           json.RawMessage
	Scripts              map[string]string
	Dependencies         map[string]string
	DevDependencies      map[string]string
	OptionalDependencies map[string]string
}

// readManifest reads a package.json. One that is missing or broken is the package manager's to complain about.
func readManifest(dir string) (m manifest) {
	raw, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err == nil {
		_ = json.Unmarshal(raw, &m)
	}
	return m
}

// checkNeighbours refuses dependencies of the workflow folder on what is not in the repository: the package manager would
// look on this machine, or say something that nobody understands.
func checkNeighbours(root, kici string) error {
	m := readManifest(kici)
	var problems []error
	for _, list := range []map[string]string{m.Dependencies, m.DevDependencies, m.OptionalDependencies} {
		for name, where := range list {
			if err := checkNeighbour(root, kici, where); err != nil {
				problems = append(problems, fmt.Errorf("dependency %q of .kici/package.json (%s) %w", name, where, err))
			}
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

func checkNeighbour(root, kici, where string) error {
	kind, place, _ := strings.Cut(where, ":")
	switch kind {
	case "workspace":
		_, err := os.Stat(filepath.Join(root, "pnpm-workspace.yaml"))
		if err != nil && readManifest(root).Workspaces == nil {
			return errors.New("needs a workspace, and the repository is none: neither package.json nor pnpm-workspace.yaml names one")
		}
	case "file", "link", "portal":
		rel, err := filepath.Rel(root, filepath.Join(kici, filepath.FromSlash(place)))
		if err != nil || path.IsAbs(place) || !filepath.IsLocal(rel) {
			return errors.New("is outside of the repository")
		}
		if _, err := os.Stat(filepath.Join(root, rel)); err != nil {
			return errors.New("is not in the repository")
		}
	}
	return nil
}

// neighbours lists the folders of the repository to which links in a folder of packages lead, out of all such folders,
// and those that they need themselves: first what others need. Names are relative to root, with slashes.
func neighbours(root, packages string) []string {
	var found []string
	seen := map[string]bool{}
	var visit func(packages string)
	visit = func(packages string) {
		for _, name := range linked(root, packages) {
			if !seen[name] {
				seen[name] = true
				visit(path.Join(name, "node_modules"))
				found = append(found, name)
			}
		}
	}
	visit(packages)
	return found
}

func linked(root, packages string) (found []string) {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil
	}
	dir := filepath.Join(root, filepath.FromSlash(packages))
	links, _ := filepath.Glob(filepath.Join(dir, "*")) // fails for a malformed pattern only
	scoped, _ := filepath.Glob(filepath.Join(dir, "@*", "*"))
	for _, link := range append(links, scoped...) {
		if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		target, err := filepath.EvalSymlinks(link)
		if err != nil {
			continue
		}
		rel, err := filepath.Rel(real, target)
		name := filepath.ToSlash(rel)
		if err != nil || !filepath.IsLocal(rel) || name == "." || slices.Contains(strings.Split(name, "/"), "node_modules") {
			continue
		}
		found = append(found, name)
	}
	return found
}

// buildNeighbours runs the build script of those that have one: what they are imported for is mostly its result. No
// credential is left by then.
func (w *Workspace) buildNeighbours(ctx context.Context, root, manager, store string, in Install) error {
	for _, name := range neighbours(root, packages) {
		dir := filepath.Join(root, filepath.FromSlash(name))
		if readManifest(dir).Scripts["build"] == "" {
			continue
		}
		in.Log("Building " + name)
		if err := runInstall(ctx, dir, w.wrapped(in, dir, store, manager, "run", "build"), in.Env, in); err != nil {
			return fmt.Errorf("build %s, which the workflow imports: %w", name, err)
		}
	}
	return nil
}
