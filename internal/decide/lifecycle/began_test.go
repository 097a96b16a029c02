package lifecycle

import (
	"testing"

	"kici/internal/core/ci"
)

// An agent that comes back after an outage tells at once that a job began and that it ended. How long the job ran is then
// known from the agent alone.
func TestABeginningThatIsToldWithTheEnd(t *testing.T) {
	const claimed, now = 1000, 9000
	tests := []struct {
		name             string
		known, told      int64 // when it began: as is stored, as is told
		jobBegan, runHas int64 // what is stored of the job (0: nothing new) and of the run, which waits for its first job
	}{
		{"in between", 0, 4000, 4000, 4000},
		{"before the agent had it", 0, 10, claimed, claimed},
		{"after its end", 0, now + 5, now, now},
		{"known before", 2000, 4000, 0, now},
		{"not told", 0, 0, 0, now},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job := Job{ID: "j", Status: ci.JobPending, StartedAt: tt.known, Row: &Row{Status: ci.QueueDispatched, AgentID: "a", ClaimedAt: claimed}}
			o := Finished(Run{ID: "r", Status: ci.RunPending}, job, Report{Agent: "a", Status: ci.JobSuccess, BeganAt: tt.told}, now)
			if len(o.Jobs) != 1 || o.Jobs[0].StartedAt != tt.jobBegan || o.Run == nil || o.Run.StartedAt != tt.runHas {
				t.Errorf("jobs %+v, run %+v", o.Jobs, o.Run)
			}
		})
	}
}
