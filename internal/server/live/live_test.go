package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/logs"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const now = 1_767_225_600_000

// stage is a run with jobs build and test on agent a, and a room of people who look at it.
type stage struct {
	*engine.Engine
	t    *testing.T
	db   *store.DB
	logs *logs.Store
	room *Room
	n    int // chunks written

	logOf func(ctx context.Context, s Step, caller string) (Place, error) // where logs are, nil for here
}

func newStage(t *testing.T, db *store.DB) *stage {
	t.Helper()
	s := &stage{t: t, db: db}
	var err error
	s.logs, err = logs.Open(t.Context(), logs.Options{Root: t.TempDir(), DB: db})
	must(t, err)
	t.Cleanup(func() { must(t, s.logs.Close()) })
	s.enter()
	settings := engine.DefaultSettings()
	settings.NodeID = "n"
	s.Engine = engine.New(engine.Deps{DB: db, Clock: clock, Log: slog.New(slog.DiscardHandler), Settings: settings,
		Dispatch: service.NewPoke(), Effects: service.NewPoke(), Changed: func(run string) { s.room.Changed(run) }})
	job := func(name string) plan.Job {
		return plan.Job{ID: name, Name: name, BaseName: name, Selector: label.Selector{Labels: []string{"linux"}}, Config: json.RawMessage(`{}`)}
	}
	must(t, s.Register(t.Context(), engine.Registration{RunID: "r", OrgID: "default", RoutingKey: "generic:default:s", Provider: "local",
		Repo: "app", Ref: "main", SHA: "abc", TriggerEvent: "push", Plan: plan.Plan{Workflow: "ci", Jobs: []plan.Job{job("build"), job("test")},
			Edges: []plan.Edge{{Job: "test", Upstream: "build", RunOn: []ci.JobStatus{ci.JobSuccess}}}}}))
	must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return fleet.Seen(ctx, tx, fleet.Agent{ID: "a", Labels: []string{"linux"}, Lifecycle: fleet.Static, MaxConcurrency: 1, NodeID: "n", ConnectionID: "c", LastSeenAt: now})
	}))
	return s
}

func clock() time.Time { return time.UnixMilli(now) }

// enter opens a new room, as a restart of the server does.
func (s *stage) enter() {
	if s.room != nil {
		s.room.Stop()
	}
	s.room = s.newRoom()
	s.t.Cleanup(s.room.Stop)
}

func (s *stage) newRoom() *Room {
	logOf := func(ctx context.Context, step Step, caller string) (Place, error) {
		if s.logOf == nil {
			return Place{Log: s.logs}, nil
		}
		return s.logOf(ctx, step, caller)
	}
	return New(Deps{DB: s.db, LogOf: logOf, Clock: clock, Log: slog.New(slog.DiscardHandler)})
}

func (s *stage) watch(lastID string) *Viewer {
	s.t.Helper()
	v, err := s.room.Watch(s.t.Context(), "r", lastID, "Bearer viewer")
	must(s.t, err)
	s.t.Cleanup(v.Close)
	return v
}

func (s *stage) start(job string) {
	s.t.Helper()
	must(s.t, s.db.Write(s.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := queue.Claim(ctx, tx, job, "a", "n", 1, now, now+10_000)
		return err
	}))
	_, err := s.Acked(s.t.Context(), "a", "r", job)
	must(s.t, err)
	s.report(job, ci.JobRunning)
}

func (s *stage) report(job string, status ci.JobStatus) {
	s.t.Helper()
	must(s.t, s.JobReported(s.t.Context(), "a", wire.JobStatus{JobID: job, State: status}))
}

func (s *stage) step(job string, state ci.StepStatus) {
	s.t.Helper()
	must(s.t, s.Reported(s.t.Context(), "a", engine.Owned{RunID: "r", JobID: job, JobName: job}, wire.StepStatus{JobID: job, StepIndex: 0, StepName: "s", State: state, Timestamp: now}))
}

func (s *stage) write(job string, lines ...string) {
	s.t.Helper()
	s.n++
	must(s.t, s.logs.Append(s.t.Context(), logs.Chunk{RunID: "r", JobID: job, JobName: job, MessageID: fmt.Sprint(s.n), At: now, Lines: lines}))
	s.room.Changed("r")
}

