package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kici/internal/core/ci"
	"kici/internal/decide/trigger"
	"kici/internal/server/engine"
	"kici/internal/server/forge"
	"kici/internal/server/inbox"
	"kici/internal/server/ingest"
	"kici/internal/server/pipeline"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestPushBecomesTheRunsThatItMatches(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db)
		sha := g.commit(t, "team/app", lockOf(workflow("ci", onMain, aJob), workflow("release", onOther, aJob), workflow("docs", onMain, aJob)))
		id := g.push(t, "repos", "push", pushBody("team/app", sha), "k")
		if diff := cmp.Diff([]string{"matched"}, g.settle(t, 1)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"ci", "docs"}, g.runs.names()); diff != "" {
			t.Fatalf("runs (-want +got):\n%s", diff)
		}
		got := g.runs.all[0]
		want := engine.Registration{
			OrgID: "default", RoutingKey: g.source.RoutingKey, Provider: forge.Local, Repo: "team/app", Ref: "main", SHA: sha,
			CloneURL: "file://" + g.base + "/team/app", CheckoutRef: "main", DeliveryID: id, TriggerEvent: "push",
			CommitMessage: "fix: it", Sender: "octo", LockFileSource: "head",
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(engine.Registration{}, "RunID", "RequestID", "Decision", "Event", "Plan")); diff != "" {
			t.Errorf("registration (-want +got):\n%s", diff)
		}
		if got.RequestID == "" || got.Plan.InitFailure != nil || len(got.Plan.Jobs) != 1 || got.Plan.Jobs[0].Name != "build" {
			t.Errorf("request %q, plan %+v", got.RequestID, got.Plan)
		}
		var event ci.Event // what steps and expressions see
		if err := json.Unmarshal(got.Event, &event); err != nil || event.Type != "push" || event.TargetBranch != "main" || event.SourceRepo != "team/app" {
			t.Errorf("event %s, %v", got.Event, err)
		}
		var decision trigger.Decision
		if err := json.Unmarshal(got.Decision, &decision); err != nil || !decision.Matched {
			t.Errorf("decision %s, %v", got.Decision, err)
		}
		if diff := cmp.Diff(logged{Status: inbox.StatusProcessed, Matched: 2, RunID: got.RunID, Repo: "team/app"}, g.logged(t, id)); diff != "" {
			t.Errorf("event log (-want +got):\n%s", diff)
		}
		other := g.runs.all[1]
		if got.RunID == other.RunID || got.Plan.Jobs[0].ID == other.Plan.Jobs[0].ID || got.Plan.Jobs[0].ID == got.RunID {
			t.Errorf("ids are not unique: %s %s, %s %s", got.RunID, got.Plan.Jobs[0].ID, other.RunID, other.Plan.Jobs[0].ID)
		}
	})
}

func TestOneWorkflowsDefectIsItsOwn(t *testing.T) {
	g := newRig(t, storetest.SQLite(t))
	damaged := strings.Replace(workflow("damaged", onMain, aJob), `"compileSchemaVersion":5`, `"compileSchemaVersion":5,"timeout":"soon"`, 1)
	unplannable := workflow("cyclic", onMain, strings.Replace(aJob, `"needs":[]`, `"needs":["build"]`, 1))
	sha := g.commit(t, "app", lockOf(workflow("no-pattern", onError, aJob), damaged, unplannable, workflow("good", onMain, aJob)))
	id := g.push(t, "repos", "push", pushBody("app", sha), "")
	g.settle(t, 1)
	if diff := cmp.Diff([]string{"no-pattern", "damaged", "cyclic", "good"}, g.runs.names()); diff != "" {
		t.Fatalf("runs (-want +got):\n%s", diff)
	}
	for i, want := range []string{`pattern "("`, "timeout", "build", ""} {
		failure := g.runs.all[i].Plan.InitFailure
		if (failure == nil) != (want == "") || failure != nil && !strings.Contains(failure.Message, want) {
			t.Errorf("%s: init failure %+v, want one that names %s", g.runs.all[i].Plan.Workflow, failure, want)
		}
	}
	if row := g.logged(t, id); row.Status != inbox.StatusProcessed || row.Matched != 4 {
		t.Errorf("event log %+v", row)
	}
}

