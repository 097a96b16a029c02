package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// maxBatch bounds how many transactions share one commit. Beyond it the next ones share the next.
const maxBatch = 64

// singleWriter runs transactions one after the other on one connection. Those that wait while it commits share the next
// commit: each still succeeds or fails by itself, but pages that several of them touch are written once. It begins and
// commits by statements of its own instead of sql.Tx, which prepares every statement anew.
type singleWriter struct {
	on    *lite
	inUse sync.Mutex // of the connection: held for a batch, and to close it

	mu      sync.Mutex
	busy    bool    // somebody leads: runs what waits
	waiting []*turn // in order of arrival
}

// turn is a call of write that waits until it may run.
type turn struct {
	fn       func(ctx context.Context, q transaction) error
	ctx      context.Context
	leads    chan bool // tells once whether it leads, or err stands; nil for one that leads at once
	err      error
	panicked any // what fn panicked with, for its caller
}

// errBatchBroken says that the engine undid the whole transaction, as it does on a full disk.
var errBatchBroken = errors.New("the transaction was undone as a whole")

// write waits for its turn. Once it has begun, the transaction is not interrupted when ctx ends: it is short, and the
// driver would need a goroutine beside every statement to watch for it.
func (w *singleWriter) write(ctx context.Context, fn func(ctx context.Context, q transaction) error) error {
	t := &turn{fn: fn, ctx: context.WithoutCancel(ctx)}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !w.join(t) {
		leads := false
		select {
		case leads = <-t.leads:
		case <-ctx.Done():
			if w.leave(t) {
				return ctx.Err()
			}
			leads = <-t.leads // too late to leave: it runs already, or was just made to lead
		}
		if !leads {
			return t.result()
		}
	}
	w.run(w.take(maxBatch), t)
	w.handOver()
	return t.result()
}

func (t *turn) result() error {
	if t.panicked != nil {
		panic(t.panicked)
	}
	return t.err
}

// join puts a transaction in line and reports whether it leads.
func (w *singleWriter) join(t *turn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, t)
	if !w.busy {
		w.busy = true
		return true
	}
	t.leads = make(chan bool, 1)
	return false
}

// leave takes a transaction out of line. It cannot when it runs already or has been told to lead.
func (w *singleWriter) leave(t *turn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.waiting, t)
	if i < 0 || len(t.leads) > 0 {
		return false
	}
	w.waiting = slices.Delete(w.waiting, i, i+1)
	return true
}

// take takes those in front out of line, up to a number.
func (w *singleWriter) take(limit int) []*turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.waiting), limit)
	batch := slices.Clone(w.waiting[:n])
	w.waiting = slices.Delete(w.waiting, 0, n)
	return batch
}

// handOver makes the first in line lead, so that no caller works for others longer than one batch.
func (w *singleWriter) handOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.busy = false
		return
	}
	w.waiting[0].leads <- true
}

// run runs a batch in one transaction of the engine, with those that come while it runs, and tells everybody in it but
// the one that leads.
func (w *singleWriter) run(first []*turn, leader *turn) {
	w.inUse.Lock()
	all, err := w.attempt(first)
	w.inUse.Unlock()
	for _, t := range all {
		if err != nil && t.err == nil {
			t.err = err
		}
		if t != leader {
			t.leads <- false
		}
	}
}

func (w *singleWriter) attempt(batch []*turn) (all []*turn, err error) {
	kept := 0
	for len(batch) > 0 {
		all = append(all, batch...)
		for _, t := range batch {
			if err := w.one(t, behind(kept)); err != nil {
				w.undo()
				return all, err
			}
			if !t.failed() {
				kept++
			}
		}
		runtime.Gosched() // whoever is about to write comes along
		batch = w.take(maxBatch - len(all))
	}
	if err := w.commit(kept); err != nil {
		w.undo()
		return all, err
	}
	return all, nil
}

// place is where a transaction of a batch begins, and goes back to when it fails.
type place struct{ begin, back string }

// behind is the place behind a number of transactions that are to be kept: the first begins the one of the engine. Those
// after it have savepoints, so that the failure of one undoes nothing of the others, and the commit releases them.
func behind(kept int) place {
	switch kept {
	case 0:
		return place{"BEGIN IMMEDIATE", "ROLLBACK"}
	case 1:
		return place{"SAVEPOINT second", "ROLLBACK TO second"}
	default:
		return place{"SAVEPOINT later", "ROLLBACK TO later"} // the last of that name
	}
}

// one runs one transaction of a batch. The error is one of the whole batch.
func (w *singleWriter) one(t *turn, at place) error {
	if err := w.do(at.begin); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	t.call(w.on)
	if !t.failed() {
		return nil
	}
	if err := w.do(at.back); err != nil && at != behind(0) { // a whole transaction may have been undone already
		return errors.Join(errBatchBroken, t.err)
	}
	return nil
}

// commit keeps a number of transactions. The engine may have undone them while a later one did not mind, and begun anew
// with a savepoint: then the first savepoint is not there.
func (w *singleWriter) commit(kept int) error {
	if kept == 0 {
		return nil
	}
	if kept > 1 {
		if err := w.do("RELEASE second"); err != nil {
			return errors.Join(errBatchBroken, err)
		}
	}
	if err := w.do("COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// undo rolls everything back. After some errors, such as a full disk, the engine has done so already, and then this
// fails without harm.
func (w *singleWriter) undo() { _ = w.do("ROLLBACK") }

func (w *singleWriter) do(statement string) error {
	return w.on.Do(context.Background(), statement)
}

// failed tells that nothing of the transaction is to be kept.
func (t *turn) failed() bool { return t.err != nil || t.panicked != nil }

// call runs the function of the transaction, whose panic belongs to the caller that brought it.
func (t *turn) call(q transaction) {
	defer func() { t.panicked = recover() }()
	t.err = t.fn(t.ctx, q)
}

func (w *singleWriter) close() error {
	w.inUse.Lock()
	defer w.inUse.Unlock()
	return w.on.close()
}
