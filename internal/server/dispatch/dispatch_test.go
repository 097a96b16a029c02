package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/kit/service"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// fakeHub is a set of agents that take whatever they are given.
type fakeHub struct {
	agents []dispatch.Agent
	sent   []string // "agent job"
	frames []wire.JobDispatch
	gone   string // a connection that ended
	large  bool   // no frame fits
	active int    // jobs that the agents say they have
	// meanwhile happens once, right after the agents have been listed; busy is a connection that takes nothing since then.
	meanwhile func()
	busy      string
	// arrived is told of every dispatch when a test waits for one.
	arrived chan string
}

func (h *fakeHub) Ready() []dispatch.Agent {
	if happen := h.meanwhile; happen != nil {
		h.meanwhile = nil
		defer happen()
	}
	return append([]dispatch.Agent{}, h.agents...)
}

func (h *fakeHub) Takes(connection string) bool { return connection != h.busy }

func (h *fakeHub) Active() int { return h.active }

func (h *fakeHub) Dispatch(_ context.Context, connection, _ string, frame wire.JobDispatch) error {
	if connection == h.gone {
		return errors.New("closed")
	}
	if h.large {
		return fmt.Errorf("dispatch: %w", wire.ErrTooLarge)
	}
	h.sent = append(h.sent, connection+" "+frame.JobID)
	h.frames = append(h.frames, frame)
	if h.arrived != nil {
		h.arrived <- connection + " " + frame.JobID
	}
	return nil
}

type fakeSecrets struct {
	askNothing
	err error
}

// askNothing knows nothing of a job when it is claimed.
type askNothing struct{}

func (askNothing) Ask(string, *dispatch.Known) store.Ask {
	return store.Ask{Query: "SELECT 1", Row: func(store.Row) error { return nil }}
}

func (s fakeSecrets) ForJob(context.Context, engine.Input, dispatch.Known, string) (dispatch.Grant, error) {
	return dispatch.Grant{Secrets: map[string]string{"TOKEN": "hunter2"}, RunPublicKey: "key"}, s.err
}

func agent(id string, slots int, labels ...string) dispatch.Agent {
	return dispatch.Agent{Agent: label.Agent{ID: id, Labels: labels}, ConnectionID: id, MaxConcurrency: slots}
}

type bench struct {
	t   *testing.T
	e   *engine.Engine
	d   *dispatch.Dispatcher
	hub *fakeHub
	db  *store.DB
	now atomic.Int64 // epoch milliseconds
	// slept is for how long, until now, the server did not run.
	slept int64
}

func newBench(t *testing.T, db *store.DB, hub *fakeHub, secrets dispatch.Secrets) *bench {
	return newBenchOf(t, db, hub, secrets, func(e *engine.Engine) dispatch.Engine { return e })
}

