package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
)

// TestACancelThatOvertakesADispatchIsNotLost is about an agent that is told to stop a job of which it has not heard yet.
func TestACancelThatOvertakesADispatchIsNotLost(t *testing.T) {
	wish := Cancel{By: "somebody", Reason: ci.NewReason(ci.ReasonCancelled, "no longer wanted", nil)}
	stop := []Effect{CancelJob{AgentID: "a", JobID: "j", Reason: "no longer wanted", GraceMs: 7}}
	tests := []struct {
		name string
		job  ci.JobStatus
		row  Row
		want ci.JobStatus
		run  ci.RunStatus // what the cancel makes of it before its last job has ended
	}{
		{"the agent has not answered the dispatch", ci.JobPending, Row{Status: ci.QueueDispatched, AgentID: "a", Unanswered: true}, ci.JobCancelled, ""},
		{"the agent has answered", ci.JobPending, Row{Status: ci.QueueDispatched, AgentID: "a"}, ci.JobCancelling, ci.RunCancelling},
		{"the job runs", ci.JobRunning, Row{Status: ci.QueueDispatched, AgentID: "a", Started: true}, ci.JobCancelling, ci.RunCancelling},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := CancelRun(Run{Status: ci.RunPending}, []Job{{ID: "j", Status: tt.job, GraceMs: 7, Row: &tt.row}}, wish, 9)
			if len(o.Jobs) != 1 || o.Jobs[0].Status != tt.want || o.Run.Status != tt.run {
				t.Errorf("jobs %+v, run %+v", o.Jobs, o.Run)
			}
			if diff := cmp.Diff(stop, o.Effects); diff != "" {
				t.Errorf("the agent is told (-want +got):\n%s", diff)
			}
			if tt.want != ci.JobCancelled {
				return
			}
			if len(o.Ended) != 1 || len(o.Rows) != 1 || o.Rows[0].Op != RowFail {
				t.Fatalf("rows %+v, ended %v", o.Rows, o.Ended)
			}
			tt.row.Status = ci.QueueFailed
			if _, fenced := Acked("j", &tt.row, "a"); !fenced {
				t.Error("an answer that comes late lets the agent begin")
			}
		})
	}
}
