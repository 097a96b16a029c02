package script

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/vectors"
)

func TestVectorsInline(t *testing.T) {
	inlineVectors(t, "string", func(expression string, event json.RawMessage) (any, error) {
		return InlineString(t.Context(), expression, event)
	})
	inlineVectors(t, "record", func(expression string, event json.RawMessage) (any, error) {
		r, err := InlineRecord(t.Context(), expression, event)
		return object(t, r), err
	})
}

func inlineVectors(t *testing.T, kind string, evaluate func(expression string, event json.RawMessage) (any, error)) {
	for _, c := range vectors.LoadKind(t, "inline-eval.json", kind) {
		t.Run(c.Name, func(t *testing.T) {
			var in struct {
				Expression string
				Event      json.RawMessage
			}
			var want struct {
				Value json.RawMessage
				Error struct {
					Kind          Kind
					MessagePrefix string
				}
			}
			must(t, json.Unmarshal(c.Input, &in))
			must(t, json.Unmarshal(c.Expected, &want))
			got, err := evaluate(in.Expression, in.Event)
			if kindOf(err) != want.Error.Kind || err != nil && want.Error.Kind == "" {
				t.Fatalf("got %v (%s), want kind %q", err, kindOf(err), want.Error.Kind)
			}
			if err != nil {
				if !strings.HasPrefix(err.Error(), want.Error.MessagePrefix) {
					t.Errorf("got %v, want %s…", err, want.Error.MessagePrefix)
				}
				return
			}
			if diff := cmp.Diff(compact(t, want.Value), compact(t, got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// object writes a record as JSON, so that the order of keys is compared, too.
func object(t *testing.T, r Record) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, p := range r {
		if i > 0 {
			b.WriteByte(',')
		}
		k, _ := json.Marshal(p.Key)
		v, err := json.Marshal(p.Value)
		must(t, err)
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func compact(t *testing.T, v any) string {
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}

func TestInlineMessages(t *testing.T) {
	tests := []struct{ record, name, expression, want string }{
		{"", "number", "() => 3", "Inline expression must return a string, got number: () => 3"},
		{"", "null", "() => null", "Inline expression must return a string, got object: () => null"},
		{"", "list", "() => []", "Inline expression must return a string, got object: () => []"},
		{"", "promise", "async () => 'x'", "Inline expression must return a string, got object: async () => 'x'"},
		{"", "string object", "() => new String('x')", "Inline expression must return a string, got object: () => new String('x')"},
		{"", "loop", "() => { while (true) {} }", "Script execution timed out after 100ms"},
		{"record", "null", "() => null", "Inline expression must return an object, got null: () => null"},
		{"record", "list", "() => ['a']", "Inline expression must return an object, got object: () => ['a']"},
		{"record", "function", "() => () => 1", "Inline expression must return an object, got function: () => () => 1"},
		{"record", "value", "() => ({ a: '1', b: { c: 1 } })", `Inline expression must return an object of strings, got object for key "b": () => ({ a: '1', b: { c: 1 } })`},
	}
	for _, tt := range tests {
		t.Run(tt.record+tt.name, func(t *testing.T) {
			var err error
			if tt.record != "" {
				_, err = InlineRecord(t.Context(), tt.expression, json.RawMessage("{}"))
			} else {
				_, err = InlineString(t.Context(), tt.expression, json.RawMessage("{}"))
			}
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestInlineRecordConvertsScalars(t *testing.T) {
	got, err := InlineRecord(t.Context(), "() => ({ z: 1.5, a: true, 7: 'seven', e: '' })", nil)
	must(t, err)
	want := Record{{"7", "seven"}, {"z", "1.5"}, {"a", "true"}, {"e", ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestInlineExpressionsReachNothing(t *testing.T) {
	for _, name := range []string{"process", "require", "module", "Buffer", "setTimeout", "setInterval", "fetch", "URL",
		"structuredClone", "console", "print", "std", "os", "WebAssembly", "scriptArgs", "__kiciNative"} {
		got, err := InlineString(t.Context(), "() => typeof globalThis['"+name+"'] + typeof Function('return typeof "+name+"')()", nil)
		must(t, err)
		if want := "undefinedstring"; got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, err := InlineString(t.Context(), `(e) => e.constructor.constructor("return process")()`, json.RawMessage("{}")); kindOf(err) != KindThrew {
		t.Errorf("got %v", err)
	}
}

func TestInlineExpressionsDoNotMeet(t *testing.T) {
	event := json.RawMessage(`{"targetBranch":"main"}`)
	_, err := InlineString(t.Context(), `(e) => { e.targetBranch = "x"; Object.prototype.leak = "y"; globalThis.leak = "z"; return "" }`, event)
	must(t, err)
	got, err := InlineString(t.Context(), `(e) => e.targetBranch + typeof leak + typeof e.leak`, event)
	must(t, err)
	if got != "mainundefinedundefined" {
		t.Error(got)
	}
}

func TestInlineHugeEventIsRefusedOrHandled(t *testing.T) {
	event := json.RawMessage(`{"payload":"` + strings.Repeat("x", 25<<20) + `"}`)
	if _, err := InlineString(t.Context(), "(e) => 'ok'", event); err != nil && kindOf(err) != KindThrew {
		t.Errorf("got %v", err)
	}
	deep := json.RawMessage(strings.Repeat(`{"a":`, 1e5) + "1" + strings.Repeat("}", 1e5))
	if _, err := InlineString(t.Context(), "(e) => 'ok'", deep); err != nil && kindOf(err) != KindThrew {
		t.Errorf("got %v", err)
	}
}

func FuzzInline(f *testing.F) {
	for _, kind := range []string{"string", "record"} {
		for _, c := range vectors.LoadKind(f, "inline-eval.json", kind) {
			var in struct {
				Expression string
				Event      json.RawMessage
			}
			must(f, json.Unmarshal(c.Input, &in))
			f.Add(in.Expression, string(in.Event))
		}
	}
	f.Add("(e) => e.x", `{"x":"y"}`)
	f.Add("(e) => ({ [e.x]: 1 })", `{"x":"y"}`)
	f.Fuzz(func(t *testing.T, expression, event string) {
		text, err := InlineString(t.Context(), expression, json.RawMessage(event))
		if err != nil && (text != "" || kindOf(err) == "") {
			t.Errorf("%q with %v", text, err)
		}
		record, err := InlineRecord(t.Context(), expression, json.RawMessage(event))
		if err != nil && (record != nil || kindOf(err) == "") {
			t.Errorf("%q with %v", record, err)
		}
	})
}