// newBenchOf is newBench with something before the engine.
func newBenchOf(t *testing.T, db *store.DB, hub *fakeHub, secrets dispatch.Secrets, before func(*engine.Engine) dispatch.Engine) *bench {
	b := &bench{t: t, hub: hub, db: db}
	b.now.Store(1000)
	clock := func() time.Time { return time.UnixMilli(b.now.Load()) }
	poke := service.NewPoke()
	log := slog.New(slog.DiscardHandler)
	settings := engine.DefaultSettings()
	settings.NodeID = "n"
	b.e = engine.New(engine.Deps{DB: db, Clock: clock, Log: log, Settings: settings, Dispatch: poke, Effects: service.NewPoke()})
	var err error
	b.d, err = dispatch.New(dispatch.Deps{DB: db, Clock: clock, Log: log, Hub: hub, Engine: before(b.e), Secrets: secrets, Poke: poke,
		AsOf:     func(time.Duration) int64 { return b.now.Load() - b.slept },
		Settings: dispatch.Settings{NodeID: "n", Poll: time.Hour, AckTimeout: 10 * time.Second, MaxLogBytes: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// register makes a run of one job; later calls make younger jobs.
func (b *bench) register(id string, s label.Selector) {
	b.t.Helper()
	b.now.Add(1)
	err := b.e.Register(b.t.Context(), engine.Registration{RunID: "run-" + id, OrgID: "default", Provider: "local", Repo: "local/app",
		CloneURL: "file:///srv/app", CheckoutRef: "main", SHA: "abc", RequestID: "trace", Event: json.RawMessage(`{"type":"push"}`),
		Plan: plan.Plan{Workflow: "ci", Jobs: []plan.Job{{ID: id, Name: id, BaseName: id, Selector: s, Config: json.RawMessage(`{"name":"x"}`)}}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) pass() []string {
	b.t.Helper()
	b.hub.sent = nil
	if err := b.d.Pass(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return b.hub.sent
}

func (b *bench) reject(agent, job string) {
	b.t.Helper()
	if err := b.e.Rejected(b.t.Context(), agent, job, wire.RejectBusy); err != nil {
		b.t.Fatal(err)
	}
}

func on(labels ...string) label.Selector { return label.Selector{Labels: labels} }

func TestJobsGoToTheFirstFittingAgentOldestFirst(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 2, "linux"), agent("b", 1, "linux", "gpu")}}
		b := newBench(t, db, hub, fakeSecrets{})
		b.register("nobody", on("mac"))
		b.register("gpu", on("linux", "gpu"))
		b.register("first", on("linux"))
		b.register("second", on("linux"))
		b.register("third", on("linux"))
		if diff := cmp.Diff([]string{"b gpu", "a first", "a second"}, b.pass()); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		if sent := b.pass(); len(sent) != 0 {
			t.Errorf("agents without room were sent %v", sent)
		}
		b.reject("a", "first") // it keeps its place in line
		if diff := cmp.Diff([]string{"a first"}, b.pass()); diff != "" {
			t.Errorf("sent after a refusal (-want +got):\n%s", diff)
		}
	})
}

// TestAJobWhoseTimeWasUpInTheServersSleepIsGivenOut is about a machine that was shut over the end of a job's time: the job
// is not given up for that, so it must not lie beside free agents either.
func TestAJobWhoseTimeWasUpInTheServersSleepIsGivenOut(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{}
		b := newBench(t, db, hub, fakeSecrets{})
		b.register("j", on("linux"))
		hub.agents = []dispatch.Agent{agent("a", 1, "linux")}
		b.now.Add(10 * time.Hour.Milliseconds())
		if sent := b.pass(); len(sent) != 0 {
			t.Errorf("a job whose time is up was sent: %v", sent)
		}
		b.slept = 10 * time.Hour.Milliseconds()
		if diff := cmp.Diff([]string{"a j"}, b.pass()); diff != "" {
			t.Errorf("sent after the sleep (-want +got):\n%s", diff)
		}
	})
}

// TestALookWantsMoreThanTheOneBefore is about what a look does not guess: agents that came, a selector that is new, one that
// no job demands any more.
func TestALookWantsMoreThanTheOneBefore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}}
		b := newBench(t, db, hub, fakeSecrets{})
		gives := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, b.pass()); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
		}
		for _, id := range []string{"1", "2", "3", "4"} {
			b.register(id, on("linux"))
		}
		gives("a 1")
		hub.agents = append(hub.agents, agent("b", 2, "linux"))
		gives("b 2", "b 3")
		b.register("mac", on("mac"))
		hub.agents = append(hub.agents, agent("c", 1, "mac"), agent("d", 3, "linux"))
		gives("d 4", "c mac")
		gives()
		b.register("5", on("linux", "x64"))
		b.register("6", on("linux"))
		gives("d 6")
	})
}

func TestPinnedJobsWaitForTheirAgent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}}
		b := newBench(t, db, hub, fakeSecrets{})
		b.register("pinned", label.Selector{Labels: []string{"linux"}, Pin: "b"})
		if sent := b.pass(); len(sent) != 0 {
			t.Errorf("sent %v", sent)
		}
		hub.agents = append(hub.agents, agent("b", 1, "linux"))
		if diff := cmp.Diff([]string{"b pinned"}, b.pass()); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

