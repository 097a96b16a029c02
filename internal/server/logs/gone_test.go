package logs

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/logs/retention"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// runsInRows are the runs of which a database has short logs.
func runsInRows(t *testing.T, db *store.DB) []string {
	t.Helper()
	runs, err := store.Texts(t.Context(), db.Read(), "SELECT DISTINCT run_id FROM short_logs ORDER BY run_id")
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func TestShortLogsOfNodesThatAreGone(t *testing.T) {
	const day = 24 * time.Hour
	db := storetest.Postgres(t)
	open := func() *Store { return home{root: t.TempDir(), db: db}.open(t, Options{}) }
	mine, gone, idle, alive := open(), open(), open(), open()
	writeRun(t, mine, "mine", 99*day)
	writeRun(t, gone, "ended", 99*day)
	writeRun(t, gone, "forgotten", 99*day)
	writeRun(t, gone, "open", 99*day)
	writeRun(t, idle, "lately", 90*day)
	writeRun(t, idle, "old", 99*day)
	writeRun(t, alive, "now", 0)
	writeRun(t, alive, "older", 99*day)
	run := states{"open": retention.RunOpen, "forgotten": retention.RunUnknown}.of
	for _, step := range []struct {
		what string
		keep retention.Policy
		want []string
	}{
		{"kept for ever", retention.Policy{Run: run}, []string{"ended", "forgotten", "lately", "mine", "now", "old", "older", "open"}},
		{"not old enough", retention.Policy{MaxAge: 99 * day, Run: run}, []string{"ended", "forgotten", "lately", "mine", "now", "old", "older", "open"}},
		{"one node is gone", retention.Policy{MaxAge: 90 * day, Run: run}, []string{"lately", "mine", "now", "old", "older", "open"}},
		{"two nodes are", retention.Policy{MaxAge: 90 * day, RunMaxAge: 88 * day, Run: run}, []string{"mine", "now", "older", "open"}},
	} {
		if err := mine.sweepGone(t.Context(), step.keep); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, runsInRows(t, db)); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
	}
}

func TestManyRunsOfANodeThatIsGone(t *testing.T) {
	db := storetest.Postgres(t)
	s := home{root: t.TempDir(), db: db}.open(t, Options{})
	mustExec(t, db, `INSERT INTO short_logs (run_id, folder, name, written_at, data)
SELECT 'run-' || (n / 2), 'gone', 'step-' || n, 1, '' FROM generate_series(1, $1) n`, 5*goneBatch)
	if err := s.sweepGone(t.Context(), retention.Policy{MaxAge: time.Hour, Run: states{"run-7": retention.RunOpen}.of}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"run-7"}, runsInRows(t, db)); diff != "" {
		t.Error(diff)
	}
}

// A forgotten run leaves no row, whichever node had it and whatever it is called.
func TestForgettingARunDeletesItsShortLogs(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		first, second := h.open(t, Options{}), home{root: t.TempDir(), db: h.db}.open(t, Options{})
		for i, s := range []*Store{first, second} {
			for _, run := range []string{"a/b", "c"} {
				c := chunk("a", "1")
				c.RunID, c.StepIndex = run, i
				mustAppend(t, s, c)
			}
		}
		err := h.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return first.ForgetRunTx(ctx, tx, "a/b") })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"c"}, runsInRows(t, h.db)); diff != "" {
			t.Error(diff)
		}
	})
}
