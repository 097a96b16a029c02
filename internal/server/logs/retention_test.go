package logs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/logs/retention"
	"kici/internal/server/logs/search"
	"kici/internal/server/store"
)

// states answers for runs; those it does not name have ended.
type states map[string]retention.RunState

func (s states) of(_ context.Context, run string) (retention.RunState, error) {
	if state, ok := s[run]; ok {
		return state, nil
	}
	return retention.RunEnded, nil
}

// writeRun stores a log of a run as if it had been written that long ago.
func writeRun(t testing.TB, s *Store, run string, age time.Duration) {
	t.Helper()
	c := chunk("a", strings.Repeat("x", 1000))
	c.RunID = run
	mustAppend(t, s, c)
	when := time.Now().Add(-age)
	if s.rows != nil {
		mustExec(t, s.rows.db, "UPDATE short_logs SET written_at = $1 WHERE run_id = $2", when.UnixMilli(), run)
	} else if err := os.Chtimes(filepath.Join(s.root.Name(), Path(run, "build", 0)), when, when); err != nil {
		t.Fatal(err)
	}
}

// sweepOnce looks at all logs.
func sweepOnce(t testing.TB, s *Store, keep retention.Policy) error {
	w := &sweeper{Store: s, keep: keep}
	return errors.Join(w.sweepHere(t.Context()), w.sweepFar(t.Context()))
}

func mustExec(t testing.TB, db *store.DB, statement string, args ...any) {
	t.Helper()
	err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// kept are the runs whose logs are there. Those of runs that nobody knows leave no mark.
func kept(t testing.TB, s *Store, runs ...string) (out []string) {
	t.Helper()
	for _, run := range runs {
		lines, _, _, err := s.Lines(t.Context(), Path(run, "build", 0), 0, 1)
		switch {
		case err == nil && len(lines) == 1:
			out = append(out, run)
		case err != nil && !errors.Is(err, ErrExpired):
			t.Errorf("log of run %s: %d lines, %v", run, len(lines), err)
		}
	}
	return out
}

func TestSweep(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	tests := []struct {
		name string
		keep retention.Policy
		runs states
		want []string
	}{
		{"by age", retention.Policy{MaxAge: 2 * day}, nil, []string{"day", "hour", "now"}},
		{"not while the run goes on", retention.Policy{MaxAge: 2 * day}, states{"week": retention.RunOpen}, []string{"week", "day", "hour", "now"}},
		{"as soon as runs are forgotten", retention.Policy{RunMaxAge: 2 * day}, states{"week": retention.RunUnknown}, []string{"day", "hour", "now"}},
		{"no later than runs are forgotten", retention.Policy{MaxAge: 30 * day, RunMaxAge: 2 * day}, nil, []string{"day", "hour", "now"}},
		{"before runs are forgotten", retention.Policy{MaxAge: 2 * day, RunMaxAge: 30 * day}, nil, []string{"day", "hour", "now"}},
		{"a run that nobody knows goes by age", retention.Policy{MaxAge: 2 * day}, states{"week": retention.RunUnknown}, []string{"day", "hour", "now"}},
		{"by size, the oldest first", retention.Policy{MaxTotal: 2500}, nil, []string{"hour", "now"}},
		{"by size, but not while the run goes on", retention.Policy{MaxTotal: 2500}, states{"week": retention.RunOpen, "day": retention.RunOpen}, []string{"week", "day", "now"}},
		{"by size, but not a run that nobody knows", retention.Policy{MaxTotal: 2500}, states{"week": retention.RunUnknown}, []string{"week", "now"}},
		{"nothing that was just written", retention.Policy{MaxAge: time.Nanosecond, MaxTotal: 1}, nil, []string{"now"}},
		{"for ever", retention.Policy{}, nil, []string{"week", "day", "hour", "now"}},
		{"within its bounds", retention.Policy{MaxAge: 30 * day, MaxTotal: 1 << 20}, nil, []string{"week", "day", "hour", "now"}},
	}
	eachWhole(t, func(t *testing.T, h home) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				s := h.anew(t).open(t, Options{})
				for run, age := range map[string]time.Duration{"week": 7 * day, "day": day, "hour": hour, "now": 0} {
					writeRun(t, s, run, age)
				}
				tt.keep.Run = tt.runs.of
				if err := sweepOnce(t, s, tt.keep); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, kept(t, s, "week", "day", "hour", "now")); diff != "" {
					t.Error(diff)
				}
				stats, one := s.Stats(), s.Stats().Bytes/4
				if gone := int64(4 - len(tt.want)); stats.ExpiredRuns != gone || stats.ExpiredBytes != gone*one || stats.KeptBytes != (4-gone)*one {
					t.Errorf("stats %+v", stats)
				}
			})
		}
	})
}