func TestFrameCarriesTheJobAndItsSecretsOnly(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}}
		b := newBench(t, db, hub, fakeSecrets{})
		b.register("j", on("linux"))
		b.pass()
		got := hub.frames[0]
		got.MessageID = ""
		want := wire.JobDispatch{RunID: "run-j", JobID: "j", RepoURL: "file:///srv/app", Ref: "main", SHA: "abc",
			JobConfig: json.RawMessage(`{"name":"x","event":{"type":"push"}}`), Timestamp: b.now.Load(), RequestID: "trace",
			RunPublicKey: "key", Secrets: map[string]string{"TOKEN": "hunter2"}, MaxLogSizeBytes: 1 << 20, OrgID: "default", RepoID: "local/app"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("frame (-want +got):\n%s", diff)
		}
		raw, err := wire.Encode(hub.frames[0])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "null") {
			t.Errorf("the frame holds null: %s", raw)
		}
	})
}

func TestJobWhoseSecretsCannotBeReadFails(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}}
		b := newBench(t, db, hub, fakeSecrets{err: dispatch.Permanent(errors.New("scope default: wrong master key"))})
		b.failsAs(ci.InitSecretResolution, "Secret resolution failed: scope default: wrong master key")
	})
}

func TestJobThatNoFrameHoldsFailsAndSaysWhatIsLarge(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}, large: true}
		b := newBench(t, db, hub, fakeSecrets{})
		b.failsAs(ci.InitEnvironmentRules, "The job does not fit into the 26214400 bytes that its agent can be sent: its configuration with the event has 36")
		hub.large = false
		b.register("next", on("linux"))
		if diff := cmp.Diff([]string{"a next"}, b.pass()); diff != "" {
			t.Errorf("its agent is not free again (-want +got):\n%s", diff)
		}
	})
}

// failsAs gives a job out, which must fail.
func (b *bench) failsAs(category, message string) {
	b.t.Helper()
	b.register("j", on("linux"))
	if sent := b.pass(); len(sent) != 0 {
		b.t.Errorf("sent %v", sent)
	}
	var status, failure string
	err := b.db.Read().QueryRowContext(b.t.Context(), "SELECT status, init_failure FROM execution_jobs WHERE job_id = 'j'").Scan(&status, &failure)
	if err != nil {
		b.t.Fatal(err)
	}
	var f ci.InitFailure
	if err := json.Unmarshal([]byte(failure), &f); err != nil {
		b.t.Fatal(err)
	}
	if status != "failed" || f.Category != category || f.Message != message {
		b.t.Errorf("job is %s with %+v", status, f)
	}
}

func TestConnectionThatEndsInTheSameMomentGivesTheJobBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}, gone: "a"}
		b := newBench(t, db, hub, fakeSecrets{})
		b.register("j", on("linux"))
		b.pass()
		hub.gone = ""
		if diff := cmp.Diff([]string{"a j"}, b.pass()); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

// TestAnAgentThatGivesItsJobBackIsNotOfferedItInTheSameMoment is about an agent that gives a job back between the two
// looks of a pass, at the agents and at the queue: it is still busy with ending the job, which the queue shows already.
func TestAnAgentThatGivesItsJobBackIsNotOfferedItInTheSameMoment(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}}
		b := newBench(t, db, hub, fakeSecrets{})
		b.register("j", on("linux"))
		b.register("next", on("linux"))
		if diff := cmp.Diff([]string{"a j"}, b.pass()); diff != "" {
			t.Fatalf("sent (-want +got):\n%s", diff)
		}
		giveBack := func() {
			hub.busy = "a"
			b.reject("a", "j")
		}
		hub.meanwhile = giveBack
		if sent := b.pass(); len(sent) != 0 {
			t.Errorf("a busy agent was sent %v", sent)
		}
		hub.busy = ""
		if diff := cmp.Diff([]string{"a j"}, b.pass()); diff != "" {
			t.Fatalf("sent once it was free (-want +got):\n%s", diff)
		}
		hub.agents = append(hub.agents, agent("b", 1, "linux"))
		hub.meanwhile = giveBack
		if diff := cmp.Diff([]string{"b j"}, b.pass()); diff != "" {
			t.Errorf("sent where another is free (-want +got):\n%s", diff)
		}
		if n := b.attempts("j"); n != 2 {
			t.Errorf("%d deliveries of the job were counted as failed, want the two that were refused", n)
		}
	})
}

