package pipeline_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/label"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/pipeline"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// engaged gives a rig the real engine.
func engaged(t *testing.T, db *store.DB) (*rig, *engine.Engine) {
	g := newRig(t, db)
	settings := engine.DefaultSettings()
	settings.NodeID = "n"
	e := engine.New(engine.Deps{DB: db, Clock: g.deps.Clock, Log: slog.New(slog.DiscardHandler), Settings: settings,
		Dispatch: service.NewPoke(), Effects: service.NewPoke()})
	g.deps.Engine = e
	return g, e
}

func text(t *testing.T, db *store.DB, query string, args ...any) (s string) {
	t.Helper()
	if err := db.Read().QueryRowContext(t.Context(), query, args...).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestARunIsRepeatedAsItWas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g, e := engaged(t, db)
		sha := g.commit(t, "team/app", lockOf(workflow("ci", onMain, aJob), workflow("docs", onMain, aJob)))
		g.push(t, "repos", "push", pushBody("team/app", sha), "k")
		g.settle(t, 1)
		g.commit(t, "team/app", lockOf(workflow("other", onMain, aJob))) // what came later does not matter
		first := text(t, db, "SELECT run_id FROM execution_runs WHERE workflow_name = 'ci'")
		p := pipeline.New(g.deps)
		refused := func(want pipeline.RerunKind, id string) {
			t.Helper()
			var refusal *pipeline.RerunRefusal
			if _, err := p.Rerun(t.Context(), id, "api_key:1"); !errors.As(err, &refusal) || refusal.Kind != want || refusal.Message == "" {
				t.Errorf("rerun of %s: %v, want %s", id, err, want)
			}
		}
		refused(pipeline.RerunUnknown, "made up")
		refused(pipeline.RerunOpen, first)
		if _, err := e.Cancel(t.Context(), first, "api_key:1", "", false); err != nil {
			t.Fatal(err)
		}
		second, err := p.Rerun(t.Context(), first, "api_key:1")
		if err != nil {
			t.Fatal(err)
		}
		refused(pipeline.RerunTooSoon, first)
		g.now.Add(4999)
		refused(pipeline.RerunTooSoon, first)
		facts := func(id string) string {
			return text(t, db, `SELECT workflow_name || ' ' || sha || ' ' || ref || ' ' || routing_key || ' ' || event || ' ' || coalesce(commit_message, '')
				FROM execution_runs WHERE run_id = $1`, id)
		}
		if diff := cmp.Diff(facts(first), facts(second)); diff != "" {
			t.Error(diff)
		}
		lineage := func(id string) string {
			return text(t, db, `SELECT parent_run_id || ' ' || original_run_id || ' ' || triggered_by || ' ' || trigger_event || ' ' || delivery_id
				FROM execution_runs WHERE run_id = $1`, id)
		}
		if got := lineage(second); got != first+" "+first+" api_key:1 rerun rerun:"+second {
			t.Errorf("lineage %s", got)
		}
		if _, err := e.Cancel(t.Context(), second, "api_key:1", "", false); err != nil {
			t.Fatal(err)
		}
		g.now.Add(6000)
		third, err := p.Rerun(t.Context(), second, "api_key:2")
		if err != nil {
			t.Fatal(err)
		}
		if got := lineage(third); got != second+" "+first+" api_key:2 rerun rerun:"+third {
			t.Errorf("lineage %s", got)
		}
		if text(t, db, "SELECT status FROM dispatch_queue WHERE run_id = $1", third) != "pending" {
			t.Error("the job of the repetition is not queued")
		}
		g.now.Add(6000)
		if err := os.RemoveAll(filepath.Join(g.base, "team/app")); err != nil {
			t.Fatal(err)
		}
		refused(pipeline.RerunLockMissing, second)
		if err := g.sources.Delete(t.Context(), g.source.ID); err != nil {
			t.Fatal(err)
		}
		g.now.Add(6000)
		refused(pipeline.RerunSourceMissing, second)
	})
}

func TestADoubleClickMakesOneRun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		g, e := engaged(t, db)
		g.push(t, "repos", "push", pushBody("app", g.commit(t, "app", lockOf(workflow("ci", onMain, aJob)))), "k")
		g.settle(t, 1)
		first := text(t, db, "SELECT run_id FROM execution_runs")
		if _, err := e.Cancel(t.Context(), first, "api_key:1", "", false); err != nil {
			t.Fatal(err)
		}
		p := pipeline.New(g.deps)
		const clicks = 4
		results := make(chan error, clicks)
		for range clicks {
			go func() {
				_, err := p.Rerun(t.Context(), first, "api_key:1")
				results <- err
			}()
		}
		made := 0
		for range clicks {
			err := <-results
			if refusal, ok := errors.AsType[*pipeline.RerunRefusal](err); err == nil {
				made++
			} else if !ok || refusal.Kind != pipeline.RerunTooSoon {
				t.Error(err)
			}
		}
		if n := text(t, db, "SELECT CAST(count(*) AS TEXT) FROM execution_runs"); made != 1 || n != "2" {
			t.Errorf("%d clicks made a run; there are %s runs", made, n)
		}
	})
}

func TestPlansKnowTheFleet(t *testing.T) {
	g := newRig(t, storetest.SQLite(t))
	seen := func(a fleet.Agent) {
		a.Lifecycle, a.MaxConcurrency, a.NodeID, a.ConnectionID, a.LastSeenAt = fleet.Static, 1, "n", "c-"+a.ID, g.now.Load()
		if err := g.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return fleet.Seen(ctx, tx, a) }); err != nil {
			t.Fatal(err)
		}
	}
	seen(fleet.Agent{ID: "a1", Labels: []string{"windows"}, Platform: "win32", Arch: "x64", Hostname: "win"})
	seen(fleet.Agent{ID: "a2", Labels: []string{"linux", "web"}, Platform: "linux", Arch: "arm64", Hostname: "web-1"})
	seen(fleet.Agent{ID: "a3", Labels: []string{"linux", "web"}, Platform: "linux", Arch: "arm64", Hostname: "web-2"})
	everywhere := `{"_type":"static","name":"all","runsOnAll":{"include":[[{"kind":"exact","value":"web"}]],"exclude":[]},"needs":[],"steps":[]}`
	dynamic := `{"_type":"static","name":"m","runsOn":[{"kind":"exact","value":"linux"}],"needs":[],"steps":[],"dynamicEnv":true}`
	sha := g.commit(t, "app", lockOf(workflow("hosts", onMain, everywhere), workflow("dynamic", onMain, dynamic)))
	g.push(t, "repos", "push", pushBody("app", sha), "k")
	g.settle(t, 1)
	var names []string
	for _, j := range g.runs.all[0].Plan.Jobs {
		names = append(names, j.Name+" "+j.Selector.Pin)
	}
	if diff := cmp.Diff([]string{"all (web-1) a2", "all (web-2) a3"}, names); diff != "" {
		t.Error(diff)
	}
	init := g.runs.all[1].Plan.Jobs[0]
	if diff := cmp.Diff(label.Selector{Labels: []string{"kici:role:init-runner", "kici:os:linux", "kici:arch:arm64"}}, init.Selector); diff != "" {
		t.Error(diff)
	}
	if g.runs.all[1].Plan.Document == nil {
		t.Error("what the run was planned from is not kept")
	}
}
