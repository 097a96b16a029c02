package report_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/wire"
	"kici/internal/decide/plan"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/report"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const now = 1_767_225_600_000

// seed makes a run with a job on an agent, one that waits for it, one behind a busy agent and one that nobody fits.
func seed(t *testing.T, db *store.DB) *engine.Engine {
	t.Helper()
	settings := engine.DefaultSettings()
	settings.NodeID = "n"
	e := engine.New(engine.Deps{DB: db, Clock: func() time.Time { return time.UnixMilli(now) }, Log: slog.New(slog.DiscardHandler),
		Settings: settings, Dispatch: service.NewPoke(), Effects: service.NewPoke()})
	job := func(name string, labels ...string) plan.Job {
		return plan.Job{ID: "id-" + name, Name: name, BaseName: name, Selector: label.Selector{Labels: labels}, Config: json.RawMessage(`{}`)}
	}
	must(t, e.Register(t.Context(), engine.Registration{RunID: "r", OrgID: "default", RoutingKey: "generic:default:s", Provider: "local",
		Repo: "local/app", Ref: "main", SHA: "abc", TriggerEvent: "push", Plan: plan.Plan{Workflow: "ci",
			Jobs:  []plan.Job{job("build", "linux"), job("test", "linux"), job("other", "linux"), job("gpu", "linux", "gpu")},
			Edges: []plan.Edge{{Job: "test", Upstream: "build", RunOn: []ci.JobStatus{ci.JobSuccess}}}}}))
	must(t, db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if err := fleet.Seen(ctx, tx, fleet.Agent{ID: "a-1", Labels: []string{"linux"}, Lifecycle: fleet.Static, MaxConcurrency: 1,
			NodeID: "n", ConnectionID: "c", LastSeenAt: now}); err != nil {
			return err
		}
		_, err := queue.Claim(ctx, tx, "id-build", "a-1", "n", 1, now, now+10_000)
		return err
	}))
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestQueueNamesTheNearestAgents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		seed(t, db)
		entries, err := report.Queue(t.Context(), db.Read(), report.QueueFilter{Statuses: []string{"pending"}, Limit: 10})
		must(t, err)
		if len(entries) != 2 {
			t.Fatalf("%d pending rows, want 2: %+v", len(entries), entries)
		}
		for _, e := range entries {
			if len(e.Nearest) != 1 || e.Nearest[0].AgentID != "a-1" || e.Nearest[0].Running[0] != "id-build" {
				t.Errorf("nearest agents of %s: %+v", e.JobName, e.Nearest)
			}
			if e.Nearest[0].Fits != (e.JobName == "other") {
				t.Errorf("%s fits: %v", e.JobName, e.Nearest[0].Fits)
			}
		}
	})
}

func TestRunsAreListedNewestFirstAndFiltered(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		seed(t, db)
		tests := []struct {
			name   string
			filter report.RunFilter
			want   int
		}{
			{"all", report.RunFilter{}, 1},
			{"by status", report.RunFilter{Statuses: []string{"pending", "success"}}, 1},
			{"by another status", report.RunFilter{Statuses: []string{"failed"}}, 0},
			{"by workflow and repository", report.RunFilter{Workflow: "ci", Repo: "local/app"}, 1},
			{"strictly later", report.RunFilter{Since: now}, 0},
			{"of another source", report.RunFilter{RoutingKey: "generic:default:t"}, 0},
		}
		for _, tt := range tests {
			tt.filter.Limit = 10
			runs, err := report.Runs(t.Context(), db.Read(), tt.filter)
			must(t, err)
			n, err := report.CountRuns(t.Context(), db.Read(), tt.filter)
			must(t, err)
			if len(runs) != tt.want || n != tt.want {
				t.Errorf("%s: %d runs, count %d, want %d", tt.name, len(runs), n, tt.want)
			}
		}
		if _, _, err := report.RunOf(t.Context(), db.Read(), "none"); !errors.Is(err, report.ErrNotFound) {
			t.Errorf("unknown run: %v", err)
		}
	})
}

func TestJobsCarryNeedsAndSteps(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		e := seed(t, db)
		exit := json.RawMessage(`{"durationMs":5,"error":{"message":"exit 3","exitCode":3}}`)
		must(t, e.Reported(t.Context(), "a-1", engine.Owned{RunID: "r", JobID: "id-build", JobName: "build"}, wire.StepStatus{JobID: "id-build", StepIndex: 0, StepName: "compile", State: ci.StepFailed, Timestamp: now, Data: exit}))
		jobs, err := report.Jobs(t.Context(), db.Read(), "r", true)
		must(t, err)
		if len(jobs) != 4 || len(jobs[1].Needs) != 1 || jobs[1].Needs[0].UpstreamName != "build" {
			t.Fatalf("jobs %+v", jobs)
		}
		if s := jobs[0].Steps; len(s) != 1 || s[0].StepName != "compile" || *s[0].ExitCode != 3 || *s[0].ErrorMessage != "exit 3" {
			t.Errorf("steps %+v", s)
		}
		if jobs[0].Attempts != 1 {
			t.Errorf("attempts %d", jobs[0].Attempts)
		}
	})
}
