// Package compile turns the workflows of a repository into its lock file, the one document from which a server decides
// what to run.
package compile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"kici/internal/author/bundle"
	"kici/internal/core/lockfile"
)

// LockName is the name of the lock file in the folder of workflows.
const LockName = "kici.lock.json"

// DefaultDir is the folder of workflows in a repository.
const DefaultDir = ".kici"

// ErrFolder is the error for a folder of workflows that cannot be one.
var ErrFolder = errors.New("find folder of workflows")

// Options say what to compile.
type Options struct {
	// Dir is the root of the repository.
	Dir string
	// KiciDir is the folder of workflows below it; "" is DefaultDir.
	KiciDir string
	// Check compiles and compares without writing.
	Check bool
	// Typecheck has the TypeScript compiler look at the workflows, too. What it finds are mistakes like any other. It is
	// an error when there is none.
	Typecheck bool
}

// Result is what was compiled.
type Result struct {
	// Lock is the text of the lock file.
	Lock []byte
	// Path is where it belongs, an absolute path.
	Path string
	// Changed reports whether the file on disk differed by more than white space. Unless Options.Check was set, it no longer does.
	Changed bool
	// Workflows and Jobs count what the lock file holds; a generator is one job.
	Workflows, Jobs int
	// Warnings are doubts that did not stop the compilation.
	Warnings []Diagnostic
	// Inputs are the files that the lock file is made of, relative to the repository with forward slashes, sorted; with
	// a Diagnostics error those that could be told. A package manager's lock file is among them where it would count,
	// even when it is not there.
	Inputs []string
	// Searched are the folders, there or not, in which a new file may be one of hashFiles; named as Inputs are.
	Searched []string
	// Sources says of each workflow file what was made of it, in the order of their names.
	Sources []Source
	// Fixtures are the events to try them with, in the order of the files. They are no part of the lock file.
	Fixtures []Fixture
}

// Fixture is an event that an author has exported to try workflows with.
type Fixture struct {
	ID      string
	File    string          // that exports it, relative to the repository
	Options json.RawMessage // as the author wrote them, an object

	at bundle.Place
}

// Source is one workflow file as it was compiled.
type Source struct {
	// File is relative to the repository, as Imports and Hashed are.
	File      string   `json:"file"`
	Workflows []string `json:"workflows"`
	// Imports are the other files of the repository in its bundle, Hashed those that hashFiles adds to its hash.
	Imports []string `json:"imports,omitempty"`
	Hashed  []string `json:"hashFiles,omitempty"`
	// NeedsNode says why it runs on Node; "" is the embedded host.
	NeedsNode string `json:"needsNode,omitempty"`
}

// Compile compiles every workflow file and writes the lock file when it differs. Mistakes of the author are a
// Diagnostics error; then nothing is written.
func Compile(ctx context.Context, o Options) (Result, error) {
	root, kiciDir, err := o.folders()
	if err != nil {
		return Result{}, err
	}
	files, err := workflowFiles(root, kiciDir)
	if err != nil {
		return Result{}, err
	}
	if len(files) == 0 {
		return Result{}, Diagnostics{{Severity: SeverityError, Code: "E001", Text: "no workflow file in " + filepath.ToSlash(filepath.Join(kiciDir, "workflows")), Suggestion: "run `kici init` to make one"}}
	}
	units, err := compileUnits(ctx, root, files)
	if err != nil {
		return Result{}, err
	}
	res := Result{Path: filepath.Join(root, kiciDir, LockName), Inputs: inputsOf(units), Searched: searchedBy(units)}
	if res.Warnings, err = judge(units); err != nil {
		return Result{Inputs: res.Inputs, Searched: res.Searched}, err
	}
	if o.Typecheck {
		wrong, err := typecheck(ctx, root, kiciDir)
		if err == nil && len(wrong) > 0 {
			err = wrong
		}
		if err != nil {
			return Result{Inputs: res.Inputs, Searched: res.Searched}, err
		}
	}
	hash, asked, err := dependencies(root)
	if err != nil {
		return Result{}, err
	}
	res.Inputs = slices.Compact(slices.Sorted(slices.Values(append(res.Inputs, asked...))))
	if res.Lock, res.Jobs, err = write(units, hash); err != nil {
		return Result{Inputs: res.Inputs, Searched: res.Searched}, err
	}
	for _, u := range units {
		res.Workflows += len(u.workflows)
		res.Sources = append(res.Sources, u.summary())
		res.Fixtures = append(res.Fixtures, u.fixtures...)
	}
	res.Changed, err = store(res.Path, res.Lock, o.Check)
	return res, err
}

