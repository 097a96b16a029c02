package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"modernc.org/quickjs"
)

// Pair is one entry of a Record.
type Pair struct{ Key, Value string }

// Record is what a record expression gave, in the object's own key order (integer-like keys first).
type Record []Pair

// InlineString evaluates `(expression)(event)` in a fresh VM with the default limits and gives the string it returns.
// There are no conversions and promises are not awaited. Errors are *Error of kind KindTimeout, KindNotString or
// KindThrew, the last for whatever else went wrong, too.
func InlineString(ctx context.Context, expression string, event json.RawMessage) (string, error) {
	var out string
	err := inline(ctx, expression, event, func(e *evaluation) error {
		got, err := e.shape()
		if err != nil {
			return err
		}
		if got.Type == "null" {
			got.Type = "object"
		}
		if got.Type != "string" {
			return notA(KindNotString, "a string", got.Type, expression)
		}
		out = got.Text
		return nil
	})
	return out, err
}

// InlineRecord is InlineString for an expression that returns an object of strings. Numbers and booleans become text;
// any other value is an error of kind KindNotObject that names its key.
func InlineRecord(ctx context.Context, expression string, event json.RawMessage) (Record, error) {
	var out Record
	err := inline(ctx, expression, event, func(e *evaluation) error {
		got, err := e.shape()
		if err != nil {
			return err
		}
		if got.Type != "object" || got.Entries == nil {
			return notA(KindNotObject, "an object", got.Type, expression)
		}
		out = Record{}
		for _, entry := range got.Entries {
			if entry[1] != "" {
				return &Error{Kind: KindNotObject, Message: fmt.Sprintf(
					"Inline expression must return an object of strings, got %s for key %q: %s", entry[1], entry[0], expression)}
			}
			out = append(out, Pair{Key: entry[0], Value: entry[2]})
		}
		return nil
	})
	return out, err
}

// notA is the error of a result of the wrong type; the texts are known to those who search logs for them.
func notA(kind Kind, want, got, expression string) error {
	return &Error{Kind: kind, Message: fmt.Sprintf("Inline expression must return %s, got %s: %s", want, got, expression)}
}

// describeSource gives a function that says what a value is as JSON: its type, a string's text, or an object's entries
// as [key, type of a value that is not a scalar, text]. It is made before the expression runs and keeps the built-ins
// it needs, since the expression may replace them.
const describeSource = `(() => {
  const stringify = JSON.stringify, parse = JSON.parse, keys = Object.keys, isArray = Array.isArray, text = String;
  const scalar = (v) => typeof v === "string" || typeof v === "number" || typeof v === "boolean";
  return [parse, (v) => {
    let type = v === null ? "null" : typeof v;
    if (type === "string") return '{"type":"string","text":' + stringify(v) + "}";
    if (type !== "object" || isArray(v)) return '{"type":' + stringify(isArray(v) ? "object" : type) + "}";
    let entries = "", n = 0;
    for (const k of keys(v)) {
      const x = v[k];
      const entry = "[" + stringify(k) + "," + (scalar(x) ? '"",' + stringify(text(x)) : stringify(x === null ? "null" : typeof x) + ',""') + "]";
      entries += n++ === 0 ? entry : "," + entry;
    }
    return '{"type":"object","entries":[' + entries + "]}";
  }];
})()`

// shape is what describeSource says. Entries is nil for everything but a plain record.
type shape struct {
	Type    string      `json:"type"`
	Text    string      `json:"text"`
	Entries [][3]string `json:"entries"`
}

// evaluation is the result of one expression, still inside its VM.
type evaluation struct {
	vm       *VM
	ctx      context.Context
	describe quickjs.Value
	result   quickjs.Value
}

// inline evaluates the expression and hands its result to use. Everything lives and dies with this call: the event is a
// fresh copy, and no expression meets what another one left.
func inline(ctx context.Context, expression string, event json.RawMessage, use func(*evaluation) error) error {
	js, limits, err := newEngine(Limits{})
	if err != nil {
		return err
	}
	v := &VM{limits: limits, js: js}
	defer js.Close()
	defer v.interruptWith(ctx)()
	return threw(v.inline(ctx, expression, event, use))
}

func (v *VM) inline(ctx context.Context, expression string, event json.RawMessage, use func(*evaluation) error) error {
	tools, err := v.js.EvalValue(describeSource, quickjs.EvalGlobal)
	if err != nil {
		return v.classify(ctx, err)
	}
	defer tools.Free()
	parse, err := v.member(tools, "0")
	if err != nil {
		return v.classify(ctx, err)
	}
	defer parse.Free()
	describe, err := v.member(tools, "1")
	if err != nil {
		return v.classify(ctx, err)
	}
	defer describe.Free()
	if err := v.setEvent(parse, event); err != nil {
		return v.classify(ctx, err)
	}
	// A line end before the bracket keeps an expression that ends in a comment whole.
	result, err := v.js.EvalValue("("+expression+"\n)(event)", quickjs.EvalGlobal)
	if err != nil {
		return v.classify(ctx, err)
	}
	defer result.Free()
	return use(&evaluation{vm: v, ctx: ctx, describe: describe, result: result})
}

// member reads a property of an object of ours.
func (v *VM) member(of quickjs.Value, name string) (quickjs.Value, error) {
	atom, err := v.js.NewAtom(name)
	if err != nil {
		return quickjs.Value{}, err
	}
	return of.GetPropertyValue(atom)
}

// setEvent makes the event a global: an expression without a parameter may use it by name.
func (v *VM) setEvent(parse quickjs.Value, event json.RawMessage) error {
	if len(event) == 0 {
		event = json.RawMessage("null")
	}
	text, err := v.js.NewString(string(event)) // apart from the call, since here a want of memory is an error
	if err != nil {
		return err
	}
	defer text.Free()
	value, err := parse.CallValue(quickjs.UndefinedValue, text)
	if err != nil {
		return err
	}
	defer value.Free()
	atom, err := v.js.NewAtom("event")
	if err != nil {
		return err
	}
	global := v.js.GlobalObject()
	defer global.Free()
	return v.js.SetPropertyValue(global, atom, value)
}

// shape asks the VM what the result is. The answer comes as JSON that describeSource wrote, whatever the expression
// has done to the built-ins.
func (e *evaluation) shape() (shape, error) {
	r, err := e.describe.CallValue(quickjs.UndefinedValue, e.result)
	if err != nil {
		return shape{}, e.vm.classify(e.ctx, err)
	}
	defer r.Free()
	text, err := r.Any()
	if err != nil {
		return shape{}, e.vm.classify(e.ctx, err)
	}
	s, _ := text.(string)
	if len(s) > e.vm.limits.ResultBytes {
		return shape{}, &Error{Kind: KindTooLarge, Message: fmt.Sprintf("Inline expression result is over the limit of %d bytes", e.vm.limits.ResultBytes)}
	}
	var out shape
	if err := json.NewDecoder(strings.NewReader(s)).Decode(&out); err != nil {
		return shape{}, &Error{Kind: KindThrew, Message: "Inline expression result cannot be read"}
	}
	return out, nil
}

// threw folds the kinds that an inline expression's caller does not tell apart into KindThrew.
func threw(err error) error {
	var e *Error
	if errors.As(err, &e) && (e.Kind == KindSyntax || e.Kind == KindMemory || e.Kind == KindTooLarge) {
		return &Error{Kind: KindThrew, Name: e.Name, Message: e.Message, Stack: e.Stack}
	}
	return err
}
