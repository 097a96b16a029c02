package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Options bound a Reader. Zero fields take the defaults.
type Options struct {
	// PerRepository is how many processes read one repository side by side (4); further readers wait for one.
	PerRepository int
	// MaxIdle is how many processes are kept for the next reader, over all repositories (16). Beyond it the one that
	// was unused for longest ends.
	MaxIdle int
	// IdleTime is how long an unused process is kept (1 minute).
	IdleTime time.Duration
}

// Reader reads repositories. Close ends its processes.
type Reader struct {
	opts Options

	mu     sync.Mutex
	repos  map[string]*repository // those that somebody uses or waits for
	idle   []*process             // longest unused first
	closed bool
	wg     sync.WaitGroup // callers in with, and processes being ended
}

// repository bounds the processes of one git directory.
type repository struct {
	slots *semaphore.Weighted
	users int // callers that hold or await a slot
}

var errClosed = errors.New("git reader is closed")

// NewReader makes a Reader; it starts processes only when they are needed.
func NewReader(opts Options) *Reader {
	if opts.PerRepository == 0 {
		opts.PerRepository = 4
	}
	if opts.MaxIdle == 0 {
		opts.MaxIdle = 16
	}
	if opts.IdleTime == 0 {
		opts.IdleTime = time.Minute
	}
	return &Reader{opts: opts, repos: map[string]*repository{}}
}

// Close ends every process and returns when all are gone. Readers that are still at work finish first.
func (r *Reader) Close() {
	r.mu.Lock()
	r.closed = true
	idle := r.idle
	r.idle = nil
	r.mu.Unlock()
	for _, p := range idle {
		p.idle.Stop()
		p.close()
	}
	r.wg.Wait()
}

// with runs ask with a process of the repository. A process that was idle may have died with its repository, so a
// failure of such a one is tried once more with a fresh process.
func (r *Reader) with(ctx context.Context, repo string, ask func(*process) error) error {
	dir, err := Dir(repo)
	if err != nil {
		return err
	}
	release, err := r.slot(ctx, dir)
	if err != nil {
		return err
	}
	defer release()
	p := r.takeIdle(dir)
	if p != nil {
		err := r.use(ctx, p, ask)
		if _, failed := errors.AsType[broken](err); !failed || errors.Is(err, ErrTooLarge) || ctx.Err() != nil {
			return err
		}
	}
	if p, err = start(dir); err != nil {
		return err
	}
	return r.use(ctx, p, ask)
}

// use runs ask, within ctx and the time for an answer, and keeps the process for the next reader unless it is broken.
func (r *Reader) use(ctx context.Context, p *process, ask func(*process) error) error {
	timeout := time.AfterFunc(answerTime, p.stop)
	undo := context.AfterFunc(ctx, p.stop)
	err := ask(p)
	timely := timeout.Stop()
	undone := undo()
	_, failed := errors.AsType[broken](err)
	if failed || !timely || !undone {
		p.close()
	} else {
		r.keep(p)
	}
	if failed && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failed && !timely {
		return fmt.Errorf("git did not answer within %s: %w", answerTime, err)
	}
	return err
}

// slot waits until the repository may have another process in use.
func (r *Reader) slot(ctx context.Context, dir string) (release func(), err error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errClosed
	}
	repo := r.repos[dir]
	if repo == nil {
		repo = &repository{slots: semaphore.NewWeighted(int64(r.opts.PerRepository))}
		r.repos[dir] = repo
	}
	repo.users++
	r.wg.Add(1)
	r.mu.Unlock()
	leave := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if repo.users--; repo.users == 0 {
			delete(r.repos, dir)
		}
		r.wg.Done()
	}
	if err := repo.slots.Acquire(ctx, 1); err != nil {
		leave()
		return nil, fmt.Errorf("wait for git: %w", err)
	}
	return func() { repo.slots.Release(1); leave() }, nil
}

// takeIdle takes the process of the directory that was used last, or nil.
func (r *Reader) takeIdle(dir string) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range slices.Backward(r.idle) {
		if p.dir == dir {
			r.idle = slices.Delete(r.idle, i, i+1)
			p.idle.Stop()
			return p
		}
	}
	return nil
}

// keep puts a process aside for the next reader.
func (r *Reader) keep(p *process) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		p.close()
		return
	}
	p.idle = time.AfterFunc(r.opts.IdleTime, func() { r.expire(p) })
	r.idle = append(r.idle, p)
	var oldest *process
	if len(r.idle) > r.opts.MaxIdle {
		oldest = r.idle[0]
		oldest.idle.Stop()
		r.idle = slices.Delete(r.idle, 0, 1)
	}
	r.mu.Unlock()
	if oldest != nil {
		oldest.close()
	}
}

// expire ends a process whose time is up, unless a reader has just taken it.
func (r *Reader) expire(p *process) {
	r.mu.Lock()
	i := slices.Index(r.idle, p)
	if i >= 0 {
		r.idle = slices.Delete(r.idle, i, i+1)
		r.wg.Add(1) // under the lock and before closed is set, so that Close waits for it
	}
	r.mu.Unlock()
	if i >= 0 {
		p.close()
		r.wg.Done()
	}
}