// play runs the whole run.
func (s *stage) play() {
	for _, job := range []string{"build", "test"} {
		s.start(job)
		s.step(job, ci.StepRunning)
		s.write(job, job+" one", job+" two")
		s.step(job, ci.StepSuccess)
		s.report(job, ci.JobSuccess)
	}
}

// next is the next message with its id.
func next(t *testing.T, v *Viewer) (adminwire.Observed, string) {
	t.Helper()
	m, id, err := v.Next(t.Context())
	must(t, err)
	return m, id
}

// audience is what somebody knows who keeps to what a stream says.
type audience struct {
	picture
	lines    map[string][]string // by job
	sequence int64
	lastID   string
	ended    bool
}

// see takes a message in, and fails the test when it does not follow.
func (a *audience) see(t *testing.T, m adminwire.Observed, id string) {
	t.Helper()
	switch {
	case m.Type == adminwire.ObserveSnapshot:
	case m.Sequence != a.sequence+1 && m.Type != adminwire.ObserveGap:
		t.Fatalf("message %d follows %d: %+v", m.Sequence, a.sequence, m)
	}
	a.sequence, a.lastID = m.Sequence, id
	switch {
	case m.Type == adminwire.ObserveSnapshot:
		a.picture = picture{*m.Run, m.Jobs}
	case m.Type == adminwire.ObserveLog:
		if a.lines == nil {
			a.lines = map[string][]string{}
		}
		if s := a.stepOf(m); s.Status != "" && s.Status.Terminal() {
			t.Fatalf("lines after the end of their step: %+v", m)
		}
		a.lines[m.JobName] = append(a.lines[m.JobName], m.Lines...)
	case m.Type == adminwire.ObserveComplete:
		a.ended = true
	case m.Step != nil:
		*a.stepOf(m) = *m.Step
	case m.Job != nil:
		j := a.job(m.JobID)
		steps := j.Steps
		*j = *m.Job
		j.Steps = steps
	case m.Run != nil:
		a.run = *m.Run
	}
}

func (a *audience) job(id string) *adminwire.Job {
	for i := range a.jobs {
		if a.jobs[i].JobID == id {
			return &a.jobs[i]
		}
	}
	a.jobs = append(a.jobs, adminwire.Job{JobID: id})
	return &a.jobs[len(a.jobs)-1]
}

func (a *audience) stepOf(m adminwire.Observed) *adminwire.Step {
	j := a.job(m.JobID)
	for i := range j.Steps {
		if j.Steps[i].StepIndex == *m.StepIndex {
			return &j.Steps[i]
		}
	}
	j.Steps = append(j.Steps, adminwire.Step{StepIndex: *m.StepIndex})
	return &j.Steps[len(j.Steps)-1]
}

// follow takes everything in until the end of the run.
func (a *audience) follow(t *testing.T, v *Viewer) {
	t.Helper()
	for {
		m, id, err := v.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		a.see(t, m, id)
	}
}

func TestViewerSeesTheRunAsItWas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStage(t, db)
		var a audience
		v := s.watch("")
		m, id := next(t, v)
		if m.Type != adminwire.ObserveSnapshot || m.Run.Status != ci.RunPending || len(m.Jobs) != 2 {
			t.Fatalf("first message %+v", m)
		}
		a.see(t, m, id)
		s.play()
		a.follow(t, v)
		if !a.ended || a.run.Status != ci.RunSuccess || a.jobs[0].Status != ci.JobSuccess || a.jobs[1].Steps[0].Status != ci.StepSuccess {
			t.Errorf("in the end %+v", a)
		}
		if got := fmt.Sprint(a.lines); got != "map[build:[build one build two] test:[test one test two]]" {
			t.Errorf("lines %s", got)
		}
	})
}

func TestWhoComesBackMissesNothing(t *testing.T) {
	s := newStage(t, storetest.SQLite(t))
	var a audience
	v := s.watch("")
	m, id := next(t, v)
	a.see(t, m, id)
	s.start("build")
	m, id = next(t, v)
	a.see(t, m, id)
	v.Close()
	s.step("build", ci.StepRunning)
	s.write("build", "one", "two")
	s.step("build", ci.StepSuccess)
	s.report("build", ci.JobSuccess)
	again := s.watch(a.lastID)
	_, err := s.Cancel(t.Context(), "r", "test", "", false)
	must(t, err)
	a.follow(t, again)
	if !a.ended || a.run.Status != ci.RunCancelled || fmt.Sprint(a.lines) != "map[build:[one two]]" {
		t.Errorf("in the end %+v", a)
	}
}

