package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/engine"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// group asks for a run's place in a group, as an agent does.
func (b *bench) group(agent, jobID, name string, patient bool) wire.ConcurrencyAck {
	b.t.Helper()
	ack, err := engine.Groups{Engine: b.e}.Report(b.t.Context(), agent, patient, wire.ConcurrencyReport{MessageID: "ask-" + jobID, JobID: jobID, Group: name})
	b.must(err)
	return ack
}

// begin claims a job and starts it.
func (b *bench) begin(agent, jobID string) {
	b.t.Helper()
	if !b.claim(jobID, agent) {
		b.t.Fatalf("job %s cannot be claimed: %s", jobID, b.jobStatus(jobID))
	}
	b.start(agent, jobID)
}

// frames takes the frames that agents will be sent.
func (b *bench) frames() (out []wire.Message) {
	b.t.Helper()
	b.must(b.e.FollowOnce(b.t.Context()))
	for _, e := range b.effects() {
		if e.Frame != nil {
			m, err := wire.DecodeFromServer(e.Frame)
			b.must(err)
			out = append(out, m)
		}
	}
	return out
}

const queueMode = `,"concurrency":{"hasGroup":true,"cancelInProgress":false}`

func TestAPatientAgentWaitsForItsPlace(t *testing.T) {
	each(t, func(b *bench) {
		for _, run := range []string{"r1", "r2"} {
			b.plan(run, nil, queueMode, lockJob("a", ""))
		}
		first, second := b.id("r1", "a"), b.id("r2", "a")
		b.begin("agent-1", first)
		b.begin("agent-2", second)
		if ack := b.group("agent-1", first, "deploy", true); ack.Action != wire.ConcurrencyProceed {
			t.Fatalf("first: %+v", ack)
		}
		ack := b.group("agent-2", second, "deploy", true)
		if ack.Action != wire.ConcurrencyWait || ack.Reason != "Queued in concurrency group 'deploy'" {
			t.Fatalf("second: %+v", ack)
		}
		if code := b.reasonCode("execution_jobs", "job_id", second); code != ci.ReasonConcurrency {
			t.Errorf("the waiting job's reason is %s", code)
		}
		if ack := b.group("agent-2", second, "deploy", true); ack.Action != wire.ConcurrencyWait {
			t.Errorf("asked again: %+v", ack)
		}
		b.report("agent-1", first, ci.JobSuccess, "")
		frames := b.frames()
		if len(frames) != 1 || frames[0].(wire.ConcurrencyAck).RequestID != "ask-"+second || frames[0].(wire.ConcurrencyAck).Action != wire.ConcurrencyProceed {
			t.Fatalf("frames %+v", frames)
		}
		// The agent was away when it was told, and is told again when it comes back with the job.
		_, err := b.e.Connected(t.Context(), "agent-2", []wire.InFlightJob{{JobID: second, RunID: "r2"}}, true)
		b.must(err)
		if frames := b.frames(); len(frames) != 1 {
			t.Errorf("frames on return %+v", frames)
		}
		b.report("agent-2", second, ci.JobSuccess, "")
		b.wantRun("r2", "success", "")
	})
}

func TestAnAgentThatCannotWaitLosesTheJobUntilItsTurn(t *testing.T) {
	each(t, func(b *bench) {
		for _, run := range []string{"r1", "r2"} {
			b.plan(run, nil, queueMode, lockJob("a", ""))
		}
		first, second := b.id("r1", "a"), b.id("r2", "a")
		b.begin("agent-1", first)
		b.group("agent-1", first, "deploy", false)
		b.begin("agent-2", second)
		if ack := b.group("agent-2", second, "deploy", false); ack.Action != wire.ConcurrencyWait {
			t.Fatalf("answer %+v", ack)
		}
		b.report("agent-2", second, ci.JobFailed, `{"error":"Cancelled by concurrency policy"}`) // what it makes of the cancel
		b.wantStates("r2", "a=pending")
		b.report("agent-1", first, ci.JobSuccess, "")
		b.must(b.e.FollowOnce(t.Context()))
		b.wantStates("r2", "a=queued")
		b.begin("agent-2", second)
		if ack := b.group("agent-2", second, "deploy", false); ack.Action != wire.ConcurrencyProceed {
			t.Errorf("answer at its turn %+v", ack)
		}
		b.report("agent-2", second, ci.JobSuccess, "")
		b.wantRun("r2", "success", "")
		if n := b.text("SELECT CAST(count(*) AS TEXT) FROM concurrency_slots"); n != "0" {
			t.Errorf("%s places are left", n)
		}
	})
}