func TestDeliveriesWithoutRunsAreExplained(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db)
		g.add(t, "plain", nil)
		bare := g.commit(t, "empty", "")
		good := g.commit(t, "app", lockOf(workflow("release", onOther, aJob)))
		corrupt := g.commit(t, "broken", "{\n  \"schemaVersion\":\n")
		const nowhere = "0000000000000000000000000000000000000000"
		tests := []struct {
			name, source, event, body string
			status, errorHas          string
		}{
			{"nothing matches", "repos", "push", pushBody("app", good), inbox.StatusProcessed, ""},
			{"no lock file", "repos", "push", pushBody("empty", bare), inbox.StatusLockfileMissing, "no lock file"},
			{"deleted branch", "repos", "push", pushBody("app", nowhere), inbox.StatusLockfileMissing, "no such commit"},
			{"unknown repository", "repos", "push", pushBody("nobody/knows", good), inbox.StatusLockfileMissing, "no such repository"},
			{"path out of the base", "repos", "push", pushBody("../outside", good), inbox.StatusFailed, "refused"},
			{"corrupt lock file", "repos", "push", pushBody("broken", corrupt), inbox.StatusLockfileCorrupt, "line 3"},
			{"no repository named", "repos", "push", `{}`, inbox.StatusReceived, "names no repository"},
			{"generic", "plain", "invoice.paid", `{"id":1}`, inbox.StatusReceived, ""},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				id := g.push(t, tt.source, tt.event, tt.body, "")
				g.settle(t, 1)
				row := g.logged(t, id)
				if row.Status != tt.status || row.Matched != 0 || !strings.Contains(row.Error, tt.errorHas) || (row.Error == "") != (tt.errorHas == "") {
					t.Errorf("event log %+v, want %s and %q", row, tt.status, tt.errorHas)
				}
				if (row.RunID != "") != (tt.status == inbox.StatusLockfileCorrupt) {
					t.Errorf("run %q", row.RunID)
				}
			})
		}
		if diff := cmp.Diff([]string{pipeline.UnresolvedWorkflow}, g.runs.names()); diff != "" {
			t.Fatalf("runs (-want +got):\n%s", diff)
		}
		r := g.runs.all[0]
		if f := r.Plan.InitFailure; f == nil || f.Scope != ci.ScopeRun || f.Category != ci.InitLockResolution || !strings.Contains(f.Message, "line 3, column 1") || r.SHA != corrupt {
			t.Errorf("init failure %+v at %s", f, r.SHA)
		}
	})
}

// A corrupt lock file is read at the commit of the event: mending it later is another event.
func TestMendedLockFileRuns(t *testing.T) {
	g := newRig(t, storetest.SQLite(t))
	g.push(t, "repos", "push", pushBody("app", g.commit(t, "app", "{")), "")
	g.push(t, "repos", "push", pushBody("app", g.commit(t, "app", lockOf(workflow("ci", onMain, aJob)))), "")
	g.settle(t, 2)
	if got := strings.Join(g.runs.names(), " "); got != pipeline.UnresolvedWorkflow+" ci" && got != "ci "+pipeline.UnresolvedWorkflow {
		t.Errorf("runs %s", got)
	}
}

// once fails the first call.
func once(err error) func(context.Context, engine.Registration) error {
	return func(context.Context, engine.Registration) error {
		result := err
		err = nil
		return result
	}
}

func TestFailureThatPassesIsTriedAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db)
		sha := g.commit(t, "app", lockOf(workflow("a", onMain, aJob), workflow("b", onMain, aJob)))
		g.runs.fail = once(errors.New("database is away"))
		id := g.push(t, "repos", "push", pushBody("app", sha), "")
		if diff := cmp.Diff([]string{"error"}, g.settle(t, 1)); diff != "" {
			t.Error(diff)
		}
		// The other workflow was not stopped by it.
		if diff := cmp.Diff([]string{"b"}, g.runs.names()); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		if row := g.logged(t, id); row.Status != inbox.StatusReceived || !strings.Contains(row.Error, `start workflow "a": register run: database is away`) {
			t.Errorf("event log %+v", row)
		}
		g.now.Add(time.Second.Milliseconds())
		g.settle(t, 1)
		if diff := cmp.Diff([]string{"b", "a"}, g.runs.names()); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		if row := g.logged(t, id); row.Status != inbox.StatusProcessed || row.Matched != 2 || row.Error != "" {
			t.Errorf("event log %+v", row)
		}
	})
}

