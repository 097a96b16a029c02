// Package script runs JavaScript in a sandbox: QuickJS in this process, with limits on time, memory, stack and results.
// A script sees the language's built-ins and the host functions it is given, nothing else; every value crosses the
// border as JSON text, so neither side holds the other's objects.
package script

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"modernc.org/quickjs"
)

// Unlimited, as a field of Limits, lifts that bound. It is for scripts that run in a process of their own.
const Unlimited = -1

// Limits bound a VM. A zero field takes the default, Unlimited lifts the bound (not for the stack, whose end would end
// the process).
type Limits struct {
	Timeout     time.Duration // one uninterrupted turn of script; 100 ms. Waiting for host functions does not count
	MemoryBytes int64         // the VM's heap; 32 MiB
	StackBytes  int64         // call depth, counted as 256 bytes a frame; 1 MiB
	ResultBytes int           // JSON of one result; 64 KiB
}

const (
	defaultTimeout = 100 * time.Millisecond
	defaultMemory  = 32 << 20
	defaultStack   = 1 << 20
	defaultResult  = 64 << 10

	frameBytes = 256  // how StackBytes translates to the engine's frames
	maxFrames  = 5000 // the engine's own limit: beyond it the goroutine's stack would end first
)

// VM is one JavaScript realm. It serves one goroutine at a time; methods called from several wait for each other. A host
// function must not call its VM. After a timeout or a cancelled context the VM only gives the same error again, since
// the script was cut in the middle of its work; Close it.
type VM struct {
	limits Limits
	js     *quickjs.VM
	boot   map[string]quickjs.Value // the functions of boot.js, owned here and freed by Close

	mu      sync.Mutex // guards all below and the engine
	hosts   []host
	broken  error // why the VM may not run again, nil while it may
	settled *outcome

	calls asyncCalls
}

// outcome is how the present call ended.
type outcome struct {
	value string // JSON, "" for undefined
	err   error
}

//go:embed boot.js
var bootSource string

// New makes a VM with those limits. The caller closes it: its memory lies outside the Go heap.
func New(l Limits) (*VM, error) {
	js, l, err := newEngine(l)
	if err != nil {
		return nil, err
	}
	v := &VM{limits: l, js: js, boot: map[string]quickjs.Value{}}
	v.calls.open()
	if err := v.prepare(); err != nil {
		_ = v.Close()
		return nil, fmt.Errorf("prepare script VM: %w", err)
	}
	return v, nil
}

// newEngine makes a bare realm under the limits. The engine counts its time anew with each call from Go, which is what
// Limits.Timeout promises.
func newEngine(l Limits) (*quickjs.VM, Limits, error) {
	l = l.withDefaults()
	js, err := quickjs.NewVM()
	if err != nil {
		return nil, l, fmt.Errorf("start script VM: %w", err)
	}
	if l.Timeout > 0 {
		if err := js.SetEvalTimeout(l.Timeout); err != nil {
			_ = js.Close()
			return nil, l, fmt.Errorf("limit script VM: %w", err)
		}
	}
	if l.MemoryBytes > 0 {
		js.SetMemoryLimit(uintptr(l.MemoryBytes))
	}
	js.SetMaxStackSize(uintptr(min(max(l.StackBytes/frameBytes, 16), maxFrames)))
	return js, l, nil
}

func (l Limits) withDefaults() Limits {
	if l.Timeout == 0 {
		l.Timeout = defaultTimeout
	}
	if l.MemoryBytes == 0 {
		l.MemoryBytes = defaultMemory
	}
	if l.StackBytes <= 0 {
		l.StackBytes = defaultStack
	}
	if l.ResultBytes == 0 {
		l.ResultBytes = defaultResult
	}
	return l
}

// prepare runs boot.js and keeps the functions that it gives.
func (v *VM) prepare() error {
	if err := v.js.RegisterHostFunc("__kiciNative", v.native); err != nil {
		return err
	}
	api, err := v.js.EvalValue(bootSource, quickjs.EvalGlobal)
	if err != nil {
		return err
	}
	defer api.Free()
	for _, name := range []string{"host", "hostAsync", "settle", "call"} {
		atom, err := v.js.NewAtom(name)
		if err != nil {
			return err
		}
		f, err := api.GetPropertyValue(atom)
		if err != nil {
			return err
		}
		v.boot[name] = f
	}
	return nil
}

// Close ends the VM: pending async host functions see their context end and are waited for, then the memory is freed.
func (v *VM) Close() error {
	v.calls.close()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.js == nil {
		return nil
	}
	for _, f := range v.boot {
		f.Free()
	}
	err := v.js.Close()
	v.js, v.boot = nil, nil
	v.broken = errors.New("script VM is closed")
	return err
}

