package scaler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/decide/plan"
	"kici/internal/kit/service"
	"kici/internal/kit/telemetry"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/scaler"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// fakeScaler starts nothing: it has room for so many agents and remembers for which jobs it was asked.
type fakeScaler struct {
	room   int
	answer scaler.Answer // instead of its own, when set
	bound  map[string]bool
	asked  []scaler.Request
	// arrived is told of every request when a test waits for one.
	arrived chan string
}

func (f *fakeScaler) Request(_ context.Context, r scaler.Request) scaler.Answer {
	f.asked = append(f.asked, r)
	if f.arrived != nil {
		f.arrived <- r.JobID
	}
	switch {
	case f.answer.Action != "":
		return f.answer
	case f.bound[r.JobID]:
		return scaler.Answer{Action: scaler.Spawning, Backend: "container", Known: true}
	case f.room == 0:
		return scaler.Answer{Action: scaler.AtCapacity}
	}
	if f.bound == nil {
		f.bound = map[string]bool{}
	}
	f.room--
	f.bound[r.JobID] = true
	return scaler.Answer{Action: scaler.Spawning, Backend: "container"}
}

func (f *fakeScaler) Routable(s label.Selector) bool {
	return slices.Equal(s.Labels, []string{"linux"})
}

func (f *fakeScaler) Spawned(context.Context, string) (scaler.Spawn, bool, error) {
	return scaler.Spawn{}, false, nil
}

type bench struct {
	t       testing.TB
	db      *store.DB
	e       *engine.Engine
	scaler  *fakeScaler
	r       *scaler.Redrive
	metrics *telemetry.Registry
	now     atomic.Int64 // epoch milliseconds; a loop reads it
}

func newBench(t testing.TB, db *store.DB) *bench {
	b := &bench{t: t, db: db, scaler: &fakeScaler{}, metrics: telemetry.NewRegistry()}
	b.now.Store(1000)
	settings := engine.DefaultSettings()
	settings.NodeID = "n"
	b.e = engine.New(engine.Deps{DB: db, Clock: b.clock, Log: slog.New(slog.DiscardHandler), Settings: settings, Dispatch: service.NewPoke(), Effects: service.NewPoke()})
	b.r = b.redrive("n", b.metrics)
	return b
}

func (b *bench) clock() time.Time { return time.UnixMilli(b.now.Load()) }

func (b *bench) redrive(node string, metrics *telemetry.Registry) *scaler.Redrive {
	return scaler.NewRedrive(scaler.RedriveDeps{
		DB: b.db, Clock: b.clock, Log: slog.New(slog.DiscardHandler), Scaler: b.scaler, Jobs: b.e, NodeID: node,
		Redispatched: metrics.Counter("kici_orch_scaler_redispatch_total", "Agents started for jobs that had been refused.", telemetry.Label{Name: "trigger"}),
	})
}

// enqueue makes a run of one job; later calls make younger jobs.
func (b *bench) enqueue(id string, s label.Selector) { b.enqueueWith(id, s, `{"name":"x"}`) }

func (b *bench) enqueueWith(id string, s label.Selector, config string) {
	b.t.Helper()
	b.now.Add(1)
	b.must(b.e.Register(b.t.Context(), engine.Registration{RunID: "run-" + id, OrgID: "acme", Provider: "local", Repo: "local/app",
		CloneURL: "file:///srv/app", CheckoutRef: "main", SHA: "abc", RequestID: "trace", Event: json.RawMessage(`{"type":"push"}`),
		Plan: plan.Plan{Workflow: "ci", Jobs: []plan.Job{{ID: id, Name: id, BaseName: id, Selector: s, Config: json.RawMessage(config)}}}}))
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) write(fn func(ctx context.Context, tx *store.Tx) error) {
	b.t.Helper()
	b.must(b.db.Write(b.t.Context(), fn))
}