func TestDefectMetByADeliveryDoesNotEndTheServer(t *testing.T) {
	g := newRig(t, storetest.SQLite(t))
	sha := g.commit(t, "app", lockOf(workflow("a", onMain, aJob)))
	panicked := false
	g.runs.fail = func(context.Context, engine.Registration) error {
		if !panicked {
			panicked = true
			panic("defect")
		}
		return nil
	}
	id := g.push(t, "repos", "push", pushBody("app", sha), "")
	g.settle(t, 1)
	g.now.Add(time.Second.Milliseconds())
	g.settle(t, 1)
	if row := g.logged(t, id); row.Status != inbox.StatusProcessed {
		t.Errorf("event log %+v", row)
	}
}

func TestStopGivesDeliveriesBack(t *testing.T) {
	g := newRig(t, storetest.SQLite(t))
	sha := g.commit(t, "app", lockOf(workflow("a", onMain, aJob)))
	ctx, stop := context.WithCancel(t.Context())
	g.runs.fail = func(ctx context.Context, _ engine.Registration) error {
		stop()
		<-ctx.Done()
		return ctx.Err()
	}
	id := g.push(t, "repos", "push", pushBody("app", sha), "")
	if err := pipeline.New(g.deps).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if row := g.logged(t, id); row.Status != inbox.StatusReceived || row.Error != "" {
		t.Errorf("event log %+v", row)
	}
	g.runs.fail = nil
	g.settle(t, 1) // at once, without waiting for a lease or a pause
	if row := g.logged(t, id); row.Status != inbox.StatusProcessed {
		t.Errorf("event log %+v", row)
	}
}

