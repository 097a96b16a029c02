package events

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/server/engine"
)

func TestAJobEmits(t *testing.T) {
	each(t, func(r *rig) {
		reg := registration("r1", plan.Job{Name: "one"})
		reg.ChainDepth = 4
		r.must(r.e.Register(r.t.Context(), reg))
		answer, err := r.room.Emit(r.t.Context(), engine.Owned{RunID: "r1", JobID: "r1/one"}, wire.EventEmit{JobID: "r1/one", RequestID: "q",
			EventName: "image.built", Payload: json.RawMessage(`{"tag":"v2"}`), Target: &wire.EventTarget{Repos: []string{"a/c", "a/d"}}})
		r.must(err)
		var id string
		r.must(r.db.Read().QueryRowContext(r.t.Context(), "SELECT id FROM kici_events").Scan(&id))
		if answer.DeliveryID != id || answer.Error != "" {
			r.t.Errorf("answer %+v, want the id %s", answer, id)
		}
		got := r.rows()
		want := []row{{Name: "image.built", Payload: `{"tag":"v2"}`, Org: "acme", Repo: "a/b", RoutingKey: "github:1", Run: "r1", Job: "r1/one",
			Targets: `["a/c","a/d"]`, Depth: 5, Limited: true, CreatedAt: r.now, ExpiresAt: got[0].ExpiresAt}}
		if d := cmp.Diff(want, got); d != "" {
			r.t.Error(d)
		}
	})
}

func TestAJobIsToldWhyItsEventWasNotTaken(t *testing.T) {
	each(t, func(r *rig) {
		r.must(r.e.Register(r.t.Context(), registration("r1", plan.Job{Name: "one"})))
		job := engine.Owned{RunID: "r1", JobID: "r1/one"}
		ask := func(job engine.Owned, name string) string {
			answer, err := r.room.Emit(r.t.Context(), job, wire.EventEmit{EventName: name})
			r.must(err)
			if (answer.DeliveryID == "") != (answer.Error != "") {
				r.t.Errorf("answer %+v", answer)
			}
			return answer.Error
		}
		for range 3 {
			if e := ask(job, "tick"); e != "" {
				r.t.Error(e)
			}
		}
		got := []string{ask(job, "tick"), ask(job, "__job_complete"), ask(engine.Owned{RunID: "gone", JobID: "x"}, "tick")}
		want := []string{"Rate limit exceeded for event 'tick'. Retry after 60000ms", "Event name is reserved", "Unknown job context"}
		if d := cmp.Diff(want, got); d != "" {
			r.t.Error(d)
		}
		if d := cmp.Diff(map[string]int{reasonRateLimit: 1}, r.drops()); d != "" {
			r.t.Error(d)
		}
	})
}

func TestTroubleOfTheStoreIsNoRefusal(t *testing.T) {
	each(t, func(r *rig) {
		r.must(r.e.Register(r.t.Context(), registration("r1", plan.Job{Name: "one"})))
		ctx, cancel := context.WithCancel(r.t.Context())
		cancel()
		answer, err := r.room.Emit(ctx, engine.Owned{RunID: "r1", JobID: "r1/one"}, wire.EventEmit{EventName: "tick"})
		if err == nil || answer.Error != "" {
			r.t.Errorf("answer %+v, error %v", answer, err)
		}
	})
}
