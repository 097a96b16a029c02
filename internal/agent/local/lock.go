//go:build unix

package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// LockOptions say which runs may not be at the same time.
type LockOptions struct {
	Dir      string // of lock files; it must exist
	Root     string // of the repository
	Workflow string
	// Replace ends the run that is in progress instead of waiting for its end: politely, and by force when Grace has
	// passed.
	Replace bool
	Grace   time.Duration
	// Waiting is told the process that holds the lock, 0 when it cannot be told, each time that it is another one.
	Waiting func(pid int)
}

// lockPoll is how often a lock that somebody holds is tried.
const lockPoll = 50 * time.Millisecond

// Lock keeps other runs of a workflow of a repository from beginning. The system takes it back from a process that ends.
type Lock struct{ file *os.File }

// Acquire takes the lock, and waits for it until the context ends.
func Acquire(ctx context.Context, o LockOptions) (*Lock, error) {
	key := sha256.Sum256([]byte(o.Root + "\x00" + o.Workflow))
	file, err := os.OpenFile(filepath.Join(o.Dir, hex.EncodeToString(key[:16])+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock workflow %s: %w", o.Workflow, err)
	}
	l := &Lock{file}
	if err := l.await(ctx, o); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock workflow %s: %w", o.Workflow, err)
	}
	return l, nil
}

// Release gives the lock back. Its file stays: to remove it could take away the lock of who waits.
func (l *Lock) Release() { l.file.Close() }

func (l *Lock) await(ctx context.Context, o LockOptions) error {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	var force time.Time // when the holder is ended by force
	for known := -1; ; {
		free, pid, err := l.try()
		if err != nil || free {
			return err
		}
		switch now := time.Now(); {
		case pid != known:
			known, force = pid, now.Add(o.Grace)
			o.Waiting(pid)
			if o.Replace && pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGTERM) // one that has ended leaves the lock
			}
		case o.Replace && pid > 0 && now.After(force):
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// try takes the lock if nobody has it, else tells who has. The kernel knows that, so that a process that has taken over
// the number of an ended one is never mistaken for a holder.
func (l *Lock) try() (free bool, holder int, err error) {
	want := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	switch err = syscall.FcntlFlock(l.file.Fd(), syscall.F_SETLK, &want); {
	case err == nil:
		return true, 0, nil
	case !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EINTR):
		return false, 0, err
	}
	ask := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(l.file.Fd(), syscall.F_GETLK, &ask); err != nil || ask.Type == syscall.F_UNLCK {
		return false, 0, nil // it has just been left
	}
	return false, int(ask.Pid), nil
}
