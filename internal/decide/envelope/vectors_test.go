package envelope

import (
	"encoding/json"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/vectors"
)

func vectorDelivery(t testing.TB, c vectors.Case) Delivery {
	t.Helper()
	var in struct {
		Provider, Preset, Event string
		Payload                 json.RawMessage
	}
	vectors.Decode(t, c.Input, &in)
	d := Delivery{Kind: in.Provider, Event: in.Event, Payload: in.Payload}
	if in.Preset != "" {
		var ok bool
		if d.Dialect, ok = Preset(in.Preset); !ok {
			t.Fatalf("no preset %q", in.Preset)
		}
	}
	return d
}

func TestVectorsNormalize(t *testing.T) {
	for _, c := range vectors.LoadKind(t, "triggers.json", "normalize") {
		t.Run(c.Name, func(t *testing.T) { normalizeVector(t, c) })
	}
}

func normalizeVector(t *testing.T, c vectors.Case) {
	d := vectorDelivery(t, c)
	n, err := Normalize(d)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{"event": nil, "repo": nil, "ref": n.Ref, "credentials": map[string]any{}}
	if n.Event != nil {
		if string(n.Event.Payload) != string(d.Payload) {
			t.Errorf("payload was touched: %s", n.Event.Payload)
		}
		got["event"] = withoutPayload(t, *n.Event)
	}
	if n.Repo != "" {
		got["repo"] = n.Repo
	}
	if d.Kind == GitHub {
		got["credentials"] = map[string]any{"installationId": n.InstallationID}
	}
	var fields map[string]json.RawMessage
	vectors.Decode(t, c.Expected, &fields)
	if _, ok := fields["defaultBranchPush"]; ok {
		got["defaultBranchPush"] = n.DefaultBranchPush
	}
	if _, ok := fields["changedFiles"]; ok {
		got["changedFiles"] = n.ChangedFiles
	}
	vectors.Same(t, c.Expected, got)
}

func withoutPayload(t *testing.T, ev ci.Event) map[string]any {
	raw, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	vectors.Decode(t, raw, &fields)
	delete(fields, "payload")
	return fields
}

// helper checks the cases of one function by calling it with their arguments.
func helper(t *testing.T, fn string, call func(args arguments) any) {
	for _, c := range vectors.LoadKind(t, "triggers.json", fn) {
		t.Run(c.Name, func(t *testing.T) {
			var in struct{ Args []json.RawMessage }
			vectors.Decode(t, c.Input, &in)
			vectors.Same(t, c.Expected, call(arguments{t, in.Args}))
		})
	}
}

type arguments struct {
	t    *testing.T
	list []json.RawMessage
}

// raw gives an argument; one that is left out is null.
func (a arguments) raw(i int) json.RawMessage {
	if i < len(a.list) {
		return a.list[i]
	}
	return json.RawMessage("null")
}

func (a arguments) text(i int) (s string) { vectors.Decode(a.t, a.raw(i), &s); return s }

func (a arguments) headers(i int) map[string]string {
	headers := map[string]string{}
	vectors.Decode(a.t, a.raw(i), &headers)
	return headers
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func TestVectorsHelpers(t *testing.T) {
	helper(t, "triggerType", func(a arguments) any { return TriggerType(a.text(0)) })
	helper(t, "inboundRepo", func(a arguments) any { return orNull(InboundRepo(a.raw(0))) })
	helper(t, "commitMessage", func(a arguments) any { return orNull(CommitMessage(a.text(0), a.raw(1))) })
	helper(t, "parseBody", func(a arguments) any { return ParseBody(a.text(0), a.text(1)) })
	helper(t, "eventType", func(a arguments) any { return EventType(a.headers(0), a.raw(1), a.text(2), a.text(3)) })
	helper(t, "nested", func(a arguments) any { v, _ := Nested(a.raw(0), a.text(1)); return v })
	helper(t, "stripHeaders", func(a arguments) any {
		var names []string
		vectors.Decode(t, a.raw(1), &names)
		return StripHeaders(a.headers(0), names)
	})
}