func TestRestartedServerShowsTheWholePicture(t *testing.T) {
	s := newStage(t, storetest.SQLite(t))
	var a audience
	v := s.watch("")
	m, id := next(t, v)
	a.see(t, m, id)
	s.start("build")
	m, id = next(t, v)
	a.see(t, m, id)
	s.enter()
	for {
		if _, _, err := v.Next(t.Context()); errors.Is(err, io.EOF) {
			break // who looked on is told
		}
	}
	s.step("build", ci.StepRunning)
	back := s.watch(a.lastID)
	m, id = next(t, back)
	if m.Type != adminwire.ObserveSnapshot || m.Jobs[0].Status != ci.JobRunning || m.Jobs[0].Steps[0].Status != ci.StepRunning {
		t.Fatalf("first message after the restart %+v", m)
	}
	a.see(t, m, id)
	_, err := s.Cancel(t.Context(), "r", "test", "", false)
	must(t, err)
	s.report("build", ci.JobCancelled)
	a.follow(t, back)
	if !a.ended || a.run.Status != ci.RunCancelled {
		t.Errorf("in the end %+v", a)
	}
}

func TestEndedRunIsShownAndEnds(t *testing.T) {
	s := newStage(t, storetest.SQLite(t))
	s.play()
	for _, lastID := range []string{"", "other-7", "nonsense"} {
		v := s.watch(lastID)
		m, id := next(t, v)
		if m.Type != adminwire.ObserveSnapshot || m.Run.Status != ci.RunSuccess {
			t.Errorf("with %q: %+v", lastID, m)
		}
		if m, _ := next(t, v); m.Type != adminwire.ObserveComplete || m.Summary.ByStatus[ci.JobSuccess] != 2 {
			t.Errorf("with %q: %+v", lastID, m)
		}
		if m, _ := next(t, s.watch(id)); m.Type != adminwire.ObserveComplete {
			t.Errorf("again with %q: %+v", id, m)
		}
	}
}

// What another node does pokes nobody here.
func TestChangesOfOtherNodesAreSeen(t *testing.T) {
	s := newStage(t, storetest.SQLite(t))
	v := s.watch("")
	next(t, v)
	here := s.room
	s.room = s.newRoom() // gets the pokes instead
	t.Cleanup(s.room.Stop)
	t.Cleanup(here.Stop)
	s.start("build")
	for {
		if m, _ := next(t, v); m.JobName == "build" && m.Status == string(ci.JobRunning) {
			return
		}
	}
}

func TestSlowViewerLosesLinesAndNoStates(t *testing.T) {
	s := newStage(t, storetest.SQLite(t))
	slow, fast := s.watch(""), s.watch("")
	next(t, slow)
	s.start("build")
	s.step("build", ci.StepRunning)
	line := strings.Repeat("x", 1000)
	const lines = 4000
	for range lines / 500 {
		batch := make([]string, 500)
		for i := range batch {
			batch[i] = line
		}
		s.write("build", batch...)
	}
	s.step("build", ci.StepSuccess)
	s.report("build", ci.JobSuccess)
	_, err := s.Cancel(t.Context(), "r", "test", "", false)
	must(t, err)
	for m, _ := next(t, fast); m.Type != adminwire.ObserveComplete; m, _ = next(t, fast) {
	} // this one has seen the end, so the other has been offered everything
	seen, dropped, states := 0, 0, []string{}
	for {
		m, _, err := slow.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		seen += len(m.Lines)
		dropped += int(m.DroppedLineCount)
		if m.Step != nil || m.Run != nil {
			states = append(states, m.Status+string(m.State))
		}
	}
	if seen+dropped != lines || dropped == 0 || seen == 0 {
		t.Errorf("%d lines seen and %d dropped of %d", seen, dropped, lines)
	}
	if got := states[len(states)-2:]; fmt.Sprint(got) != "[success cancelled]" {
		t.Errorf("states %v", states)
	}
}

func TestViewersAreBounded(t *testing.T) {
	s := newStage(t, storetest.SQLite(t))
	for range maxViewersOfRun {
		s.watch("")
	}
	if _, err := s.room.Watch(t.Context(), "r", "", ""); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	if s.room.viewers != maxViewersOfRun {
		t.Errorf("%d viewers are counted", s.room.viewers)
	}
	s.room.Stop()
	if _, err := s.room.Watch(t.Context(), "r", "", ""); !errors.Is(err, service.ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
