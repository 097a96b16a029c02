package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// maxPending bounds the async host functions that run at once for one VM; one more throws in the script.
const maxPending = 10_000

// host is one function of Go that scripts may call: exactly one of the fields is set.
type host struct {
	sync  func(args json.RawMessage) (json.RawMessage, error)
	async func(ctx context.Context, args json.RawMessage) (json.RawMessage, error)
}

// Host makes fn the global function of that name; a dotted name makes the objects on the way. Its argument is a JSON
// array of the script's arguments, its result JSON or empty for undefined; an error is thrown in the script as an Error
// with that message.
func (v *VM) Host(name string, fn func(args json.RawMessage) (json.RawMessage, error)) error {
	return v.define("host", name, host{sync: fn})
}

// HostAsync is Host for work that takes time: the script gets a promise, fn runs on its own goroutine, and the promise
// settles inside Call. The context ends when the VM is closed.
func (v *VM) HostAsync(name string, fn func(ctx context.Context, args json.RawMessage) (json.RawMessage, error)) error {
	return v.define("hostAsync", name, host{async: fn})
}

// define gives the script a name for h. The script knows functions by their index in v.hosts.
func (v *VM) define(how, name string, h host) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.broken != nil {
		return v.broken
	}
	v.hosts = append(v.hosts, h)
	if err := v.invoke(how, name, len(v.hosts)-1); err != nil {
		return fmt.Errorf("define host function %s: %w", name, err)
	}
	return nil
}

// native is the one function through which scripts reach Go. A negative index is the end of the present call. It runs
// inside the engine, hence with v.mu held by the goroutine that called in.
func (v *VM) native(args []any) (any, error) {
	index, _ := args[0].(int)
	text, _ := args[1].(string)
	switch {
	case index == -1:
		v.settled = v.result(text)
		return nil, nil
	case index == -2:
		v.settled = &outcome{err: v.rejected(text)}
		return nil, nil
	}
	h := v.hosts[index]
	if h.sync != nil {
		return reply(h.sync(json.RawMessage(text))), nil
	}
	id, _ := args[2].(int)
	return v.calls.start(id, json.RawMessage(text), h.async), nil
}

// result judges what a call gave. Its text exists already, so the limit protects who gets it and not the VM.
func (v *VM) result(text string) *outcome {
	if v.limits.ResultBytes > 0 && len(text) > v.limits.ResultBytes {
		return &outcome{err: &Error{
			Kind:    KindTooLarge,
			Message: fmt.Sprintf("result of %d bytes is over the limit of %d bytes", len(text), v.limits.ResultBytes),
		}}
	}
	return &outcome{value: text}
}

// reply is the form in which boot.js reads an answer.
func reply(value json.RawMessage, err error) string {
	if err != nil {
		return "!" + err.Error()
	}
	return "=" + string(value)
}

// asyncCalls are the async host functions at work for one VM, and the completions that wait for the loop.
type asyncCalls struct {
	wake chan struct{} // size 1: "look at done again"
	ctx  context.Context
	stop context.CancelCauseFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	pending int          // at work or in done
	done    []completion // at most maxPending, as pending bounds it
}

// completion is the answer for one promise, not yet given.
type completion struct {
	id    int
	reply string
}

var errClosed = errors.New("script VM is closed")

func (c *asyncCalls) open() {
	c.wake = make(chan struct{}, 1)
	c.ctx, c.stop = context.WithCancelCause(context.Background())
}

// start runs fn for the promise of that id. What it returns goes to the script at once: empty, or why it did not start.
func (c *asyncCalls) start(id int, args json.RawMessage, fn func(context.Context, json.RawMessage) (json.RawMessage, error)) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return reply(nil, errClosed)
	}
	if c.pending >= maxPending {
		return reply(nil, fmt.Errorf("more than %d host calls at once", maxPending))
	}
	c.pending++
	c.all.Go(func() {
		r := completion{id: id, reply: reply(fn(c.ctx, args))}
		c.mu.Lock()
		c.done = append(c.done, r)
		c.mu.Unlock()
		select {
		case c.wake <- struct{}{}:
		default: // the loop has not looked since the last one
		}
	})
	return "="
}

// take gives the completions to settle, and how many calls are still at work.
func (c *asyncCalls) take() (done []completion, pending int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done, c.done = c.done, nil
	c.pending -= len(done)
	return done, c.pending
}

// close lets no call begin, ends those at work and waits for them.
func (c *asyncCalls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop(errClosed)
	c.all.Wait()
}
