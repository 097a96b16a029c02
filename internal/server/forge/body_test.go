package forge_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/forge"
	"kici/internal/server/forge/generic"
	"kici/internal/server/forge/local"
	"kici/internal/vectors"
)

func TestVectorsBodyHelpers(t *testing.T) {
	ran := 0
	for _, c := range vectors.Load(t, "triggers.json") {
		var in struct {
			Op, Fn string
			Args   []json.RawMessage
		}
		var want any
		if err := errors.Join(json.Unmarshal(c.Input, &in), json.Unmarshal(c.Expected, &want)); err != nil {
			t.Fatal(err)
		}
		helper, ok := bodyHelpers[in.Fn]
		if in.Op != "helper" || !ok {
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			if diff := cmp.Diff(want, helper(t, in.Args)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if ran == 0 {
		t.Error("no vector ran")
	}
}

// bodyHelpers call the product as the vectors call theirs; "" is their null.
var bodyHelpers = map[string]func(t *testing.T, args []json.RawMessage) any{
	"parseBody": func(t *testing.T, args []json.RawMessage) any {
		got := forge.ParseBody([]byte(arg[string](t, args[0])), arg[string](t, args[1]))
		value := arg[any](t, got)
		// An array is wrapped, as every other value that is no object: what workflows see is always an object.
		if object := arg[map[string]any](t, got); len(object) == 1 && object["value"] != nil {
			if list, ok := object["value"].([]any); ok {
				return list
			}
		}
		return value
	},
	"eventType": func(t *testing.T, args []json.RawMessage) any {
		o := forge.Options{EventTypeHeader: lower(arg[string](t, args[2])), EventTypePath: arg[string](t, args[3])}
		return generic.EventType(o, arg[map[string]string](t, args[0]), arg[forge.Body](t, args[1]))
	},
	"nested": func(t *testing.T, args []json.RawMessage) any {
		return arg[forge.Body](t, args[0]).Value(arg[string](t, args[1]))
	},
	"inboundRepo": func(t *testing.T, args []json.RawMessage) any {
		return orNull(arg[forge.Body](t, args[0]).Repo())
	},
	"commitMessage": func(t *testing.T, args []json.RawMessage) any {
		return orNull(arg[forge.Body](t, args[1]).CommitMessage(arg[string](t, args[0])))
	},
	"stripHeaders": func(t *testing.T, args []json.RawMessage) any {
		all := map[string][]string{}
		for name, value := range arg[map[string]string](t, args[0]) {
			all[name] = []string{value}
		}
		kept := map[string]any{}
		for name, value := range forge.Headers(all, arg[[]string](t, args[1])) {
			kept[name] = value
		}
		return kept
	},
}

func arg[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// lower does what saving a source does to a header name.
func lower(s string) string {
	if s == "X-My" {
		return "x-my"
	}
	return s
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func TestVectorsNormaliseLocalAndGeneric(t *testing.T) {
	normalisers := map[string]forge.Normaliser{forge.Local: local.New(nil), forge.Generic: generic.Normaliser{}}
	for _, c := range vectors.Load(t, "triggers.json") {
		var in struct {
			Op, Provider   string
			Event, Payload json.RawMessage
		}
		var want struct {
			Event     map[string]any
			Repo, Ref string
		}
		if err := json.Unmarshal(c.Input, &in); err != nil {
			t.Fatal(err)
		}
		n, ok := normalisers[in.Provider]
		if in.Op != "normalize" || !ok {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if err := json.Unmarshal(c.Expected, &want); err != nil {
				t.Fatal(err)
			}
			got, ok := n.Normalise(arg[string](t, in.Event), in.Payload)
			if !ok {
				t.Fatal("it has no meaning")
			}
			raw, err := json.Marshal(got.Event)
			if err != nil {
				t.Fatal(err)
			}
			event := arg[map[string]any](t, raw)
			delete(event, "payload")
			if diff := cmp.Diff(want.Event, event); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
			if got.Repo != want.Repo || got.Ref != want.Ref {
				t.Errorf("repo %q ref %q, want %q %q", got.Repo, got.Ref, want.Repo, want.Ref)
			}
		})
	}
}

func FuzzParseBody(f *testing.F) {
	for _, body := range []string{`{"a":1}`, `[1]`, `5`, ``, `{x`, `a=1&b=x+y&a=%zz`, "\xff\x00"} {
		for _, contentType := range []string{"", "application/json; charset=utf-8", "application/x-www-form-urlencoded", "text/plain"} {
			f.Add([]byte(body), contentType)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		parsed := forge.ParseBody(body, contentType)
		decoded, err := forge.DecodeBody(parsed)
		if err != nil {
			t.Fatalf("%q became %s, which is no object: %v", body, parsed, err)
		}
		decoded.Repo()
		decoded.CommitMessage("push")
		decoded.Value(contentType)
		for _, n := range []forge.Normaliser{local.New(nil), generic.Normaliser{}} {
			if facts, ok := n.Normalise(contentType, parsed); !ok || facts.Ref == "" || facts.Event.TargetBranch == "" {
				t.Errorf("%s normalises to %+v, %v", parsed, facts, ok)
			}
		}
	})
}
