package events

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/server/engine"
	"kici/internal/server/store/storetest"
)

// TestNoMinuteHoldsMoreThanTheLimit emits at arbitrary moments and requires what a sliding minute promises: never more
// than the limit in any minute, no refusal while there is room, and room after exactly the time that a refusal names.
func TestNoMinuteHoldsMoreThanTheLimit(t *testing.T) {
	r := newRig(t, storetest.SQLite(t))
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		r.room.breaker.perMinute = rapid.IntRange(1, 4).Draw(t, "limit")
		e := Event{Name: fmt.Sprint("event-", round), OrgID: "acme"}
		var taken []int64
		within := func(now int64) (n int) {
			for _, at := range taken {
				if at > now-60_000 {
					n++
				}
			}
			return n
		}
		try := func() error {
			_, err := r.emit(e)
			full := within(r.now) >= r.room.breaker.perMinute
			if (err != nil) != full {
				t.Fatalf("at %d with %v: %v", r.now, taken, err)
			}
			if err == nil {
				taken = append(taken, r.now)
			}
			return err
		}
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			r.now += rapid.Int64Range(0, 40_000).Draw(t, "pause")
			err := try()
			if err == nil || rapid.Bool().Draw(t, "go on") {
				continue
			}
			var name string
			var wait int64
			if _, scan := fmt.Sscanf(err.Error(), "Rate limit exceeded for event '%s Retry after %dms", &name, &wait); scan != nil {
				t.Fatalf("%q: %v", err, scan)
			}
			r.now += wait - 1
			if try() == nil {
				t.Fatalf("there was room before the %d ms of %v", wait, err)
			}
			r.now++
			if err := try(); err != nil {
				t.Fatalf("no room after %d ms: %v", wait, err)
			}
		}
	})
}

func TestWhatIsCountedTogether(t *testing.T) {
	each(t, func(r *rig) {
		for range 3 {
			_, err := r.emit(built)
			r.must(err)
		}
		_, err := r.emit(built)
		refusal, ok := errors.AsType[*Refusal](err)
		if !ok || refusal.Error() != "Rate limit exceeded for event 'image.built'. Retry after 60000ms" {
			r.t.Errorf("the fourth: %v", err)
		}
		for name, edit := range map[string]func(e *Event){
			"another event":        func(e *Event) { e.Name = "image.pushed" },
			"another workflow":     func(e *Event) { e.Source.Workflow = "release" },
			"another repository":   func(e *Event) { e.Source.Repo = "a/c" },
			"another source":       func(e *Event) { e.Source.RoutingKey = "github:2" },
			"another organisation": func(e *Event) { e.OrgID = "other" },
		} {
			e := built
			edit(&e)
			if _, err := r.emit(e); err != nil {
				r.t.Errorf("%s: %v", name, err)
			}
		}
		e := built
		e.Source.RunID, e.Source.JobID = "another run", "another job"
		if _, err := r.emit(e); err == nil {
			r.t.Error("another run of the workflow is counted by itself")
		}
	})
}

// TestAChainEndsAtItsDepth follows a workflow that is started by its own event.
func TestAChainEndsAtItsDepth(t *testing.T) {
	each(t, func(r *rig) {
		reg := registration("r", plan.Job{Name: "one"})
		for reg.ChainDepth = 0; ; reg.ChainDepth++ { // the run that the event of the last one starts
			reg.RunID = fmt.Sprint("r", reg.ChainDepth)
			reg.Plan.Jobs[0].ID = reg.RunID + "/one"
			r.must(r.e.Register(r.t.Context(), reg))
			answer, err := r.room.Emit(r.t.Context(), engine.Owned{RunID: reg.RunID, JobID: reg.Plan.Jobs[0].ID}, wire.EventEmit{EventName: "again"})
			r.must(err)
			r.run(reg.RunID, "one", "success", "")
			if answer.Error != "" {
				if answer.Error != "Circuit breaker tripped: Event chain depth 10 exceeds maximum 10" {
					r.t.Error(answer.Error)
				}
				break
			}
			r.now += 60_000 // so that the rate does not end it
		}
		deepest := map[string]int{}
		for _, e := range r.rows() {
			deepest[e.Name] = max(deepest[e.Name], e.Depth)
		}
		if d := cmp.Diff(map[string]int{"again": 9, jobComplete: 9, workflowComplete: 9}, deepest); d != "" {
			r.t.Error(d)
		}
		// The run at the end of the chain ended all the same, and its two ends were left out.
		if d := cmp.Diff(map[string]int{reasonChainDepth: 3}, r.drops()); d != "" {
			r.t.Error(d)
		}
		var status string
		r.must(r.db.Read().QueryRowContext(r.t.Context(), "SELECT status FROM execution_runs WHERE run_id = 'r9'").Scan(&status))
		if status != "success" {
			r.t.Errorf("the last run is %s", status)
		}
	})
}
