//go:build unix

package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"kici/internal/agent/runner"
)

// noLimit is more than any disk holds, and a whole number in JavaScript.
const noLimit = 1 << 50

// artifacts are the files that jobs keep, in a folder that the first of a run empties: it holds what the latest run left.
type artifacts struct {
	dir string

	mu    sync.Mutex
	made  bool
	of    map[string]string // job by name of the artifact
	files []string          // complete ones, in the order in which they came
}

// answer does what a server does with the request of a job.
func (a *artifacts) answer(job string, r runner.Request) runner.Response {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Op == "commit" {
		if file := filepath.Join(a.dir, FileName(r.UploadID)); !slices.Contains(a.files, file) {
			a.files = append(a.files, file)
		}
		return runner.Response{}
	}
	if err := a.take(job, r.Name); err != nil {
		return runner.Response{Error: err.Error()}
	}
	return runner.Response{UploadID: r.Name, SaveTo: filepath.Join(a.dir, FileName(r.Name)), MaxBytes: noLimit}
}

// take gives a name to a job, unless another one has it.
func (a *artifacts) take(job, name string) error {
	if a.dir == "" {
		return errors.New("this run has no folder for artifacts")
	}
	if holder, ok := a.of[name]; ok && holder != job {
		return fmt.Errorf("job %s has an artifact %q already", holder, name)
	}
	if !a.made {
		// The folder hides itself from git, also in repositories that were set up before it came to be.
		if err := errors.Join(os.RemoveAll(a.dir), os.MkdirAll(a.dir, 0o755), os.WriteFile(filepath.Join(filepath.Dir(a.dir), ".gitignore"), []byte("*\n"), 0o644)); err != nil {
			return fmt.Errorf("make the folder for artifacts: %w", err)
		}
		a.made, a.of = true, map[string]string{}
	}
	a.of[name] = job
	return nil
}

// complete lists the artifacts that are there.
func (a *artifacts) complete() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.files)
}

// FileName makes one plain name of a file of a text that is an author's, and never the same of two.
func FileName(text string) string {
	var out strings.Builder
	for i, c := range []byte(text) {
		if c < ' ' || strings.IndexByte(`/\%:`, c) >= 0 || c == '.' && i == 0 {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}
