package live

import (
	"context"
	"slices"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// TestLinesOfAJobThatMovedAreLeftToItsLog brings a job here from another node, which has the first lines of its log.
func TestLinesOfAJobThatMovedAreLeftToItsLog(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStage(t, db)
		v := s.watch("")
		var a audience
		m, id := next(t, v)
		a.see(t, m, id)
		s.start("build")
		must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			_, err := queue.Reclaim(ctx, tx, "build", "here", now)
			return err
		}))
		s.step("build", ci.StepRunning)
		s.write("build", "the first here, not of the step")
		s.step("build", ci.StepSuccess)
		s.report("build", ci.JobSuccess)
		s.start("test")
		s.step("test", ci.StepRunning)
		s.write("test", "one", "two")
		s.step("test", ci.StepSuccess)
		s.report("test", ci.JobSuccess)
		for !a.ended {
			m, id := next(t, v)
			a.see(t, m, id)
		}
		if len(a.lines["build"]) != 0 || !slices.Equal(a.lines["test"], []string{"one", "two"}) {
			t.Errorf("lines %q", a.lines)
		}
	})
}