func TestANewerRunTakesTheGroup(t *testing.T) {
	each(t, func(b *bench) {
		for _, run := range []string{"r1", "r2"} {
			b.plan(run, nil, `,"concurrency":{"hasGroup":true}`, lockJob("a", ""), lockJob("b", `,"needs":["a"]`))
		}
		first, second := b.id("r1", "a"), b.id("r2", "a")
		b.begin("agent-1", first)
		b.group("agent-1", first, "deploy", true)
		b.begin("agent-2", second)
		if ack := b.group("agent-2", second, "deploy", true); ack.Action != wire.ConcurrencyProceed {
			t.Fatalf("answer %+v", ack)
		}
		b.must(b.e.FollowOnce(t.Context()))
		effects := b.effects()
		if len(effects) != 1 || effects[0].JobID != first || effects[0].Force {
			t.Fatalf("effects %+v: the older run's job is to stop with its grace", effects)
		}
		b.report("agent-1", first, ci.JobCancelled, "")
		b.wantRun("r1", "cancelled", "Superseded by run in concurrency group 'deploy'")
		var reason struct{ Details struct{ Group, By string } }
		b.must(json.Unmarshal([]byte(b.text("SELECT reason FROM execution_runs WHERE run_id = 'r1'")), &reason))
		if reason.Details.Group != "deploy" || reason.Details.By != "r2" {
			t.Errorf("reason %+v", reason)
		}
	})
}

// TestARunThatMakesRoomTakesNothingBack lets a second job of an older run name the group while its run is being superseded:
// before the older run has heard of it, and while its agents clean up.
func TestARunThatMakesRoomTakesNothingBack(t *testing.T) {
	for _, heard := range []bool{false, true} {
		for _, patient := range []bool{false, true} {
			each(t, func(b *bench) {
				for _, run := range []string{"older", "newer"} {
					b.plan(run, nil, `,"concurrency":{"hasGroup":true}`, lockJob("a", ""), lockJob("b", ""))
				}
				b.begin("agent-1", b.id("older", "a"))
				b.group("agent-1", b.id("older", "a"), "deploy", true)
				late := b.id("older", "b")
				b.write(func(ctx context.Context, tx *store.Tx) error {
					_, err := queue.Claim(ctx, tx, late, "agent-1", "node-1", 2, b.now.Load(), b.now.Load()+10_000)
					return err
				})
				b.start("agent-1", late)
				b.begin("agent-2", b.id("newer", "a"))
				b.group("agent-2", b.id("newer", "a"), "deploy", true)
				if heard {
					b.must(b.e.FollowOnce(t.Context()))
				}
				if ack := b.group("agent-1", late, "deploy", patient); ack.Action != wire.ConcurrencyWait {
					t.Errorf("heard %v, patient %v: %+v", heard, patient, ack)
				}
				for range 2 {
					b.must(b.e.FollowOnce(t.Context()))
				}
				want := map[bool]string{false: "cancelled", true: "cancelling"}[patient]
				b.wantJobs(map[string]string{late: want, b.id("newer", "a"): "running"})
				b.report("agent-1", b.id("older", "a"), ci.JobCancelled, "")
				if patient {
					b.report("agent-1", late, ci.JobCancelled, "")
				}
				b.wantRun("older", "cancelled", "Superseded by run in concurrency group 'deploy'")
				if status := b.runStatus("newer"); status != "running" {
					t.Errorf("the newer run is %s", status)
				}
			})
		}
	}
}

