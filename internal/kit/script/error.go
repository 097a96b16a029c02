package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"modernc.org/quickjs"
)

// Kind says how a script failed, so that callers need not read messages.
type Kind string

const (
	KindThrew     Kind = "threw"         // the script threw, or rejected the promise it returned
	KindSyntax    Kind = "syntax"        // the source does not parse; Message holds line and column
	KindTimeout   Kind = "timeout"       // one turn ran longer than Limits.Timeout
	KindMemory    Kind = "memory"        // the script asked for more than Limits.MemoryBytes
	KindTooLarge  Kind = "too_large"     // the JSON of the result is longer than Limits.ResultBytes
	KindStalled   Kind = "stalled"       // the returned promise waits for something that nobody will do
	KindNotString Kind = "not_a_string"  // an inline expression gave something other than a string
	KindNotObject Kind = "not_an_object" // an inline expression gave something other than a record of scalars
)

// Error is the failure of a script. Message is the thrown error's message without its name; Stack is the engine's
// trace, one "    at …" line per frame, or empty.
type Error struct {
	Kind    Kind
	Name    string // "TypeError", or "" when something other than an Error was thrown
	Message string
	Stack   string
}

func (e *Error) Error() string { return e.Message }

// thrown is how boot.js describes what a call rejected with.
type thrown struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	Stack   string `json:"stack"`
}

// classify turns the engine's error into ours. A script can imitate the engine's own errors by throwing the same words,
// which changes nothing but the kind under which its failure is reported.
func (v *VM) classify(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		v.broken = fmt.Errorf("script stopped: %w", cause)
		return v.broken
	}
	var js *quickjs.Error
	if !errors.As(err, &js) {
		return &Error{Kind: KindThrew, Message: err.Error()}
	}
	t := thrown{Name: js.Name, Message: js.Message, Stack: js.Stack}
	if js.Message == "" {
		t.Message = js.Error()
	}
	if js.Name == "SyntaxError" && js.LineNumber > 0 {
		t.Message = fmt.Sprintf("%s (%s:%d:%d)", js.Message, js.FileName, js.LineNumber, js.ColumnNumber)
	}
	return v.failure(t)
}

// failure gives a described exception its kind. The engine's interrupt and its want of memory arrive as InternalErrors;
// when there is not even room for that error, it throws null.
func (v *VM) failure(t thrown) error {
	e := &Error{Kind: KindThrew, Name: t.Name, Message: t.Message, Stack: t.Stack}
	switch {
	case t.Name == "InternalError" && t.Message == "interrupted":
		e.Kind = KindTimeout
		e.Message = fmt.Sprintf("Script execution timed out after %dms", v.limits.Timeout.Milliseconds())
		v.broken = e
	case t.Name == "InternalError" && t.Message == "out of memory", t.Name == "" && t.Message == "null" && v.limits.MemoryBytes > 0:
		e.Kind = KindMemory
		e.Message = fmt.Sprintf("Script ran out of memory (limit %d bytes)", v.limits.MemoryBytes)
	case t.Name == "SyntaxError":
		e.Kind = KindSyntax
	}
	return e
}

// rejected decodes what boot.js says about a failed call.
func (v *VM) rejected(description string) error {
	var t thrown
	if err := json.Unmarshal([]byte(description), &t); err != nil {
		return &Error{Kind: KindThrew, Message: "the script failed without a readable error"}
	}
	return v.failure(t)
}