// attempts is how many deliveries of a job came to nothing.
func (b *bench) attempts(job string) (n int) {
	b.t.Helper()
	if err := b.db.Read().QueryRowContext(b.t.Context(), "SELECT attempts FROM dispatch_queue WHERE id = $1", job).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func TestLoopIsWokenAndStops(t *testing.T) {
	db := storetest.SQLite(t)
	hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}, arrived: make(chan string, 1)}
	b := newBench(t, db, hub, fakeSecrets{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.d.Run(ctx) }()
	b.register("j", on("linux"))
	if got := <-hub.arrived; got != "a j" {
		t.Errorf("dispatched %q", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}

// TestTwoSweepersDoNoHarm lets two nodes hold the lease at once: the clock of one is ahead, so to it the other's lease has
// ended, as after a pause of the other. Each dispatch that nobody answered is taken back once all the same.
func TestTwoSweepersDoNoHarm(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const jobs = 20
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", jobs, "linux")}}
		b := newBench(t, db, hub, fakeSecrets{})
		for i := range jobs {
			b.register(fmt.Sprint(i), on("linux"))
		}
		if sent := b.pass(); len(sent) != jobs {
			t.Fatalf("sent %d jobs", len(sent))
		}
		sweeper := func(node string, at *atomic.Int64) *engine.Engine {
			settings := engine.DefaultSettings()
			settings.NodeID = node
			return engine.New(engine.Deps{DB: db, Clock: func() time.Time { return time.UnixMilli(at.Load()) }, Log: slog.New(slog.DiscardHandler),
				Settings: settings, Dispatch: service.NewPoke(), Effects: service.NewPoke()})
		}
		late := b.now.Load() + 60_000 // every answer is overdue
		var sweeping sync.WaitGroup
		for node, from := range map[string]int64{"paused": late, "other": late + 600_000} {
			var at atomic.Int64
			at.Store(from)
			e := sweeper(node, &at)
			sweeping.Go(func() {
				for range 3 {
					if err := e.SweepOnce(t.Context()); err != nil {
						t.Error(err)
					}
					at.Add(3000) // an agent that is dropped has its time
				}
			})
		}
		sweeping.Wait()
		var once, all int
		err := db.Read().QueryRowContext(t.Context(), "SELECT count(*) FILTER (WHERE attempts = 1 AND status = 'pending'), count(*) FROM dispatch_queue").Scan(&once, &all)
		if err != nil || once != jobs || all != jobs {
			t.Errorf("%d of %d dispatches were taken back once (%v)", once, all, err)
		}
	})
}

func TestAJobIsClaimedByOneNode(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const jobs, nodes = 40, 3
		b := newBench(t, db, &fakeHub{}, fakeSecrets{})
		for i := range jobs {
			b.register(fmt.Sprint(i), on("linux"))
		}
		var passing sync.WaitGroup
		hubs := make([]*fakeHub, nodes)
		for n := range nodes {
			hubs[n] = &fakeHub{agents: []dispatch.Agent{agent(fmt.Sprint("agent-", n), jobs, "linux")}}
			node := newBench(t, db, hubs[n], fakeSecrets{})
			passing.Go(func() {
				for range 5 { // a pass that others outran leaves the rest to the next
					if err := node.d.Pass(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		passing.Wait()
		given := map[string]int{}
		for _, h := range hubs {
			for _, f := range h.frames {
				given[f.JobID]++
			}
		}
		for job, n := range given {
			if n != 1 {
				t.Errorf("job %s was given out %d times", job, n)
			}
		}
		if len(given) != jobs {
			t.Errorf("%d of %d jobs were given out", len(given), jobs)
		}
	})
}
