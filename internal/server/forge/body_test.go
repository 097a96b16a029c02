package forge_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/forge"
	"kici/internal/server/forge/generic"
	"kici/internal/server/forge/local"
	"kici/internal/vectors"
)

func TestBodyIsAlwaysAnObject(t *testing.T) {
	for _, tt := range []struct{ body, contentType, want string }{
		{"[1, 2]", "application/json", `{"value":[1, 2]}`},
		{" 5", "", `{"value": 5}`},
		{"{\"a\": \"\xff\"}", "", `{"a": "\uFFFD"}`},
		{"a\x00\xff", "text/plain", `{"body":"a\u0000\uFFFD"}`},
	} {
		got, want := arg[any](t, forge.ParseBody([]byte(tt.body), tt.contentType)), arg[any](t, json.RawMessage(tt.want))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.body, diff)
		}
	}
	for _, body := range []string{"", "[]", "5", "null", "{", "{} x"} {
		if got, ok := forge.ParseJSON([]byte(body)); ok {
			t.Errorf("%q was taken for an object: %s", body, got)
		}
	}
}

func TestHeadersAreStripped(t *testing.T) {
	got := forge.Stripped(forge.Headers(map[string][]string{"Authorization": {"x"}, "X-A": {"1", "2\xff"}, "Content-Type": {"text/plain"}}),
		[]string{"authorization", "content-type"})
	if diff := cmp.Diff(map[string]string{"x-a": "1, 2\uFFFD", "content-type": "text/plain"}, got); diff != "" {
		t.Error(diff)
	}
}

func arg[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
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

func TestALocalPushIsCheckedOutWhereItWasMatched(t *testing.T) {
	payload := json.RawMessage(`{"ref":"refs/heads/main","Ref":"refs/heads/other","sender":{"login":7},"repository":{"full_name":"a/b"},
		"head_commit":{"message":"one\ntwo"}}`)
	got, ok := local.New(nil).Normalise("push", payload)
	if !ok || got.Event.TargetBranch != "main" || got.CheckoutRef != "main" || got.Branch != "main" || got.Ref != "refs/heads/main" {
		t.Errorf("%+v, %v", got, ok)
	}
	if got.CommitMessage != "one" || got.Sender != "" || got.Repo != "a/b" {
		t.Errorf("%+v", got)
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
		var decoded map[string]any
		if err := json.Unmarshal(parsed, &decoded); err != nil || decoded == nil {
			t.Fatalf("%q became %s, which is no object: %v", body, parsed, err)
		}
		for _, n := range []forge.Normaliser{local.New(nil), generic.Normaliser{}} {
			if facts, ok := n.Normalise(contentType, parsed); !ok || facts.Ref == "" || facts.Event.TargetBranch == "" {
				t.Errorf("%s normalises to %+v, %v", parsed, facts, ok)
			}
		}
	})
}