func TestGroupsHoldUpOnlyTheirOwn(t *testing.T) {
	each(t, func(b *bench) {
		b.plan("r1", nil, queueMode, lockJob("a", ""))
		b.plan("r2", nil, queueMode, lockJob("a", ""), lockJob("b", ""))
		b.plan("none", nil, "", lockJob("a", ""))
		b.begin("agent-1", b.id("r1", "a"))
		b.group("agent-1", b.id("r1", "a"), "x", true)
		b.begin("agent-2", b.id("r2", "a"))
		for _, name := range []string{"X", "x ", ""} {
			if ack := b.group("agent-2", b.id("r2", "a"), name, true); ack.Action != wire.ConcurrencyProceed {
				t.Errorf("group %q: %+v", name, ack)
			}
		}
		if ack := b.group("agent-1", b.id("r2", "a"), "x", true); ack.Action != wire.ConcurrencyCancel || !strings.Contains(ack.Reason, "no longer assigned") {
			t.Errorf("a job of another agent: %+v", ack)
		}
		b.report("agent-2", b.id("r2", "a"), ci.JobSuccess, "")
		b.begin("agent-2", b.id("none", "a"))
		if ack := b.group("agent-2", b.id("none", "a"), "x", true); ack.Action != wire.ConcurrencyProceed {
			t.Errorf("a workflow without a rule: %+v", ack)
		}
	})
}

// TestACancelEndsTheWait: an agent that waits for a place does nothing else, and hears of a cancel only as the answer to its
// question. It gets that whether it waited before, asks behind the cancel, or comes back to ask again.
func TestACancelEndsTheWait(t *testing.T) {
	for _, asks := range []string{"before", "after", "again"} {
		each(t, func(b *bench) {
			for _, run := range []string{"r1", "r2"} {
				b.plan(run, nil, queueMode, lockJob("a", ""))
			}
			first, second := b.id("r1", "a"), b.id("r2", "a")
			b.begin("agent-1", first)
			b.group("agent-1", first, "deploy", true)
			b.begin("agent-2", second)
			if asks != "after" {
				b.group("agent-2", second, "deploy", true)
			}
			b.cancel("r2", false)
			if asks == "after" {
				if ack := b.group("agent-2", second, "deploy", true); ack.Action != wire.ConcurrencyWait {
					t.Errorf("asked behind the cancel: %+v", ack)
				}
			}
			if asks == "again" {
				b.effects() // it was away
				_, err := b.e.Connected(t.Context(), "agent-2", []wire.InFlightJob{{JobID: second, RunID: "r2"}}, true)
				b.must(err)
			}
			effects := b.effects()
			if len(effects) != 2 || effects[0].JobID != second || effects[1].Frame == nil {
				b.t.Fatalf("%s: effects %+v, want the cancel of the job and then the answer", asks, effects)
			}
			m, err := wire.DecodeFromServer(effects[1].Frame)
			b.must(err)
			want := wire.ConcurrencyAck{RequestID: "ask-" + second, Action: wire.ConcurrencyCancel, Reason: "run cancelled via API", RunID: "r2", JobID: second}
			if m != wire.Message(want) {
				t.Errorf("%s: answer %+v, want %+v", asks, m, want)
			}
		})
	}
}

// The time that a job may take does not count while it waits for its group, also where it had begun before.
func TestAJobThatWaitedLongForItsGroupHasItsWholeTime(t *testing.T) {
	each(t, func(b *bench) {
		for _, run := range []string{"r1", "r2"} {
			b.plan(run, nil, queueMode, lockJob("a", `,"timeout":60000`))
		}
		first, second := b.id("r1", "a"), b.id("r2", "a")
		b.begin("agent-1", first)
		b.group("agent-1", first, "deploy", false)
		b.begin("agent-2", second)
		b.group("agent-2", second, "deploy", false)
		b.report("agent-2", second, ci.JobFailed, `{"error":"Cancelled by concurrency policy"}`)
		b.wantStates("r2", "a=pending")
		b.now.Add(10 * 60_000)
		b.report("agent-1", first, ci.JobSuccess, "")
		b.must(b.e.FollowOnce(t.Context()))
		b.begin("agent-2", second)
		b.must(b.e.SweepOnce(t.Context()))
		b.wantStates("r2", "a=running")
		b.now.Add(1_000)
		b.report("agent-2", second, ci.JobSuccess, "")
		if took := b.list("SELECT duration_ms || '' FROM execution_jobs WHERE run_id = 'r2'"); took[0] != "1000" {
			b.t.Errorf("it took %s ms", took[0])
		}
	})
}
