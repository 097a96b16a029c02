package lifecycle

import (
	"testing"

	"kici/internal/core/ci"
)

// TestAnAgentThatIsCutOffWhileItCleansUpMayComeBack is about a job that is being cancelled when its connection ends.
func TestAnAgentThatIsCutOffWhileItCleansUpMayComeBack(t *testing.T) {
	tests := []struct {
		name      string
		forced    bool
		singleUse bool
		started   bool
		waits     bool
	}{
		{"politely", false, false, true, true},
		{"by force", true, false, true, false},
		{"an agent that never comes back", false, true, true, false},
		{"before it began", false, false, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run := Run{Status: ci.RunCancelling, Cancel: &Cancel{Forced: tt.forced, Reason: ci.NewReason(ci.ReasonCancelled, "enough", nil)}}
			job := Job{ID: "j", Status: ci.JobCancelling, Row: &Row{Status: ci.QueueDispatched, AgentID: "a", Started: tt.started}}
			o := AgentGone(run, job, Departure{Agent: "a", SingleUse: tt.singleUse, Deadline: 9}, 1)
			if waits := len(o.Ended) == 0 && len(o.Rows) == 1 && o.Rows[0].Op == RowRecover; waits != tt.waits {
				t.Fatalf("outcome %+v", o)
			}
			if !tt.waits {
				return
			}
			job.Row.Status = ci.QueueRecovering
			if back := Returned(run, job, Return{Agent: "a", Listed: true, Fresh: true}, 2); len(back.Effects) != 1 || len(back.Ended) != 0 {
				t.Errorf("on its return %+v", back)
			}
			if late := RecoveryExpired(run, job, false, 10); len(late.Ended) != 1 || late.Jobs[0].Status != ci.JobCancelled {
				t.Errorf("when it does not come back %+v", late)
			}
		})
	}
}
