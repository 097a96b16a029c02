package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// maxStepFile bounds what is read of the files by which a step's commands set variables; the rest is ignored.
const maxStepFile = 1 << 20

// privateDirs are the temporary directories of steps. All are removed in the end, whatever happened to the step.
type privateDirs struct {
	mu   sync.Mutex
	made map[string]bool
}

// dirSpec names a directory that an earlier call made.
type dirSpec struct {
	Dir string `json:"dir"`
}

// secretSpec is a file of secrets. Dir is one that an earlier call gave, or "" for a new one.
type secretSpec struct {
	Dir     string      `json:"dir"`
	Name    string      `json:"name"` // a plain file name
	Content string      `json:"content"`
	Mode    os.FileMode `json:"mode"`
}

// make gives a new directory that only this user can enter.
func (d *privateDirs) make() (string, error) {
	dir, err := os.MkdirTemp("", "kici-step-*") // mode 0700
	if err != nil {
		return "", fmt.Errorf("make step directory: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made == nil {
		d.made = map[string]bool{}
	}
	d.made[dir] = true
	return dir, nil
}

// has tells a directory of ours from any other: what the script may remove or write to is nothing else.
func (d *privateDirs) has(dir string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made[dir]
}

// remove takes a directory away. One that is not ours, or is gone already, is no error.
func (d *privateDirs) remove(dir string) error {
	if !d.has(dir) {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove step directory: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.made, dir)
	return nil
}

// removeAll is the end of the job. What cannot be removed stays for the sweep of stale directories.
func (d *privateDirs) removeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for dir := range d.made {
		os.RemoveAll(dir)
	}
}

// stepFiles makes the pair of files that commands of one step may write to.
func (d *privateDirs) stepFiles() (map[string]string, error) {
	dir, err := d.make()
	if err != nil {
		return nil, err
	}
	env, path := filepath.Join(dir, "env"), filepath.Join(dir, "path")
	if err := errors.Join(os.WriteFile(env, nil, 0o600), os.WriteFile(path, nil, 0o600)); err != nil {
		return nil, fmt.Errorf("make step files: %w", err)
	}
	return map[string]string{"dir": dir, "env": env, "path": path}, nil
}

// readStepFiles gives the text of both and removes them. A file that the step removed counts as empty.
func (d *privateDirs) readStepFiles(dir string) (map[string]string, error) {
	if !d.has(dir) {
		return nil, fmt.Errorf("no step directory %s", dir)
	}
	out := map[string]string{}
	for _, name := range []string{"env", "path"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			// A command may well have removed it.
			continue
		}
		raw, err := io.ReadAll(io.LimitReader(f, maxStepFile))
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read step files: %w", err)
		}
		out[name] = string(raw)
	}
	return out, d.remove(dir)
}

// writeSecret writes a file of secrets. It is made readable for its owner alone before it gets the wanted mode, so that
// at no moment more people can read it than the author asked for.
func (d *privateDirs) writeSecret(s secretSpec) (map[string]string, error) {
	if s.Name == "" || s.Name != filepath.Base(s.Name) || s.Name == "." || s.Name == ".." {
		return nil, fmt.Errorf("%q is not a plain file name", s.Name)
	}
	dir := s.Dir
	if !d.has(dir) {
		var err error
		if dir, err = d.make(); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, s.Name)
	if err := os.WriteFile(path, []byte(s.Content), 0o600); err != nil {
		return nil, fmt.Errorf("write secret file: %w", err)
	}
	if err := os.Chmod(path, s.Mode&0o777); err != nil {
		return nil, fmt.Errorf("write secret file: %w", err)
	}
	return map[string]string{"dir": dir, "path": path}, nil
}