// One that waited for a busy worker until its lease had all but run out is worked on under a new one.
func TestADeliveryThatWaitedTooLongIsGivenBack(t *testing.T) {
	g := newRig(t, storetest.SQLite(t))
	sha := g.commit(t, "app", lockOf(workflow("a", onMain, aJob)))
	g.deps.Workers = 1
	working, release := make(chan struct{}), make(chan struct{})
	block := false
	g.runs.fail = func(context.Context, engine.Registration) error {
		if block {
			block = false
			close(working)
			<-release
		}
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- pipeline.New(g.deps).Run(ctx) }()
	g.push(t, "repos", "push", pushBody("app", sha), "")
	<-g.counted
	block = true
	answered := make(chan error)
	go func() { // it is stored with its run
		_, err := tryPush(t, g.url, "repos", "push", pushBody("app", sha), "")
		answered <- err
	}()
	<-working
	id := g.push(t, "repos", "push", pushBody("app", sha), "")
	late := g.now.Add((25 * time.Second).Milliseconds())
	close(release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	<-g.counted
	<-g.counted
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var until int64
	var attempts int
	err := g.db.Read().QueryRowContext(t.Context(), "SELECT lease_until, attempts FROM inbox WHERE delivery_id = $1", id).Scan(&until, &attempts)
	if err != nil || until != late+(30*time.Second).Milliseconds() || attempts != 1 {
		t.Errorf("leased until %d, attempt %d, %v", until-late, attempts, err)
	}
	if row := g.logged(t, id); row.Status != inbox.StatusProcessed {
		t.Errorf("event log %+v", row)
	}
}

func TestDeliveryOfADeletedSourceStartsNothing(t *testing.T) {
	g := newRig(t, storetest.SQLite(t))
	id := g.push(t, "repos", "push", pushBody("app", g.commit(t, "app", lockOf(workflow("a", onMain, aJob)))), "")
	if err := g.sources.Delete(t.Context(), g.source.ID); err != nil {
		t.Fatal(err)
	}
	g.settle(t, 1)
	if row := g.logged(t, id); row.Status != inbox.StatusReceived || !strings.Contains(row.Error, "deleted") || len(g.runs.names()) != 0 {
		t.Errorf("event log %+v, runs %v", row, g.runs.names())
	}
}

// A delivery that another node took in, or whose wake-up got lost, is found by the tick.
func TestDeliveryWithoutAWakeUpIsFound(t *testing.T) {
	g := newRig(t, storetest.SQLite(t))
	sha := g.commit(t, "app", lockOf(workflow("a", onMain, aJob)))
	elsewhere := inbox.New(g.db, func() time.Time { return time.UnixMilli(g.now.Load()) }, nil, inbox.Options{NodeID: "other"})
	started := false
	g.deps.Sources = sourcesThen{g.sources, func() {
		if started {
			return
		}
		started = true
		d := inbox.Delivery{ID: "second", OrgID: "default", RoutingKey: g.source.RoutingKey, SourceID: g.source.ID, Provider: forge.Local,
			Event: "push", Payload: []byte(pushBody("app", sha))}
		if _, err := elsewhere.Accept(t.Context(), d); err != nil {
			t.Error(err)
		}
	}}
	g.push(t, "repos", "push", pushBody("app", sha), "")
	g.settle(t, 2)
	if len(g.runs.names()) != 2 {
		t.Errorf("runs %v", g.runs.names())
	}
}

type sourcesThen struct {
	pipeline.Sources
	then func()
}

func (s sourcesThen) Get(ctx context.Context, id string) (forge.Source, error) {
	defer s.then()
	return s.Sources.Get(ctx, id)
}

func TestTriggerStartsWhatAPushWould(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g := newRig(t, db)
		plain := g.add(t, "plain", nil)
		sha := g.commit(t, "app", lockOf(workflow("ci", onMain, aJob), workflow("release", onOther, aJob)))
		run(t, g.base+"/app", "branch", "release/1")
		for ref, want := range map[string]string{"": "ci", "main": "ci", "release/1": "release", sha: "ci"} {
			id, at, err := g.ingest.Trigger(t.Context(), g.source.ID, "app", ref, "alice")
			if err != nil || at != sha {
				t.Fatalf("trigger %q: %s, %v", ref, at, err)
			}
			g.settle(t, 1)
			last := g.runs.all[len(g.runs.all)-1]
			if last.Plan.Workflow != want || last.TriggeredBy != "alice" || last.DeliveryID != id || last.SHA != sha || last.CommitMessage != "fix: it" {
				t.Errorf("trigger %q made %s: %+v", ref, last.Plan.Workflow, last)
			}
		}
		// A person asking twice means two runs.
		if len(g.runs.all) != 4 {
			t.Errorf("%d runs, want 4", len(g.runs.all))
		}
		for name, tt := range map[string]struct {
			source, repo, ref string
			want              error
		}{
			"unknown source":     {"nope", "app", "", forge.ErrUnknownSource},
			"no repositories":    {plain.ID, "app", "", ingest.ErrCannotTrigger},
			"unknown repository": {g.source.ID, "other", "", forge.ErrNoRepository},
			"unknown ref":        {g.source.ID, "app", "dev", forge.ErrNoCommit},
			"path out of base":   {g.source.ID, "../app", "", forge.ErrRefused},
		} {
			if _, _, err := g.ingest.Trigger(t.Context(), tt.source, tt.repo, tt.ref, "alice"); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// BenchmarkPostToRegister measures from the POST to the registration of its run.
func BenchmarkPostToRegister(b *testing.B) {
	g := newRig(b, storetest.SQLite(b))
	sha := g.commit(b, "app", lockOf(workflow("ci", onMain, aJob)))
	registered := make(chan struct{})
	g.deps.Engine = engineFunc{g.db, func(context.Context, engine.Registration) error { registered <- struct{}{}; return nil }}
	g.deps.Processed = nil
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- pipeline.New(g.deps).Run(ctx) }()
	body := pushBody("app", sha)
	for b.Loop() {
		go g.push(b, "repos", "push", body, "")
		<-registered
	}
	cancel()
	<-ended
}

type engineFunc struct {
	db *store.DB
	do func(context.Context, engine.Registration) error
}

func (f engineFunc) Origin(context.Context, string) (engine.Origin, error) {
	return engine.Origin{}, engine.ErrRunNotFound
}

func (f engineFunc) Register(ctx context.Context, r engine.Registration, also ...func(ctx context.Context, tx *store.Tx) error) error {
	return errors.Join(f.do(ctx, r), together(ctx, f.db, also))
}

// together does what an engine does in the transaction of a registration.
func together(ctx context.Context, db *store.DB, also []func(ctx context.Context, tx *store.Tx) error) error {
	if len(also) == 0 {
		return nil
	}
	return db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		for _, do := range also {
			if err := do(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}
