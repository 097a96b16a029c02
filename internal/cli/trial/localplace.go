//go:build unix

package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"kici/internal/agent/local"
	"kici/internal/cli/console"
	"kici/internal/cli/livetree"
	"kici/internal/core/lockfile"
	"kici/internal/kit/docker"
)

// engine finds that of the containers. What goes into them is this program, so it must be one for Linux.
func (l *localRun) engine(ctx context.Context) (*docker.Client, error) {
	if runtime.GOOS != "linux" {
		return nil, console.Usage("--container works on Linux only, since the step runner that goes into a container is this program")
	}
	socket, err := docker.Find(l.Environ)
	switch {
	case errors.Is(err, docker.ErrNoEngine):
		return nil, fmt.Errorf("run in containers: %w", err)
	case err != nil:
		return nil, console.Usage("%w", err)
	}
	engine, err := docker.Open(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("run in containers: %w", err)
	}
	return engine, nil
}

// alone runs a workflow while nobody else runs it in this repository.
func (l *localRun) alone(ctx context.Context, w lockfile.Workflow, run func() error) error {
	grace, err := l.lockGrace()
	if err != nil {
		return err
	}
	dir, err := l.scratch()
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, "locks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for locks: %w", err)
	}
	replace := w.Concurrency != nil && w.Concurrency.HasGroup && (w.Concurrency.CancelInProgress == nil || *w.Concurrency.CancelInProgress)
	lock, err := local.Acquire(ctx, local.LockOptions{Dir: dir, Root: l.repo.Root, Workflow: w.Name, Replace: replace, Grace: grace,
		Waiting: func(pid int) {
			what := "it begins when that has ended"
			if replace {
				what = "that is ended, since the workflow cancels what is in progress"
			}
			fmt.Fprintf(l.Stderr, "%s is being run already, by process %d: %s\n", livetree.Clean(w.Name), pid, what)
		}})
	if err != nil {
		return err
	}
	defer lock.Release()
	return run()
}

// lockGrace is for how long a run that another one replaces may take to end.
func (l *localRun) lockGrace() (time.Duration, error) {
	const name = "KICI_LOCAL_LOCK_KILL_GRACE_MS"
	text := l.Process.Env(name)
	if text == "" {
		return 30 * time.Second, nil
	}
	ms, err := strconv.ParseInt(text, 10, 32)
	if err != nil || ms < 0 {
		return 0, console.Usage("%s must be a number of milliseconds, not %q", name, text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}
