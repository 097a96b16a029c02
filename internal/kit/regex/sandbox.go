package regex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"kici/internal/kit/script"
)

// The sandbox's share: a search may take this long, and at most maxVMs run at a time; further callers wait, each no
// longer than those before it may take. Idle machines are kept, since starting one costs more than most searches.
const (
	searchTime = 200 * time.Millisecond
	maxVMs     = 4
)

// vms holds a token per machine that may exist: nil for one that has yet to be started. Taking a token is the right to
// run, and putting it back is everybody's duty.
var vms = func() chan *script.VM {
	c := make(chan *script.VM, maxVMs)
	for range maxVMs {
		c <- nil
	}
	return c
}()

// The machine sees the pattern and the text as plain strings. Errors other than the parser's are left to end the call,
// or running out of memory would look like bad syntax.
const program = `
globalThis.check = (source, flags) => {
	try { new RegExp(source, flags); return "" }
	catch (e) { if (e instanceof SyntaxError) return e.message || "syntax error"; throw e }
};
globalThis.test = (source, flags, texts) => texts.some((text) => new RegExp(source, flags).test(text));
`

// sandboxCompile asks the JavaScript engine whether the pattern parses.
func sandboxCompile(source, flags string) error {
	var message string
	if err := call(&message, "check", source, flags); err != nil {
		return fmt.Errorf("compile regular expression /%s/%s: %w", source, flags, err)
	}
	if message != "" {
		return &SyntaxError{Source: source, Flags: flags, Message: message}
	}
	return nil
}

func sandboxMatch(source, flags string, texts []string, a *Allowance) (bool, error) {
	if a.spent() {
		return false, fmt.Errorf("search with /%s/%s: %w: all searches together", source, flags, ErrTimeout)
	}
	var found bool
	began := time.Now()
	err := call(&found, "test", source, flags, texts)
	a.take(time.Since(began))
	if err != nil {
		return false, fmt.Errorf("search with /%s/%s: %w", source, flags, err)
	}
	return found, nil
}

// Allowance is the time that searches in the sandbox may take together, so that many which each keep within their limit do
// not hold up what they are made for. Searches in linear time are free. It serves one goroutine at a time; nil is without
// end.
type Allowance struct{ left time.Duration }

// NewAllowance gives so much time. A search that has begun may overdraw it by its own limit.
func NewAllowance(d time.Duration) *Allowance { return &Allowance{left: d} }

func (a *Allowance) spent() bool { return a != nil && a.left <= 0 }

func (a *Allowance) take(d time.Duration) {
	if a != nil {
		a.left -= d
	}
}

func call(result any, function string, args ...any) error {
	vm := <-vms
	raw, err := callOn(&vm, function, args)
	if err != nil && vm != nil {
		// A machine that was cut short is of no more use; the next caller starts another.
		err = errors.Join(err, vm.Close())
		vm = nil
	}
	vms <- vm
	if err != nil {
		return timeout(err)
	}
	return json.Unmarshal(raw, result)
}

func callOn(vm **script.VM, function string, args []any) (json.RawMessage, error) {
	if *vm == nil {
		fresh, err := start()
		if err != nil {
			return nil, err
		}
		*vm = fresh
	}
	raw := make([]json.RawMessage, len(args))
	for i, a := range args {
		text, err := json.Marshal(a)
		if err != nil {
			return nil, err
		}
		raw[i] = text
	}
	return (*vm).Call(context.Background(), function, raw...)
}

// start makes a machine ready. On a host that is short of processor time even that may run into the time limit, which says
// nothing about the expression: it is tried again a few times.
func start() (*script.VM, error) {
	var failed error
	for range 5 {
		vm, err := script.New(script.Limits{Timeout: searchTime})
		if err != nil {
			failed = err
			continue
		}
		if failed = vm.Run(context.Background(), "regex", program); failed == nil {
			return vm, nil
		}
		failed = errors.Join(failed, vm.Close())
	}
	return nil, fmt.Errorf("start sandbox for regular expressions: %w", failed)
}

// timeout gives a cut search its own name and leaves other errors alone.
func timeout(err error) error {
	var failed *script.Error
	if errors.As(err, &failed) && failed.Kind == script.KindTimeout {
		return fmt.Errorf("%w: more than %v", ErrTimeout, searchTime)
	}
	return err
}
