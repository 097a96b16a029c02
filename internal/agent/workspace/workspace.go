// Package workspace makes the folder in which one job runs: it fetches the source at the commit of the job, restores
// tarballs and dependencies into it, checks the lock file against the source, and removes everything afterwards.
package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options says where workspaces are made.
type Options struct {
	// TempDir is the folder in which the workspace is made; "" is the system's. It must exist.
	TempDir string
	// Cache holds mirrors of repositories; nil fetches everything anew.
	Cache *Cache
	// Environ is the environment of the git and package manager processes, NAME=value. Names that begin with KICI_ or
	// GIT_ are left out of it: the first may hold credentials of the agent, the second would change what git works on.
	// nil takes the environment of this process.
	Environ []string
	// CopyObjects makes the workspace share no file with the mirror. It is needed where steps cannot reach the mirror
	// otherwise, so that they cannot change it through a hard link either.
	CopyObjects bool
}

// Workspace is the private folder of one job. Close removes it.
type Workspace struct {
	dir  string
	opts Options
}

// Open makes a folder <TempDir>/kici-XXXXXX that only this user can enter.
func Open(ctx context.Context, opts Options) (*Workspace, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open workspace: %w", context.Cause(ctx))
	}
	if opts.TempDir == "" {
		opts.TempDir = os.TempDir()
	}
	if opts.Environ == nil {
		opts.Environ = os.Environ()
	}
	dir, err := tempDir(opts.TempDir)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	return &Workspace{dir: dir, opts: opts}, nil
}

// Dir is the absolute path of the folder.
func (w *Workspace) Dir() string { return w.dir }

// Close removes the folder with all it holds, also what a step made read-only.
func (w *Workspace) Close() error {
	if err := removeAll(w.dir); err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	return nil
}

// tempDir makes a private folder with the name that CleanStale knows: kici- and six letters or digits.
func tempDir(parent string) (string, error) {
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", err
	}
	for range 100 { // a collision of 32^6 names is rare; a hundred mean something else is wrong
		dir := filepath.Join(parent, "kici-"+rand.Text()[:6])
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		return dir, err
	}
	return "", fmt.Errorf("no free name in %s", parent)
}

// removeAll deletes a tree. Tools such as Go's module cache make folders read-only, in which nothing can be deleted, so
// a first failure makes every folder writable and tries again.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		if err != nil && d != nil && d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// empty deletes what a folder holds, but for the named entries, and keeps the folder.
func empty(dir string, but ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(but, e.Name()) {
			continue
		}
		if err := removeAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

var staleName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^kici-[A-Za-z0-9]{6}$`) })

// CleanStale removes what agents that were killed left in the temp folder: folders with our kind of name that have not
// changed for longer than age. It returns how many it removed; what cannot be removed stays for the next time.
func CleanStale(ctx context.Context, dir string, age time.Duration, now time.Time) int {
	if dir == "" {
		dir = os.TempDir()
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	removed := 0
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		if !e.IsDir() || !staleName().MatchString(e.Name()) && !strings.HasPrefix(e.Name(), "kici-pnpm-store-") {
			continue
		}
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < age {
			continue
		}
		if removeAll(filepath.Join(dir, e.Name())) == nil {
			removed++
		}
	}
	return removed
}

// inside joins a slash path to the root of the workspace and refuses one that leads out of it.
func inside(root, path string) (string, error) {
	local := filepath.FromSlash(path)
	if path == "" {
		return root, nil
	}
	if !filepath.IsLocal(local) {
		return "", fmt.Errorf("path %q leads out of the workspace", path)
	}
	return filepath.Join(root, local), nil
}