func (b *bench) connect(id string, slots int, labels ...string) {
	b.t.Helper()
	b.write(func(ctx context.Context, tx *store.Tx) error {
		return fleet.Seen(ctx, tx, fleet.Agent{ID: id, Labels: labels, Lifecycle: fleet.Static, MaxConcurrency: slots, NodeID: "n", ConnectionID: id, LastSeenAt: b.now.Load()})
	})
}

func (b *bench) claim(job, agent string) {
	b.t.Helper()
	b.write(func(ctx context.Context, tx *store.Tx) error {
		ok, err := queue.Claim(ctx, tx, job, agent, "n", 100, b.now.Load(), b.now.Load()+1000)
		if !ok && err == nil {
			err = errors.New("not claimed")
		}
		return err
	})
}

// pass lets time go by and gives the jobs that the scaler was asked for.
func (b *bench) pass(after time.Duration) (jobs []string) {
	b.t.Helper()
	b.now.Add(after.Milliseconds())
	b.scaler.asked = nil
	b.must(b.r.Pass(b.t.Context()))
	for _, r := range b.scaler.asked {
		jobs = append(jobs, r.JobID)
	}
	return jobs
}

func (b *bench) expect(what string, after time.Duration, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.pass(after)); diff != "" {
		b.t.Errorf("%s, asked for (-want +got):\n%s", what, diff)
	}
}

func on(labels ...string) label.Selector { return label.Selector{Labels: labels} }

func TestAJobThatFitsNobodyIsOfferedWithAllItAsksFor(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db)
		b.scaler.room = 1
		selector := label.Selector{Labels: []string{"linux"}, Exclude: []string{"spot"}, Patterns: []label.Matcher{{Kind: label.Regex, Source: "^gpu"}}}
		b.enqueueWith("j", selector, `{"name":"x","resources":{"requests":{"cpus":2},"limits":{"memory":"1g"}}}`)
		b.pass(0)
		want := []scaler.Request{{
			JobID: "j", RunID: "run-j", Org: "acme", Labels: []string{"linux"}, Exclude: []string{"spot"},
			Resources: lockfile.Resources{Requests: lockfile.Amounts{CPUs: 2}, Limits: lockfile.Amounts{MemoryBytes: 1 << 30}},
		}}
		if diff := cmp.Diff(want, b.scaler.asked); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOnlyJobsWithoutAPlaceAreOffered(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db)
		b.scaler.room = 10
		b.connect("a", 2, "linux")
		b.connect("gone", 1, "linux")
		b.write(func(ctx context.Context, tx *store.Tx) error {
			_, err := fleet.Gone(ctx, tx, "gone", "gone", b.now.Load())
			return err
		})
		b.connect("reboots", 1, "linux")
		b.write(func(ctx context.Context, tx *store.Tx) error {
			_, err := fleet.AwaitReboot(ctx, tx, "reboots", "reboots", b.now.Load()+60_000)
			return err
		})
		b.enqueue("runs", on("linux"))
		b.claim("runs", "a")
		b.enqueue("has-place", on("linux"))
		b.enqueue("second", on("linux"))
		b.enqueue("pinned", label.Selector{Labels: []string{"linux"}, Pin: "b"})
		b.enqueue("gpu", on("gpu"))
		b.enqueue("third", on("linux"))
		b.expect("one place is free", 0, "second", "gpu", "third")
	})
}

func TestARefusedSelectorIsLeftAloneUntilThereIsNews(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db)
		b.enqueue("a1", on("a"))
		b.enqueue("a2", on("a"))
		b.enqueue("b1", on("b"))
		b.expect("a refusal ends its line and no other", 0, "a1", "b1")
		b.enqueue("c1", on("c"))
		b.expect("within the pause only what is new", time.Second, "c1")
		b.scaler.room = 2
		b.expect("after the pause", 4*time.Second, "a1", "a2", "b1")
		b.r.CapacityFreed()
		b.scaler.room = 2
		b.expect("there is room again; those on their way are known", time.Second, "b1", "c1")
		b.expect("nothing is refused any more", time.Second)
		b.scaler.room = 1
		b.enqueue("d1", on("d"))
		b.expect("one that was never refused does not count", 0, "d1")
		b.expect("nor do those that have booted for a while", 5*time.Second, "a1", "a2", "b1", "c1", "d1")
		b.counted(map[string]int{"sweep": 2, "hook": 2})
	})
}

