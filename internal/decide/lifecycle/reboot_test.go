package lifecycle

import (
	"strings"
	"testing"

	"kici/internal/core/ci"
)

// TestAJobEndsWellWithTheRebootOfItsHost goes through the ways in which a server learns that an agent is gone whose host was
// about to reboot.
func TestAJobEndsWellWithTheRebootOfItsHost(t *testing.T) {
	lost := func(run Run, job Job, d Departure) Outcome {
		d.Agent, d.Fences, d.Deadline = "a", true, 9
		return AgentGone(run, job, d, 1)
	}
	ways := map[string]func(run Run, job Job) Outcome{
		"its connection ends": func(run Run, job Job) Outcome { return lost(run, job, Departure{Reboots: true}) },
		"it is back without the job": func(run Run, job Job) Outcome {
			return Returned(run, job, Return{Agent: "a", Fresh: true, Fences: true, Rebooted: true}, 1)
		},
		"it does not come back": func(run Run, job Job) Outcome {
			job.Row.Status = ci.QueueRecovering
			return RecoveryExpired(run, job, true, 1)
		},
	}
	tests := []struct {
		name string
		run  Run
		job  Job
		row  Row
		ends ci.JobStatus // "" for a job that does not end with the reboot
		op   RowOp
	}{
		{"started", Run{}, Job{Status: ci.JobRunning}, Row{Started: true}, ci.JobSuccess, RowComplete},
		{"not started", Run{}, Job{Status: ci.JobPending}, Row{Unanswered: true}, "", RowRequeue},
		{"being cancelled", Run{Cancel: &Cancel{Reason: ci.NewReason(ci.ReasonCancelled, "enough", nil)}}, Job{Status: ci.JobCancelling}, Row{Started: true}, ci.JobCancelled, RowFail},
	}
	for way, decide := range ways {
		for _, tt := range tests {
			t.Run(tt.name+"/"+way, func(t *testing.T) {
				job, row := tt.job, tt.row
				row.Status, row.AgentID = ci.QueueDispatched, "a"
				job.ID, job.Kind, job.Row = "j", ci.KindStandard, &row
				o := decide(tt.run, job)
				if len(o.Rows) != 1 || o.Rows[0].Op != tt.op || (len(o.Ended) == 1) != (tt.ends != "") || tt.ends != "" && o.Jobs[0].Status != tt.ends {
					t.Fatalf("outcome %+v", o)
				}
				if tt.ends == ci.JobSuccess && (o.Jobs[0].Reason == nil || o.Jobs[0].Reason.Code != ci.ReasonReboot || o.Jobs[0].Error != "") {
					t.Errorf("the end has the reason %+v, error %q", o.Jobs[0].Reason, o.Jobs[0].Error)
				}
			})
		}
	}
	for name, job := range map[string]Job{
		"works for others":                     {Kind: ci.KindGenerator, Status: ci.JobRunning, Row: &Row{Started: true}},
		"may run, and nothing was heard of it": {Kind: ci.KindStandard, Status: ci.JobPending, Row: &Row{}},
	} {
		job.ID, job.Row.Status, job.Row.AgentID = "j", ci.QueueDispatched, "a"
		if o := lost(Run{}, job, Departure{Reboots: true}); len(o.Rows) != 1 || o.Rows[0].Op != RowRecover {
			t.Errorf("a job that %s: %+v", name, o)
		}
	}
	started := Job{ID: "j", Kind: ci.KindStandard, Status: ci.JobRunning, Row: &Row{Status: ci.QueueDispatched, AgentID: "a", Started: true}}
	if o := lost(Run{}, started, Departure{Reboots: true, SingleUse: true}); len(o.Jobs) != 1 || o.Jobs[0].Status != ci.JobFailed || !strings.Contains(o.Jobs[0].Error, "mid-execution") {
		t.Errorf("of a single-use agent: %+v", o)
	}
	if o := Returned(Run{}, started, Return{Agent: "a", Fresh: true, Listed: true, Rebooted: true}, 1); len(o.Rows) != 1 || o.Rows[0].Op != RowReclaim {
		t.Errorf("of an agent that still has it: %+v", o)
	}
}
