package engine_test

import (
	"context"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// rebooting is a run of two jobs with agent-1, of which one has started, whose host is about to reboot until then.
func (b *bench) rebooting(until int64) {
	b.t.Helper()
	b.register("r", job{name: "restart"}, job{name: "other"}, job{name: "after", needs: []string{"restart"}})
	for _, id := range []string{"r/restart", "r/other"} {
		b.write(func(ctx context.Context, tx *store.Tx) error {
			ok, err := queue.Claim(ctx, tx, id, "agent-1", "node-1", 2, b.now.Load(), b.now.Load()+10_000)
			if err == nil && !ok {
				b.t.Errorf("job %s cannot be claimed", id)
			}
			return err
		})
	}
	b.start("agent-1", "r/restart")
	b.write(func(ctx context.Context, tx *store.Tx) error {
		_, err := fleet.AwaitReboot(ctx, tx, "agent-1", "c-agent-1", until)
		return err
	})
}

func (b *bench) disconnect(id string) {
	b.t.Helper()
	b.write(func(ctx context.Context, tx *store.Tx) error {
		_, err := fleet.Gone(ctx, tx, id, "c-"+id, b.now.Load())
		return err
	})
}

// wantRebooted requires that the started job ended well with the host and the other one is offered again.
func (b *bench) wantRebooted() {
	b.t.Helper()
	b.wantJobs(map[string]string{"r/restart": "success", "r/other": "pending", "r/after": "pending"})
	if got := b.rowStatus("r/restart") + " " + b.rowStatus("r/other") + " " + b.rowStatus("r/after"); got != "completed pending pending" {
		b.t.Errorf("rows are %s", got)
	}
	if code := b.reasonCode("execution_jobs", "job_id", "r/restart"); code != ci.ReasonReboot {
		b.t.Errorf("the job ended for the reason %s", code)
	}
	if got := b.text("SELECT error_message FROM execution_jobs WHERE job_id = 'r/restart'"); got != "" {
		b.t.Errorf("the job has the error %q", got)
	}
}

func (b *bench) back(inFlight ...wire.InFlightJob) []wire.JobCancel {
	b.t.Helper()
	b.write(func(ctx context.Context, tx *store.Tx) error {
		a, err := fleet.Get(ctx, tx, "agent-1")
		if err != nil {
			return err
		}
		return fleet.Seen(ctx, tx, a)
	})
	cancels, err := b.e.Connected(b.t.Context(), "agent-1", inFlight, true)
	b.must(err)
	if a, err := fleet.Get(b.t.Context(), b.db.Read(), "agent-1"); err != nil || a.RebootUntil != 0 {
		b.t.Errorf("the host is back, and its reboot lasts until %d (%v)", a.RebootUntil, err)
	}
	return cancels
}

func TestAnExpectedRebootIsNoLoss(t *testing.T) {
	each(t, func(b *bench) {
		b.rebooting(b.now.Load() + 600_000)
		b.disconnect("agent-1")
		b.must(b.e.Lost(t.Context(), "agent-1", "c-agent-1", false))
		b.wantRebooted()
		if cancels := b.back(wire.InFlightJob{RunID: "r", JobID: "r/restart"}); len(cancels) != 1 {
			t.Errorf("an agent that holds the job all the same is told %+v", cancels)
		}
		b.run("agent-1", "r/other", ci.JobSuccess, "")
		b.run("agent-1", "r/after", ci.JobSuccess, "")
		b.wantRun("r", "success", "")
	})
}

func TestARebootWhoseTimeIsUpIsALossLikeAnyOther(t *testing.T) {
	each(t, func(b *bench) {
		b.rebooting(b.now.Load() + 1000)
		b.now.Add(1000)
		b.disconnect("agent-1")
		b.must(b.e.Lost(t.Context(), "agent-1", "c-agent-1", false))
		b.wantJobs(map[string]string{"r/restart": "recovering", "r/other": "pending"})
		if got := b.rowStatus("r/restart") + " " + b.rowStatus("r/other"); got != "recovering recovering" {
			t.Errorf("rows are %s", got)
		}
	})
}

// A server that was away has not seen the connection end. The agent may run the job still, so it is asked first.
func TestARebootIsNotForgottenOverARestartOfTheServer(t *testing.T) {
	after := map[string]func(b *bench){
		"its agent comes back without the job": func(b *bench) { b.back() },
		"its agent does not come back in time": func(b *bench) {
			b.now.Add(130_000)
			b.must(b.e.SweepOnce(b.t.Context()))
		},
	}
	for name, then := range after {
		t.Run(name, func(t *testing.T) {
			each(t, func(b *bench) {
				b.rebooting(b.now.Load() + 600_000)
				b.disconnect("agent-1")
				b.must(b.e.Adopt(t.Context(), "node-1"))
				b.wantJobs(map[string]string{"r/restart": "recovering"})
				then(b)
				b.wantRebooted()
			})
		})
	}
	t.Run("its agent runs the job still", func(t *testing.T) {
		each(t, func(b *bench) {
			b.rebooting(b.now.Load() + 600_000)
			b.disconnect("agent-1")
			b.must(b.e.Adopt(t.Context(), "node-1"))
			if cancels := b.back(wire.InFlightJob{RunID: "r", JobID: "r/restart"}); len(cancels) != 0 {
				t.Errorf("told %+v", cancels)
			}
			b.wantJobs(map[string]string{"r/restart": "running", "r/other": "pending"})
			b.report("agent-1", "r/restart", ci.JobFailed, `{"error":"no"}`)
			b.wantJobs(map[string]string{"r/restart": "failed"})
		})
	})
}
