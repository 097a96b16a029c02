package events

import (
	"fmt"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/decide/plan"
	"kici/internal/server/store/storetest"
)

// BenchmarkTrivialRun is all that the engine, the queue and this room do for a run of one job of one step.
func BenchmarkTrivialRun(b *testing.B) {
	for _, told := range []bool{false, true} {
		b.Run(fmt.Sprintf("events %v", told), func(b *testing.B) {
			r := newRig(b, storetest.SQLite(b))
			if !told {
				r.e = newEngine(r, nil)
			}
			for i := 0; b.Loop(); i++ {
				run := fmt.Sprint("run-", i)
				r.must(r.e.Register(b.Context(), registration(run, plan.Job{Name: "one"})))
				r.run(run, "one", ci.JobSuccess, `{"stepResults":[{"name":"go","status":"success","durationMs":1}]}`)
			}
		})
	}
}
