package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// listener notes what it is told of, and fails on demand.
type listener struct {
	fail  error
	heard []string
}

func (l *listener) Ended(_ context.Context, _ *store.Tx, from engine.Source, jobs []engine.EndedJob, run *engine.EndedRun) error {
	for _, j := range jobs {
		l.heard = append(l.heard, fmt.Sprint(from.RunID, " ", j.Name, " ", j.Status, " ", j.DurationMs))
	}
	if run != nil {
		l.heard = append(l.heard, fmt.Sprint(from.RunID, " ", run.Status, " ", len(run.Jobs)))
	}
	return l.fail
}

func (l *listener) RunRepeated(_ context.Context, _ *store.Tx, from engine.Source, again engine.Repetition) error {
	l.heard = append(l.heard, from.RunID+" repeats "+again.ParentRunID)
	return l.fail
}

func TestNothingEndsUnlessOthersAreTold(t *testing.T) {
	each(t, func(b *bench) {
		l := &listener{fail: errors.New("no room for events")}
		settings := engine.DefaultSettings()
		settings.NodeID = "node-1"
		b.e = engine.New(engine.Deps{DB: b.db, Log: slog.New(slog.DiscardHandler), Settings: settings, Events: l,
			Clock:    func() time.Time { return time.UnixMilli(b.now.Load()) },
			Dispatch: service.NewPoke(), Effects: service.NewPoke()})
		b.register("run", job{name: "one"})
		repeated := registration("again", job{name: "one"})
		repeated.ParentRunID = "run"
		if err := b.e.Register(b.t.Context(), repeated); !errors.Is(err, l.fail) {
			b.t.Errorf("registered although nobody could be told: %v", err)
		}
		if _, err := b.e.Origin(b.t.Context(), "again"); !errors.Is(err, engine.ErrRunNotFound) {
			b.t.Errorf("the repetition is there: %v", err)
		}
		b.claim("run/one", "agent-1")
		_, err := b.e.Acked(b.t.Context(), "agent-1", "run", "run/one")
		b.must(err)
		b.report("agent-1", "run/one", ci.JobRunning, "")
		b.now.Add(40)
		err = b.e.JobReported(b.t.Context(), "agent-1", wire.JobStatus{MessageID: "end", JobID: "run/one", State: ci.JobSuccess})
		if !errors.Is(err, l.fail) {
			b.t.Errorf("ended although nobody could be told: %v", err)
		}
		o, err := b.e.Origin(b.t.Context(), "run")
		b.must(err)
		if o.Status != ci.RunRunning {
			b.t.Errorf("the run is %s", o.Status)
		}
		l.fail, l.heard = nil, nil
		b.report("agent-1", "run/one", ci.JobSuccess, "")
		b.report("agent-1", "run/one", ci.JobSuccess, "")
		if d := cmp.Diff([]string{"run one success 40", "run success 1"}, l.heard); d != "" {
			b.t.Error(d)
		}
	})
}
