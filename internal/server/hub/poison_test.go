package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/logs"
)

// A value that the database refuses, as its driver tells.
var errRefusedValue = fmt.Errorf("store step: %w", &pgconn.PgError{Code: "22001", Message: "value too long: hunter2"})

// refusing lets every call fail but the one that ends the job.
func refusing(err error) func(string) error {
	return func(call string) error {
		if strings.HasPrefix(call, "connected") || strings.HasSuffix(call, " failed") {
			return nil
		}
		return err
	}
}

func step(job, id, name string) wire.StepStatus {
	return wire.StepStatus{MessageID: id, RunID: "r", JobID: job, StepName: name, State: ci.StepSuccess, Timestamp: 1}
}

func TestAFrameThatIsNeverTakenEndsItsJobAndIsAcknowledged(t *testing.T) {
	for name, frame := range map[string]wire.Message{
		"step.status":        step("j", "1", "s"),
		"job.status":         status("j", "1", ci.JobSuccess),
		"log.chunk":          chunk("j", 0, "1", "x"),
		"concurrency report": wire.ConcurrencyReport{MessageID: "1", RunID: "r", JobID: "j", Group: "g"},
		"approval":           wire.ApprovalRequest{MessageID: "1", RunID: "r", JobID: "j", StepName: "s", Clauses: []wire.Clause{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(d *Deps) {
				d.Concurrency = &fakeConcurrency{fail: errRefusedValue}
				d.Approvals = refusingApprovals{}
			})
			b.engine.give("a", "j")
			b.engine.refuse, b.logs.fail = refusing(errRefusedValue), errRefusedValue
			p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
			p.send(frame)
			if got := expect[wire.JobCancel](p); got.JobID != "j" || got.Reason != wire.ReasonNotAssigned {
				t.Errorf("cancel %+v", got)
			}
			if got := expect[wire.Ack](p); got.MessageID != "1" {
				t.Errorf("acknowledged %+v", got)
			}
			if calls := b.engine.seen(); !slices.Contains(calls, "job j failed") {
				t.Errorf("calls %q", calls)
			}
			p.settle() // the connection goes on
		})
	}
}

type refusingApprovals struct{}

func (refusingApprovals) Request(context.Context, string, wire.ApprovalRequest) (*wire.ApprovalResolved, error) {
	return nil, errRefusedValue
}

// An acknowledged job.ack is the permission to start.
func TestAJobAckThatIsNeverTakenIsNotAcknowledged(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j")
	b.engine.refuse = refusing(errRefusedValue)
	p, _ := b.join(t, agent("a", wire.FeatureFrameAck, wire.FeatureStartFence))
	p.send(wire.JobAck{MessageID: "1", RunID: "r", JobID: "j", Timestamp: 1})
	expect[wire.JobCancel](p)
	p.settle()
}

func TestTheReasonOfAPoisonedJobQuotesNoValue(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j")
	reported := make(chan wire.JobStatus, 1)
	b.engine.refuse = refusing(errRefusedValue)
	b.engine.reported = reported
	p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
	p.send(step("j", "1", "s"))
	var data struct{ Error string }
	if err := json.Unmarshal((<-reported).Data, &data); err != nil || !strings.Contains(data.Error, "step.status") || strings.Contains(data.Error, "hunter2") {
		t.Errorf("reason %q, %v", data.Error, err)
	}
}

// Whatever may pass sends the agent away, to send the frame again, and fails no job.
func TestTroubleThatMayPassFailsNoJob(t *testing.T) {
	for name, err := range map[string]error{
		"a conflict": &pgconn.PgError{Code: "40001"}, "no room": logs.ErrFull, "no time": context.DeadlineExceeded, "nobody knows": errors.New("odd"),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.engine.give("a", "j")
			b.engine.refuse = refusing(err)
			for range 2 * poisonTries {
				p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
				p.send(step("j", "1", "s"))
				p.expectClose(wire.CloseInternal, wire.ReasonInternal)
			}
			if calls := b.engine.seen(); slices.Contains(calls, "job j failed") {
				t.Errorf("calls %q", calls)
			}
		})
	}
}

func TestAnErrorOfWhichNobodyKnowsCountsInTheEnd(t *testing.T) {
	b := newBench(t)
	odd, known := errors.New("odd"), &pgconn.PgError{Code: "57P01"}
	for i := range 3 * poisonTries {
		if b.hopeless("a 1", odd) || b.hopeless("a 2", known) {
			t.Fatalf("given up at once, try %d", i)
		}
	}
	b.clock.advance(poisonAfter)
	if b.hopeless("a 2", known) || b.hopeless("a 3", odd) {
		t.Error("an outage is no poison, and one try is none")
	}
	if !b.hopeless("a 1", odd) {
		t.Error("tried for ever")
	}
}

// When the job cannot be failed for now, the frame is not lost.
func TestAPoisonedFrameWaitsForItsJobToFail(t *testing.T) {
	b := newBench(t)
	b.engine.give("a", "j")
	b.engine.refuse = func(call string) error {
		switch {
		case strings.HasPrefix(call, "step"):
			return errRefusedValue
		case strings.HasSuffix(call, "failed"):
			return &pgconn.PgError{Code: "08006"}
		}
		return nil
	}
	p, _ := b.join(t, agent("a", wire.FeatureFrameAck))
	p.send(step("j", "1", "s"))
	p.expectClose(wire.CloseInternal, wire.ReasonInternal)
}
