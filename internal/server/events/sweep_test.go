package events

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOldEventsAreRemovedAndThoseThatNothingActedOnAreCounted(t *testing.T) {
	each(t, func(r *rig) {
		emit := func(name string) {
			_, err := r.emit(Event{Name: name, OrgID: "acme"})
			r.must(err)
		}
		for _, name := range []string{"lost", "done", "dead"} {
			emit(name)
		}
		r.exec("UPDATE kici_events SET processed = TRUE WHERE event_name IN ('done', 'dead')")
		r.exec("UPDATE kici_events SET dlq_at = 1 WHERE event_name = 'dead'")
		r.now += r.room.Settings.TTL.Milliseconds() - 1
		emit("young")
		r.must(r.room.sweepOnce(r.t.Context()))
		if d := cmp.Diff([]string{"lost", "done", "dead", "young"}, r.names()); d != "" {
			r.t.Errorf("a moment too early:\n%s", d)
		}
		r.now++
		r.must(r.room.sweepOnce(r.t.Context()))
		if d := cmp.Diff([]string{"dead", "young"}, r.names()); d != "" {
			r.t.Error(d)
		}
		if d := cmp.Diff(map[string]int{reasonExpired: 1}, r.drops()); d != "" {
			r.t.Error(d)
		}
	})
}

func TestASweepGoesOnUntilNothingIsLeft(t *testing.T) {
	each(t, func(r *rig) {
		const many = 2*sweepBatch + 1
		for i := range many {
			r.exec(`INSERT INTO kici_events (id, event_name, payload, org_id, chain_depth, created_at, expires_at) VALUES ($1, 'x', '{}', 'acme', 0, 0, 1)`, fmt.Sprint(i))
		}
		r.must(r.room.sweepOnce(r.t.Context()))
		if rows := r.rows(); len(rows) > 0 || r.drops()[reasonExpired] != many {
			r.t.Errorf("%d rows left, %v counted", len(rows), r.drops())
		}
	})
}