// Run evaluates a classic script, such as a bundle, and drops its result. Its name stands in stack traces. Promise
// reactions that the script leaves behind run with the next Call.
func (v *VM) Run(ctx context.Context, name, source string) error {
	return v.evaluate(ctx, name, func() (quickjs.Value, error) { return v.js.EvalValue(source, quickjs.EvalGlobal) })
}

func (v *VM) evaluate(ctx context.Context, name string, eval func() (quickjs.Value, error)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.ready(ctx); err != nil {
		return err
	}
	defer v.interruptWith(ctx)()
	// The engine names every source "<eval>"; a trace with the caller's name is worth the rewriting.
	r, err := eval()
	if err != nil {
		return named(v.classify(ctx, err), name)
	}
	r.Free()
	return nil
}

// named puts the script's name where the engine writes its own.
func named(err error, name string) error {
	var e *Error
	if errors.As(err, &e) {
		e.Stack = strings.ReplaceAll(e.Stack, "<eval>", name)
		e.Message = strings.ReplaceAll(e.Message, "<eval>", name)
	}
	return err
}

// Call calls the global function at that dotted path with JSON arguments. When the function returns a promise, Call
// drives the loop (promise reactions, completions of async host functions) until it settles or ctx ends. The result is
// JSON, nil for undefined and for what JSON leaves out. A failure of the script is an *Error; an ended ctx is wrapped
// with its cause.
func (v *VM) Call(ctx context.Context, global string, args ...json.RawMessage) (json.RawMessage, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.ready(ctx); err != nil {
		return nil, err
	}
	defer v.interruptWith(ctx)()
	v.settled = nil
	if err := v.invoke("call", global, joinArgs(args)); err != nil {
		return nil, v.classify(ctx, err)
	}
	if err := v.loop(ctx); err != nil {
		return nil, err
	}
	if v.settled.err != nil {
		return nil, v.settled.err
	}
	if v.settled.value == "" {
		return nil, nil
	}
	return json.RawMessage(v.settled.value), nil
}

// loop gives the script turns until its call has settled.
func (v *VM) loop(ctx context.Context) error {
	for {
		if err := v.drain(ctx); err != nil {
			return err
		}
		if v.settled != nil {
			return nil
		}
		done, pending := v.calls.take()
		for _, c := range done {
			if err := v.invoke("settle", c.id, c.reply); err != nil {
				return v.classify(ctx, err)
			}
		}
		if len(done) > 0 {
			continue
		}
		if pending == 0 {
			return &Error{Kind: KindStalled, Message: "the script waits for something that cannot happen"}
		}
		select {
		case <-ctx.Done():
			return v.classify(ctx, ctx.Err())
		case <-v.calls.wake:
		}
	}
}

// drain runs promise reactions until none is left. The engine ends a drain after a million jobs: a script that feeds
// itself for ever is then met by its context or its time limit, not by a hang here.
func (v *VM) drain(ctx context.Context) error {
	for {
		n, err := v.js.ExecutePendingJobs()
		if ctx.Err() != nil {
			return v.classify(ctx, ctx.Err())
		}
		var js *quickjs.Error
		if errors.As(err, &js) {
			return v.classify(ctx, err)
		}
		if n == 0 || v.settled != nil {
			return nil
		}
	}
}

// invoke calls a function of boot.js. Strings are made apart from the call, since only so is a want of memory an error.
func (v *VM) invoke(name string, args ...any) error {
	for i, a := range args {
		text, ok := a.(string)
		if !ok {
			continue
		}
		value, err := v.js.NewString(text)
		if err != nil {
			return err
		}
		defer value.Free()
		args[i] = value
	}
	r, err := v.boot[name].CallValue(quickjs.UndefinedValue, args...)
	if err != nil {
		return err
	}
	r.Free()
	return nil
}

// ready tells why the VM cannot run now.
func (v *VM) ready(ctx context.Context) error {
	if v.broken != nil {
		return v.broken
	}
	if ctx.Err() != nil {
		return fmt.Errorf("script not started: %w", context.Cause(ctx))
	}
	return nil
}

// interruptWith makes the end of ctx end a running script; the returned function ends the watch and waits for it. The
// engine forgets a request that comes between two turns, so it is repeated until the watch ends.
func (v *VM) interruptWith(ctx context.Context) func() {
	if ctx.Done() == nil {
		return func() {}
	}
	over, gone := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(gone)
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		for {
			v.js.Interrupt()
			select {
			case <-over:
				return
			case <-again.C:
			}
		}
	})
	return func() {
		close(over)
		if !stop() {
			<-gone
		}
	}
}

// joinArgs writes arguments as a JSON list without looking into them. A missing one is null.
func joinArgs(args []json.RawMessage) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, a := range args {
		if i > 0 {
			b.WriteByte(',')
		}
		if len(a) == 0 {
			a = json.RawMessage("null")
		}
		b.Write(a)
	}
	b.WriteByte(']')
	return b.String()
}
