package live

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/logs"
	"kici/internal/server/logs/joined"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// otherNode opens the logs that another node has.
func otherNode(t *testing.T) *logs.Store {
	t.Helper()
	s, err := logs.Open(t.Context(), logs.Options{Root: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func writeTo(t *testing.T, s *logs.Store, id string, lines ...string) {
	t.Helper()
	must(t, s.Append(t.Context(), logs.Chunk{RunID: "r", JobID: "build", JobName: "build", MessageID: id, At: now, Lines: lines}))
}

// elsewhere has the log of the job build, and leaves all others here.
func (s *stage) elsewhere(log Logs) {
	s.logOf = func(_ context.Context, step Step, caller string) (Place, error) {
		if caller != "Bearer viewer" {
			s.t.Errorf("the log of %+v is read in the name of %q", step, caller)
		}
		if step.JobID == "build" {
			return Place{Log: log, Away: true}, nil
		}
		return Place{Log: s.logs}, nil
	}
}

// TestLinesOfAJobAtAnotherNodeComeAsTheyAreWritten looks at a job whose agent is connected elsewhere. Nothing wakes the feed.
func TestLinesOfAJobAtAnotherNodeComeAsTheyAreWritten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, there := newStage(t, db), otherNode(t)
		s.elsewhere(there)
		s.start("build")
		s.step("build", ci.StepRunning)
		writeTo(t, there, "a", "before anybody looked")
		v := s.watch("")
		var a audience
		m, id := next(t, v)
		a.see(t, m, id)
		for i := range 3 {
			writeTo(t, there, fmt.Sprint(i), fmt.Sprint("line ", i))
			for len(a.lines["build"]) <= i {
				m, id := next(t, v)
				a.see(t, m, id)
			}
		}
		writeTo(t, there, "z", "the last")
		s.step("build", ci.StepSuccess)
		s.report("build", ci.JobSuccess)
		s.start("test")
		s.step("test", ci.StepRunning)
		s.write("test", "here")
		s.step("test", ci.StepSuccess)
		s.report("test", ci.JobSuccess)
		a.follow(t, v)
		want := []string{"line 0", "line 1", "line 2", "the last"}
		if !slices.Equal(a.lines["build"], want) || !slices.Equal(a.lines["test"], []string{"here"}) {
			t.Errorf("lines %q", a.lines)
		}
	})
}

// TestLinesOfAJobThatMovedHaveTheNumbersOfTheWhole brings a job here from another node, which has the first lines of its log.
func TestLinesOfAJobThatMovedHaveTheNumbersOfTheWhole(t *testing.T) {
	s, there := newStage(t, storetest.SQLite(t)), otherNode(t)
	writeTo(t, there, "a", "0", "1")
	parts := joined.Parts{All: []joined.Part{{Node: "there", Log: there}, {Node: "here", Log: s.logs}}, Stays: []int{0, 1}}
	s.elsewhere(&joined.Log{Where: func(context.Context) (joined.Parts, error) { return parts, nil }})
	v := s.watch("")
	next(t, v)
	s.start("build")
	s.write("build", "2")
	s.step("build", ci.StepRunning)
	var lines []string
	for len(lines) < 3 {
		m, _ := next(t, v)
		if m.Type == adminwire.ObserveLog && *m.From != int64(len(lines)) {
			t.Fatalf("%q begin at %d", m.Lines, *m.From)
		}
		lines = append(lines, m.Lines...)
	}
	if !slices.Equal(lines, []string{"0", "1", "2"}) {
		t.Errorf("lines %q", lines)
	}
}

// absent is a log that cannot be read.
type absent struct {
	err   error // nil to wait until nobody waits any more
	asked atomic.Int64
}

func (a *absent) Lines(ctx context.Context, _ string, _ int64, _ int) ([]string, int64, int64, error) {
	a.asked.Add(1)
	if a.err == nil {
		<-ctx.Done()
		return nil, 0, 0, context.Cause(ctx)
	}
	return nil, 0, 0, a.err
}

// TestANodeThatDoesNotAnswerHoldsUpNothing looks at a run of which one job's log is with a node that is gone, or hangs.
func TestANodeThatDoesNotAnswerHoldsUpNothing(t *testing.T) {
	for what, log := range map[string]*absent{"gone": {err: &joined.AwayError{Node: "x", Why: "does not answer"}}, "hanging": {}} {
		t.Run(what, func(t *testing.T) {
			s := newStage(t, storetest.SQLite(t))
			s.elsewhere(log)
			v := s.watch("")
			var a audience
			m, id := next(t, v)
			a.see(t, m, id)
			s.play()
			a.follow(t, v)
			if !a.ended || a.run.Status != ci.RunSuccess || len(a.lines["build"]) != 0 || len(a.lines["test"]) != 2 {
				t.Errorf("in the end %+v", a)
			}
			if n := log.asked.Load(); n == 0 || n > 5 {
				t.Errorf("the node was asked %d times", n)
			}
		})
	}
}

// TestALogThatBecameShorterIsLeftAlone takes away the part of a log that was shown: what is left has other numbers.
func TestALogThatBecameShorterIsLeftAlone(t *testing.T) {
	s, there := newStage(t, storetest.SQLite(t)), otherNode(t)
	f := &feed{room: s.room, runID: "r", tails: map[stepKey]*tail{}}
	tl := &tail{step: Step{RunID: "r", JobID: "build"}, path: logs.Path("r", "build", 0), place: Place{Log: there}, next: 3}
	writeTo(t, there, "a", "0")
	j, step := adminwire.Job{JobID: "build"}, adminwire.Step{Status: ci.StepRunning}
	if out, err := f.read(t.Context(), tl, j, step); err != nil || len(out) > 0 || !tl.done {
		t.Errorf("%+v, %v, done: %t", out, err, tl.done)
	}
}
