package runner

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"kici/internal/author/bundle"
	"kici/internal/kit/script"
)

// embeddedMemory bounds the heap of a workflow on the embedded host, as node bounds its own.
const embeddedMemory = 2 << 30

// newVM makes the engine, with the host's functions and all of our own script in it. It is made while the runner waits
// for its job, since that time costs nobody anything.
func (c *child) newVM(ctx context.Context) (*script.VM, error) {
	vm, err := script.New(script.Limits{Timeout: script.Unlimited, MemoryBytes: embeddedMemory, ResultBytes: script.Unlimited})
	if err != nil {
		return nil, fmt.Errorf("start embedded host: %w", err)
	}
	if err := errors.Join(bundle.Offer(vm), c.offer(vm), bundle.LoadLibrary(ctx, vm, "run")); err != nil {
		_ = vm.Close()
		return nil, fmt.Errorf("start embedded host: %w", err)
	}
	return vm, nil
}

// runEmbedded runs the script in this process. Time limits are the steps' own: see guard for one that never yields.
func (c *child) runEmbedded(ctx context.Context, vm *script.VM, built bundle.Result, request json.RawMessage, job Job) error {
	if err := vm.Run(ctx, "<eval>", string(built.Part)); err != nil {
		return c.loadFailed(ctx, err)
	}
	about, err := json.Marshal(newBoot("embedded", "", job, rand.Text()))
	if err != nil {
		return fmt.Errorf("describe embedded host: %w", err)
	}
	result, err := vm.Call(ctx, "__kiciRun", request, about)
	if err != nil {
		return scriptCrash(err)
	}
	if string(result) != "true" {
		return errJobFailed
	}
	return nil
}

// offer gives the script the three functions that are a host.
func (c *child) offer(vm *script.VM) error {
	return errors.Join(
		vm.Host("__kiciHost.emit", func(args json.RawMessage) (json.RawMessage, error) {
			return with1(args, func(m json.RawMessage) (json.RawMessage, error) { return nil, c.emit(m) })
		}),
		vm.HostAsync("__kiciHost.receive", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			return c.receive(ctx)
		}),
		vm.HostAsync("__kiciHost.call", func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			var in []json.RawMessage
			var fn string
			if err := json.Unmarshal(args, &in); err != nil || len(in) < 1 {
				return nil, errors.New("host call without a name")
			}
			if err := json.Unmarshal(in[0], &fn); err != nil {
				return nil, errors.New("host call without a name")
			}
			out, err := c.call(ctx, fn, append(in, json.RawMessage("{}"))[1])
			if err != nil || out == nil {
				return nil, err
			}
			return json.Marshal(out)
		}),
	)
}

// with1 opens the list of arguments of a function that takes one.
func with1(args json.RawMessage, fn func(json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	var in []json.RawMessage
	if err := json.Unmarshal(args, &in); err != nil || len(in) != 1 {
		return nil, errors.New("one argument is needed")
	}
	return fn(in[0])
}

// loadFailed reports that the workflow's module threw while it was loaded.
func (c *child) loadFailed(ctx context.Context, err error) error {
	var e *script.Error
	if !errors.As(err, &e) || ctx.Err() != nil {
		return err
	}
	c.reportLoadFailure(e.Message, e.Stack)
	return errJobFailed
}

// reportLoadFailure ends the job with the place in the author's file where loading went wrong.
func (c *child) reportLoadFailure(message, stack string) {
	text := "Workflow cannot be loaded: " + message
	place := c.trace(stack)
	c.out.log(JobLog, strings.Split(text+place, "\n")...)
	c.out.fail(text + firstPlace(place))
}

// scriptCrash is what the script itself threw, which steps cannot cause: their errors are theirs.
func scriptCrash(err error) error {
	var e *script.Error
	if !errors.As(err, &e) {
		return err
	}
	return &crash{code: exitException, text: "Uncaught " + e.Message, stack: e.Stack}
}

// firstPlace is the innermost place of a trace for use in a sentence.
func firstPlace(trace string) string {
	_, rest, ok := strings.Cut(trace, "    at ")
	if !ok {
		return ""
	}
	return " (" + firstLine(rest) + ")"
}