func inputsOf(units []*unit) []string {
	var list []string
	for _, u := range units {
		list = append(list, u.file)
		list = append(list, u.imports...)
		for _, w := range u.workflows {
			list = append(list, w.assets...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func searchedBy(units []*unit) []string {
	var list []string
	for _, u := range units {
		for _, w := range u.workflows {
			list = append(list, w.searched...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (u *unit) summary() Source {
	s := Source{File: u.file, Workflows: []string{}, NeedsNode: u.needsNode}
	for _, w := range u.workflows {
		s.Workflows = append(s.Workflows, w.name)
		s.Hashed = append(s.Hashed, w.assets...)
	}
	slices.Sort(s.Hashed)
	s.Hashed = slices.Compact(s.Hashed)
	for _, name := range u.imports {
		if name != u.file {
			s.Imports = append(s.Imports, name)
		}
	}
	return s
}

func (o Options) folders() (root, kiciDir string, err error) {
	if root, err = filepath.Abs(o.Dir); err != nil {
		return "", "", fmt.Errorf("find repository: %w", err)
	}
	// The bundler names files by their real path, and so must we.
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return "", "", fmt.Errorf("find repository: %w", err)
	}
	kiciDir = o.KiciDir
	if kiciDir == "" {
		kiciDir = DefaultDir
	}
	if filepath.IsAbs(kiciDir) {
		if kiciDir, err = filepath.Rel(root, kiciDir); err != nil {
			return "", "", fmt.Errorf("find folder of workflows: %w", err)
		}
	}
	if !filepath.IsLocal(kiciDir) {
		return "", "", fmt.Errorf("%w: %q is outside of the repository", ErrFolder, kiciDir)
	}
	return root, filepath.Clean(kiciDir), nil
}

// compileUnits compiles files side by side, as many as there are processors; the result keeps their order.
func compileUnits(ctx context.Context, root string, files []string) ([]*unit, error) {
	units := make([]*unit, len(files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, file := range files {
		group.Go(func() error {
			u, err := compileUnit(ctx, root, file)
			if err != nil {
				return fmt.Errorf("compile %s: %w", file, err)
			}
			units[i] = u
			return nil
		})
	}
	return units, group.Wait()
}

// judge looks at the files together and parts errors from warnings.
func judge(units []*unit) (warnings []Diagnostic, err error) {
	var wrong Diagnostics
	first, fixtures := map[string]*unit{}, map[string]*unit{}
	count := 0
	for _, u := range units {
		for _, p := range u.problems {
			if p.Severity == SeverityError {
				wrong = append(wrong, p)
			} else {
				warnings = append(warnings, p)
			}
		}
		count += len(u.workflows)
		if len(u.workflows) == 0 && len(u.fixtures) == 0 && len(u.problems) == 0 {
			warnings = append(warnings, Diagnostic{File: u.file, Severity: SeverityWarning, Code: "W001", Text: "the file exports no workflow"})
		}
		for _, w := range u.workflows {
			if other := first[w.name]; other != nil {
				wrong = append(wrong, u.duplicate("E107", "workflow", w.name, w.at, other))
				continue
			}
			first[w.name] = u
		}
		for _, f := range u.fixtures {
			if other := fixtures[f.ID]; other != nil {
				wrong = append(wrong, u.duplicate("E121", "fixture", f.ID, f.at, other))
				continue
			}
			fixtures[f.ID] = u
		}
	}
	if count == 0 && len(wrong) == 0 {
		first := units[0]
		at := bundle.Place{File: first.file, Line: 1, Column: 1}
		wrong = append(wrong, Diagnostic{
			File: first.file, Line: 1, Column: 1, Severity: SeverityError, Code: "E004", Text: "no workflow is exported", Frame: first.frame(at),
			Suggestion: "export the result of workflow(...), by name or as default",
		})
	}
	if len(wrong) > 0 {
		wrong.sort()
		return nil, wrong
	}
	Diagnostics(warnings).sort()
	return warnings, nil
}

// duplicate is the mistake of a second thing of a name, at its place.
func (u *unit) duplicate(code, what, name string, at bundle.Place, other *unit) Diagnostic {
	d := Diagnostic{
		File: u.file, Severity: SeverityError, Code: code,
		Text:       fmt.Sprintf("a %s named '%s' is already in %s", what, name, other.file),
		Suggestion: fmt.Sprintf("give one of them another name: a name is one %s's in the whole repository", what),
	}
	if at.File != "" {
		d.File, d.Line, d.Column, d.Frame = at.File, at.Line, at.Column, u.frame(at)
	}
	return d
}

// store writes the file by way of a temporary one, so that a reader never sees half of it.
func store(path string, lock []byte, check bool) (changed bool, err error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read lock file: %w", err)
	}
	if err == nil && sameDocument(old, lock) {
		return false, nil
	}
	if check {
		return true, nil
	}
	temporary := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	if err := os.WriteFile(temporary, lock, 0o644); err != nil {
		return false, fmt.Errorf("write lock file: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		_ = os.Remove(temporary)
		return false, fmt.Errorf("write lock file: %w", err)
	}
	return true, nil
}

// sameDocument tells whether two files differ by white space at most. What lays files out for a repository (its line ends,
// a newline at the end) would else undo each compilation and be undone by the next.
func sameDocument(old, lock []byte) bool {
	var a, b bytes.Buffer
	return json.Compact(&a, old) == nil && json.Compact(&b, lock) == nil && bytes.Equal(a.Bytes(), b.Bytes())
}

// dependencies gives the hash of the package manager's lock file, "" without one, and the files that were asked for to
// tell.
func dependencies(root string) (hash string, asked []string, err error) {
	files := &askedFiles{FS: os.DirFS(root)}
	prefix, content, ok, err := lockfile.FindDepLock(files)
	if err != nil {
		return "", nil, fmt.Errorf("hash package lock: %w", err)
	}
	if ok {
		hash = lockfile.DepLockHash(prefix, content)
	}
	return hash, files.names, nil
}

// askedFiles notes the names of the files that are opened.
type askedFiles struct {
	fs.FS
	names []string
}

// Open implements fs.FS.
func (a *askedFiles) Open(name string) (fs.File, error) {
	a.names = append(a.names, name)
	return a.FS.Open(name)
}
