package server_test

import (
	"context"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
)

// refuseSteps makes the database refuse every step of a name, and nothing else.
func refuseSteps(t *testing.T, h *servertest.Home, name string) {
	t.Helper()
	rule := `CREATE TRIGGER refused BEFORE INSERT ON execution_steps WHEN NEW.step_name = '` + name + `' BEGIN SELECT RAISE(ABORT, 'refused'); END`
	if h.Settings.DatabaseURL != "" {
		rule = `ALTER TABLE execution_steps ADD CONSTRAINT refused CHECK (step_name <> '` + name + `')`
	}
	err := h.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, rule)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// One row that the database will not have must not keep an agent busy for ever: its job ends with the reason, and the
// agent, which has nothing left to send again, takes the next job.
func TestAStepThatTheDatabaseRefusesEndsItsJob(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		refuseSteps(t, h, "poison")
		h.Start(t)
		p := h.Dial(t)
		p.Hello(h, wire.AgentRegister{AgentID: "a", Labels: []string{"linux"}, MaxConcurrency: 1, Features: []string{wire.FeatureFrameAck}})
		sha := h.Commit(t, app, servertest.Lock("build"))
		h.Push(t, app, "main", sha)
		d := nextDispatch(t, p, "build")
		p.Send(wire.JobAck{MessageID: "1", RunID: d.RunID, JobID: d.JobID, Timestamp: 1})
		p.Send(wire.JobStatus{MessageID: "2", RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: 1})
		p.Send(wire.StepStatus{MessageID: "3", RunID: d.RunID, JobID: d.JobID, StepName: "poison", State: ci.StepSuccess, Timestamp: 1})
		cancelled := false
		for acked := ""; acked != "3"; {
			switch m := p.Next().(type) {
			case wire.Ack:
				acked = m.MessageID
			case wire.JobCancel:
				cancelled = m.JobID == d.JobID && m.Reason == wire.ReasonNotAssigned
			}
		}
		if !cancelled {
			t.Error("the agent was not told to let go of the job")
		}
		var status, why string
		err := h.DB.Read().QueryRowContext(t.Context(), "SELECT status, error_message FROM execution_jobs WHERE job_id = $1", d.JobID).Scan(&status, &why)
		if err != nil || status != "failed" || !strings.Contains(why, "The server cannot keep a step.status frame of this job") {
			t.Errorf("the job is %s because of %q, %v", status, why, err)
		}
		h.Push(t, app, "main", sha)
		nextDispatch(t, p, "build")
	})
}
