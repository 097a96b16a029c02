package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// keeper fails on demand.
type keeper struct {
	fail   error
	forgot []string
}

func (k *keeper) ForgetRunTx(_ context.Context, _ *store.Tx, runID string) error {
	k.forgot = append(k.forgot, runID)
	return k.fail
}

const day = 24 * time.Hour

// retain is a turn of the retention, and gives the runs that are left.
func (b *bench) retain(keep engine.Retention) []string {
	b.t.Helper()
	b.must(b.e.RetainOnce(b.t.Context(), keep))
	return b.runs()
}

func (b *bench) runs() []string {
	b.t.Helper()
	list, err := store.Texts(b.t.Context(), b.db.Read(), "SELECT run_id FROM execution_runs ORDER BY run_id")
	b.must(err)
	return list
}

func (b *bench) want(what string, got []string, want ...string) {
	b.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		b.t.Errorf("%s (- want, + got):\n%s", what, d)
	}
}

func (b *bench) ended(runID string, parent string) {
	b.t.Helper()
	r := registration(runID, job{name: "one"})
	r.ParentRunID, r.OriginalRunID = parent, parent
	b.must(b.e.Register(b.t.Context(), r))
	b.run("agent-1", runID+"/one", ci.JobSuccess, "")
}

func TestRunsAreForgottenWhenTheyEndedLongAgo(t *testing.T) {
	each(t, func(b *bench) {
		b.ended("a", "")
		b.register("open", job{name: "one"})
		b.now.Add(day.Milliseconds())
		b.ended("b", "")
		b.want("for ever", b.retain(engine.Retention{}), "a", "b", "open")
		b.want("too young", b.retain(engine.Retention{MaxAge: day + 1*time.Millisecond}), "a", "b", "open")
		room := &keeper{fail: errors.New("the room is locked")}
		keep := engine.Retention{MaxAge: day, Keepers: []engine.RunKeeper{room}}
		if err := b.e.RetainOnce(t.Context(), keep); !errors.Is(err, room.fail) {
			t.Errorf("forgot although a room could not: %v", err)
		}
		b.want("while a room cannot", b.runs(), "a", "b", "open")
		room.fail, room.forgot = nil, nil
		b.want("old enough", b.retain(keep), "b", "open")
		b.want("what the room was told", room.forgot, "a")
		if key, was, err := engine.Forgotten(t.Context(), b.db.Read(), "a"); key != "generic:default:s" || !was || err != nil {
			t.Errorf("remembered: %q %t %v", key, was, err)
		}
		if _, was, err := engine.Forgotten(t.Context(), b.db.Read(), "b"); was || err != nil {
			t.Errorf("a run that is there is forgotten: %v", err)
		}
		b.now.Add(90 * day.Milliseconds())
		b.want("later", b.retain(keep), "open")
		if _, was, _ := engine.Forgotten(t.Context(), b.db.Read(), "a"); was {
			t.Error("what was forgotten is remembered for ever")
		}
	})
}

func TestARepeatedRunIsKeptAsLongAsItsRepetition(t *testing.T) {
	each(t, func(b *bench) {
		keep := engine.Retention{MaxAge: day}
		b.ended("first", "")
		b.ended("second", "first")
		b.now.Add(day.Milliseconds())
		b.ended("third", "second")
		b.want("while the last is young", b.retain(keep), "first", "second", "third")
		b.now.Add(day.Milliseconds())
		b.want("from the end, one after the other", b.retain(keep), "first", "second")
		b.want("from the end, one after the other", b.retain(keep), "first")
		again := registration("again", job{name: "one"})
		again.ParentRunID, again.OriginalRunID = "second", "first"
		if err := b.e.Register(t.Context(), again); !errors.Is(err, engine.ErrRunNotFound) {
			t.Errorf("a forgotten run was repeated: %v", err)
		}
		b.want("from the end, one after the other", b.retain(keep))
	})
}

func TestManyRunsAreForgottenInOneTurn(t *testing.T) {
	each(t, func(b *bench) {
		for i := range 250 {
			b.register(fmt.Sprint("r", i), job{name: "one"})
			_, err := b.e.Cancel(t.Context(), fmt.Sprint("r", i), "test", "", false)
			b.must(err)
		}
		var jobs []job
		for i := range 40 {
			jobs = append(jobs, job{name: fmt.Sprint("j", i)})
		}
		b.register("wide", jobs...)
		for i := range 40 {
			b.run("agent-1", fmt.Sprint("wide/j", i), ci.JobSuccess, "")
		}
		b.now.Add(day.Milliseconds())
		b.want("afterwards", b.retain(engine.Retention{MaxAge: day}))
		if n := b.text("SELECT CAST(count(*) AS TEXT) FROM dispatch_attempts"); n != "0" {
			t.Errorf("%s attempts are left", n)
		}
	})
}
