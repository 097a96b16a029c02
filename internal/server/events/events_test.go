package events

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/store"
)

var built = Event{Name: "image.built", Payload: json.RawMessage(`{"tag":"v2"}`), OrgID: "acme",
	Source:      Source{RoutingKey: "github:1", Repo: "a/b", Workflow: "ci", RunID: "r", JobID: "j"},
	TargetRepos: []string{"a/c"}, ChainDepth: 1}

func TestAnEventAndItsWakeUpBelongToTheTransaction(t *testing.T) {
	each(t, func(r *rig) {
		undone := errors.New("undone")
		err := r.db.Write(r.t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := r.room.EmitTx(ctx, tx, built)
			return errors.Join(err, undone)
		})
		if !errors.Is(err, undone) {
			r.t.Fatal(err)
		}
		if r.woken() || len(r.rows()) > 0 {
			r.t.Errorf("an event that was undone is there or woke somebody: %v", r.rows())
		}
		id, err := r.emit(built)
		r.must(err)
		if !r.woken() || id == "" {
			r.t.Errorf("event %q woke nobody", id)
		}
		want := []row{{Name: "image.built", Payload: `{"tag":"v2"}`, Org: "acme", Repo: "a/b", RoutingKey: "github:1", Run: "r", Job: "j",
			Targets: `["a/c"]`, Depth: 1, Limited: true, CreatedAt: r.now, ExpiresAt: r.now + (7 * 24 * time.Hour).Milliseconds()}}
		if d := cmp.Diff(want, r.rows()); d != "" {
			r.t.Error(d)
		}
	})
}

func TestAnEventOfNobodyInParticular(t *testing.T) {
	each(t, func(r *rig) {
		_, err := r.emit(Event{Name: "tick", OrgID: "acme"})
		r.must(err)
		e := r.rows()[0]
		if e.Payload != "{}" || e.Run != "" || e.Job != "" || e.Targets != "" || e.Depth != 0 {
			r.t.Errorf("row %+v", e)
		}
	})
}

func TestEventsThatMustNotBe(t *testing.T) {
	tests := []struct {
		name string
		edit func(e *Event)
		want string
	}{
		{"no name", func(e *Event) { e.Name = "" }, "Event name is empty"},
		{"the server's end of a run", func(e *Event) { e.Name = "__workflow_complete" }, "Event name is reserved"},
		{"the server's prefix", func(e *Event) { e.Name = "kici.anything" }, "Event name is reserved"},
		{"the server's repetition", func(e *Event) { e.Name = "workflow.rerun" }, "Event name is reserved"},
		{"the server's registration", func(e *Event) { e.Name = "registration.updated" }, "Event name is reserved"},
		{"a name without end", func(e *Event) { e.Name = strings.Repeat("é", 129) }, "Event name is longer than 128 characters"},
		{"a name that no database takes", func(e *Event) { e.Name = "a\x00b" }, "Event name is not valid text"},
		{"a list", func(e *Event) { e.Payload = json.RawMessage(`[1]`) }, "Event payload is not a JSON object"},
		{"half an object", func(e *Event) { e.Payload = json.RawMessage(`{"a":`) }, "Event payload is not a JSON object"},
		{"too much", func(e *Event) { e.Payload = json.RawMessage(`{"a":"` + strings.Repeat("x", maxPayload) + `"}`) },
			"Event payload is 262152 bytes, the limit is 262144"},
		{"too many targets", func(e *Event) { e.TargetRepos = make([]string, 101) }, "Event target names 101 repositories, the limit is 100"},
		{"a target without a name", func(e *Event) { e.TargetRepos = []string{"a/b", ""} }, `Event target holds "", which is not the name of a repository`},
		{"too deep", func(e *Event) { e.ChainDepth = 10 }, "Circuit breaker tripped: Event chain depth 10 exceeds maximum 10"},
	}
	each(t, func(r *rig) {
		for _, tt := range tests {
			e := built
			tt.edit(&e)
			_, err := r.emit(e)
			if refusal, ok := errors.AsType[*Refusal](err); !ok || refusal.Error() != tt.want {
				r.t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
			}
		}
		if rows := r.rows(); len(rows) > 0 || r.woken() {
			r.t.Errorf("refused events are there or woke somebody: %v", rows)
		}
	})
}

func TestNamesNearTheReservedOnesArePeoples(t *testing.T) {
	for _, name := range []string{"_one", "kici", "kicix", "KICI.x", "workflow.rerun.done", "a.__b", "workflow_complete"} {
		e := built
		e.Name = name
		if err := e.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzCheck requires that what is accepted can be stored, is nobody else's, and can be read again.
func FuzzCheck(f *testing.F) {
	f.Add("image.built", []byte(`{"tag":"v2"}`), "a/b")
	f.Add("__x", []byte(`[]`), "")
	f.Add("\xff\x00", []byte(" {\"a\":1} x"), "é")
	f.Fuzz(func(t *testing.T, name string, payload []byte, repo string) {
		e := Event{Name: name, Payload: payload, TargetRepos: []string{repo}}
		if e.check() != nil {
			return
		}
		if strings.HasPrefix(name, "__") || strings.HasPrefix(name, "kici.") || name == "" || strings.ContainsRune(name, 0) || repo == "" {
			t.Errorf("accepted name %q for %q", name, repo)
		}
		var object map[string]any
		if err := json.Unmarshal(payload, &object); len(payload) > 0 && err != nil {
			t.Errorf("accepted payload %q: %v", payload, err)
		}
	})
}