// counted compares the counter of agents for jobs that had been refused.
func (b *bench) counted(want map[string]int) {
	b.t.Helper()
	page := httptest.NewRecorder()
	b.metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for trigger, n := range want {
		if line := fmt.Sprintf("kici_orch_scaler_redispatch_total{trigger=%q} %d\n", trigger, n); !strings.Contains(page.Body.String(), line) {
			b.t.Errorf("no %s in\n%s", line, page.Body)
		}
	}
}

func TestAnAgentOnItsWayIsAskedForAgainOnlyAfterAWhile(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db)
		b.scaler.room = 2
		b.enqueue("j", on("linux"))
		b.expect("first", 0, "j")
		b.expect("it boots", 4*time.Second)
		b.expect("still not there", time.Second, "j")
		if b.scaler.room != 1 {
			t.Errorf("%d agents were started for one job", 2-b.scaler.room)
		}
	})
}

func TestAFailureIsKeptWithTheJob(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db)
		b.enqueue("j", on("linux"))
		b.enqueueWith("odd", on("odd"), `{"name":"x","resources":{"requests":{"cpus":"many"}}}`)
		b.scaler.answer = scaler.Answer{Action: scaler.Failed, Reason: "image r/agent:1 is not there"}
		b.expect("what cannot be read is not offered", 0, "j")
		if got := b.provisioningError("j"); got != "image r/agent:1 is not there" {
			t.Errorf("kept: %q", got)
		}
		if got := b.provisioningError("odd"); !strings.HasPrefix(got, "resources.requests.cpus: ") {
			t.Errorf("kept: %q", got)
		}
		b.scaler.answer = scaler.Answer{Action: scaler.Skipped, Reason: "draining"}
		b.expect("skipped", 5*time.Second, "j")
		if got := b.provisioningError("j"); got != "image r/agent:1 is not there" {
			t.Errorf("a job that was not tried lost its last error: %q", got)
		}
		b.claim("j", "a")
		if got := b.provisioningError("j"); got != "" {
			t.Errorf("a claimed job keeps %q", got)
		}
	})
}

func (b *bench) provisioningError(job string) (message string) {
	b.t.Helper()
	b.write(func(ctx context.Context, tx *store.Tx) error {
		row, _, err := queue.ByJob(ctx, tx, job)
		message = row.ProvisioningError
		return err
	})
	return message
}

func TestAProvisioningErrorConcernsPendingRowsAndIsNewsOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db)
		b.enqueue("j", on("linux"))
		news := func(message string) (yes bool) {
			b.write(func(ctx context.Context, tx *store.Tx) (err error) {
				yes, err = queue.ProvisioningFailed(ctx, tx, "j", message)
				return err
			})
			return yes
		}
		if !news("no image") || news("no image") || !news("no disk") {
			t.Error("a message is news when it differs from the last")
		}
		b.claim("j", "a")
		if news("no image") {
			t.Error("a claimed row took an error of its waiting")
		}
	})
}

func TestAnAgentThatOnlySeemsFreeHoldsNobodyUp(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db)
		b.scaler.room = 10
		b.connect("draining", 1, "linux")
		b.enqueue("j", on("linux"))
		b.expect("left to the agent", 0)
		b.expect("it may still take it", 4*time.Second)
		b.expect("it does not", time.Second, "j")
		b.enqueue("later", on("linux"))
		b.expect("the next is left to it in its turn", time.Second)
	})
}

func TestOneNodeOffersAtATime(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		b := newBench(t, db)
		b.enqueue("j", on("linux"))
		b.expect("the first node", 0, "j")
		b.r = b.redrive("other", telemetry.NewRegistry())
		b.expect("another node while the first holds the lease", 20*time.Second)
		b.expect("the first is gone", 11*time.Second, "j")
	})
}

