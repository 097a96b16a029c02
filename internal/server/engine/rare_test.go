package engine

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"kici/internal/core/label"
	"kici/internal/decide/plan"
	"kici/internal/kit/service"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// What the short statement leaves out stands in the row as if it had been said.
func TestRareColumnsAreTheSameUnsaid(t *testing.T) {
	run, job := insertRuns, insertJobs
	defer func() { insertRuns, insertJobs = run, job }()
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		e := New(Deps{DB: db, Log: slog.New(slog.DiscardHandler), Settings: DefaultSettings(), Clock: func() time.Time { return time.UnixMilli(7) },
			Dispatch: service.NewPoke(), Effects: service.NewPoke()})
		register := func(id string) {
			t.Helper()
			j := plan.Job{ID: id, Name: "j", BaseName: "j", Root: true, TimeoutMs: 1, Pick: "any", Selector: label.Selector{Labels: []string{"x"}}}
			if err := e.Register(t.Context(), Registration{RunID: id, OrgID: "o", Plan: plan.Plan{Workflow: "w", Jobs: []plan.Job{j}}}); err != nil {
				t.Fatal(err)
			}
		}
		insertRuns.all, insertJobs.all = insert{}, insert{}
		register("short")
		insertRuns, insertJobs = mostly{short: run.all}, mostly{short: job.all}
		register("all")
		insertRuns, insertJobs = run, job
		for table, statement := range map[string]insert{"execution_runs": run.all, "execution_jobs": job.all} {
			_, columns, _ := strings.Cut(statement.head, "(")
			columns, _, _ = strings.Cut(columns, ")")
			for column := range strings.SplitSeq(columns, ",") {
				if column = strings.TrimSpace(column); column == "run_id" || column == "job_id" {
					continue
				}
				values, err := store.Texts(t.Context(), db.Read(), "SELECT coalesce(CAST("+column+" AS TEXT), 'none') FROM "+table)
				if err != nil || len(values) != 2 || len(slices.Compact(values)) != 1 {
					t.Errorf("%s of %s is %q, %v", column, table, values, err)
				}
			}
		}
	})
}