func TestDeletedLogReadsAsExpired(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		mustAppend(t, s, chunk("a", "1"))
		flush(t, s)
		if gone, err := (keeper{s}).Remove(t.Context(), "r", true); err != nil || !gone {
			t.Fatal(err)
		}
		for range 2 {
			_, _, _, lines := s.Lines(t.Context(), buildLog, 0, 1)
			_, _, last := s.Tail(t.Context(), buildLog, 1)
			_, search := s.Search(t.Context(), buildLog, search.Query{Text: "1"})
			_, whole := s.Open(t.Context(), buildLog)
			_, wait := s.Wait(t.Context(), buildLog, 0)
			for i, err := range []error{lines, last, search, whole, wait} {
				if !errors.Is(err, ErrExpired) {
					t.Errorf("way %d: %v", i, err)
				}
			}
			s.Close()
			s = h.open(t, Options{})
		}
		if _, total, _, err := s.Lines(t.Context(), Path("other", "build", 0), 0, 1); total != 0 || err != nil {
			t.Errorf("a log that never was: %v", err)
		}
		if h.segments != nil {
			if objects, err := h.segments.List(t.Context(), runsFolder); err != nil || len(objects) != 0 {
				t.Errorf("left in the object store: %q, %v", objects, err)
			}
		}
		if left := localFiles(t, h.root); slices.Contains(left, filepath.Join(h.root, runFolder("r"))) {
			t.Errorf("left in the folder: %q", left)
		}
	})
}

func TestSweepOfAnObjectStore(t *testing.T) {
	h := segmentHome(t)
	s := h.open(t, Options{})
	old := fmt.Sprintf("seg-000001-%012x%08x-0-0-3-1", time.Now().Add(-48*time.Hour).UnixMilli(), 1)
	for _, run := range []string{"old", "open"} {
		if _, err := h.segments.Put(t.Context(), Path(run, "build", 0)+"/"+old, strings.NewReader("{}\n")); err != nil {
			t.Fatal(err)
		}
	}
	c := chunk("a", "1")
	c.RunID = "new"
	mustAppend(t, s, c)
	flush(t, s)
	c.RunID = "pending"
	mustAppend(t, s, c)
	keep := retention.Policy{MaxAge: 24 * time.Hour, MaxTotal: 1, Run: states{"open": retention.RunOpen}.of}
	if err := sweepOnce(t, s, keep); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"new", "open", "pending"}, kept(t, s, "new", "old", "open", "pending")); diff != "" {
		t.Error(diff)
	}
	if got := s.Stats(); got.ExpiredRuns != 1 || got.ExpiredBytes != 3 {
		t.Errorf("stats %+v", got)
	}
}

func TestSweepThatCannotAskDeletesNothing(t *testing.T) {
	eachWhole(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		writeRun(t, s, "week", 7*24*time.Hour)
		wrong := errors.New("database is locked")
		err := sweepOnce(t, s, retention.Policy{MaxAge: time.Hour, Run: func(context.Context, string) (retention.RunState, error) { return retention.RunEnded, wrong }})
		if !errors.Is(err, wrong) {
			t.Errorf("got %v", err)
		}
		if len(kept(t, s, "week")) != 1 {
			t.Error("it is gone")
		}
	})
}