func TestAPassLooksAtABoundedNumberOfJobs(t *testing.T) {
	b := newBench(t, storetest.SQLite(t))
	b.scaler.room = 1000
	var jobs []plan.Job
	for i := range 250 {
		name := fmt.Sprintf("j%03d", i)
		jobs = append(jobs, plan.Job{ID: name, Name: name, BaseName: name, Selector: on("linux"), Config: json.RawMessage(`{}`)})
	}
	b.must(b.e.Register(t.Context(), engine.Registration{RunID: "r", OrgID: "acme", Provider: "local", Event: json.RawMessage(`{}`), Plan: plan.Plan{Workflow: "ci", Jobs: jobs}}))
	if got := b.pass(0); len(got) != 200 || got[0] != "j000" || got[199] != "j199" {
		t.Errorf("asked for %d jobs: %v", len(got), got)
	}
}

func TestWithoutAScalerNoPoolFits(t *testing.T) {
	if got := scaler.Ask(t.Context(), nil, scaler.Request{Labels: []string{"linux"}}); got.Action != scaler.NoBackend {
		t.Errorf("answer %+v", got)
	}
	fake := &fakeScaler{}
	if scaler.Routable(nil, on("linux")) || !scaler.Routable(fake, on("linux")) || scaler.Routable(fake, on("gpu")) {
		t.Error("only a scaler makes a selector routable")
	}
	if err := scaler.NewRedrive(scaler.RedriveDeps{}).Run(t.Context()); err != nil {
		t.Errorf("the loop does not end by itself: %v", err)
	}
}

func TestLoopIsWokenAndStops(t *testing.T) {
	b := newBench(t, storetest.SQLite(t))
	b.scaler.room, b.scaler.arrived = 1, make(chan string, 1)
	b.enqueue("first", on("linux"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.r.Run(ctx) }()
	if got := <-b.scaler.arrived; got != "first" {
		t.Errorf("asked for %q", got)
	}
	b.enqueue("second", on("gpu"))
	b.r.Wake()
	if got := <-b.scaler.arrived; got != "second" {
		t.Errorf("asked for %q", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}

// TestEveryJobGetsOneAgentAsCapacityComes says that whatever comes in between, no job is asked for twice within a pass,
// no more agents are started than there is room for, and once there is room for all none is left.
func TestEveryJobGetsOneAgentAsCapacityComes(t *testing.T) {
	db := storetest.SQLite(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, db)
		b.now.Store(int64(round+1) * 1_000_000_000)
		round++
		jobs, started := 0, 0
		for range rapid.IntRange(1, 12).Draw(rt, "turns") {
			switch rapid.SampledFrom([]string{"enqueue", "enqueue", "free", "wait"}).Draw(rt, "turn") {
			case "enqueue":
				jobs++
				b.enqueue(fmt.Sprintf("%d-%d", round, jobs), on(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "label")))
			case "free":
				b.scaler.room += rapid.IntRange(0, 2).Draw(rt, "room")
				b.r.CapacityFreed()
			}
			room := b.scaler.room
			asked := b.pass(rapid.SampledFrom([]time.Duration{0, time.Second, 5 * time.Second}).Draw(rt, "after"))
			if slices.Sort(asked); len(slices.Compact(asked)) != len(b.scaler.asked) {
				rt.Fatalf("a job was asked for twice in %v", b.scaler.asked)
			}
			if started += room - b.scaler.room; started != len(b.scaler.bound) || started > jobs {
				rt.Fatalf("%d agents started for %d jobs of %d", started, len(b.scaler.bound), jobs)
			}
		}
		b.scaler.room = jobs
		b.r.CapacityFreed()
		b.pass(time.Second)
		if len(b.scaler.bound) != jobs {
			rt.Fatalf("agents for %d of %d jobs", len(b.scaler.bound), jobs)
		}
		b.finish(jobs, round)
	})
}

// finish gives all jobs of a round out, so that the next one starts with an empty queue.
func (b *bench) finish(jobs, round int) {
	for i := range jobs {
		b.claim(fmt.Sprintf("%d-%d", round, i+1), fmt.Sprintf("agent-%d-%d", round, i))
	}
}
