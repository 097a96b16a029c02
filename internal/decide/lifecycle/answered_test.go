package lifecycle

import (
	"testing"

	"kici/internal/core/ci"
)

// TestWhatMayHaveBegunIsNotGivenOutAgain goes through the ways in which a server learns that an agent no longer has a job.
func TestWhatMayHaveBegunIsNotGivenOutAgain(t *testing.T) {
	ways := map[string]func(job Job, fences bool) Outcome{
		"single-use agent gone": func(job Job, fences bool) Outcome {
			return AgentGone(Run{}, job, Departure{Agent: "a", SingleUse: true, Fences: fences}, 1)
		},
		"agent left in order": func(job Job, fences bool) Outcome {
			return AgentGone(Run{}, job, Departure{Agent: "a", Left: true, Fences: fences, Deadline: 9}, 1)
		},
		"agent back without it": func(job Job, fences bool) Outcome {
			return Returned(Run{}, job, Return{Agent: "a", Fresh: true, Truthful: true, Fences: fences}, 1)
		},
	}
	tests := []struct {
		name                      string
		started, answered, fences bool
		again                     bool
	}{
		{"never answered", false, false, true, true},
		{"answered, and the fence is open", false, true, true, false},
		{"answered by an agent that reports before it begins", false, true, false, true},
		{"started", true, true, true, false},
	}
	for way, decide := range ways {
		for _, tt := range tests {
			t.Run(way+"/"+tt.name, func(t *testing.T) {
				row := &Row{Status: ci.QueueDispatched, AgentID: "a", Started: tt.started, Unanswered: !tt.answered}
				o := decide(Job{ID: "j", Status: ci.JobPending, Row: row}, tt.fences)
				if again := len(o.Rows) == 1 && o.Rows[0].Op == RowRequeue; again != tt.again {
					t.Errorf("given out again: %v, outcome %+v", again, o)
				}
			})
		}
	}
}

func TestAnAgentThatTakesAJobAndNeverBeginsItLosesIt(t *testing.T) {
	row := func(unanswered bool) *Row {
		return &Row{Status: ci.QueueDispatched, AgentID: "a", Unanswered: unanswered}
	}
	if o := Stale(Job{ID: "j", Status: ci.JobPending, Row: row(false)}, 130_000, 1); len(o.Ended) != 1 || o.Jobs[0].Status != ci.JobTimedOutStale {
		t.Errorf("taken and silent: %+v", o)
	}
	if o := Stale(Job{ID: "j", Status: ci.JobPending, Row: row(true)}, 130_000, 1); o.Ignored == "" {
		t.Errorf("unanswered, which has its own deadline: %+v", o)
	}
}

// An agent that keeps nothing for later does not repeat that a job began.
func TestAJobThatAnAgentComesBackWithRuns(t *testing.T) {
	tests := []struct {
		name     string
		truthful bool
		job      ci.JobStatus
		want     ci.JobStatus
		run      bool // begins with it
	}{
		{"it would have said that it began", true, ci.JobPending, "", false},
		{"what it said may be lost", false, ci.JobPending, ci.JobRunning, true},
		{"it ran before", true, ci.JobRecovering, ci.JobRunning, true},
		{"it ran before, and keeps nothing", false, ci.JobRecovering, ci.JobRunning, true},
		{"it is being stopped", false, ci.JobCancelling, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job := Job{ID: "j", Status: tt.job, Row: &Row{Status: ci.QueueRecovering, AgentID: "a", Unanswered: true}}
			o := Returned(Run{Status: ci.RunPending}, job, Return{Agent: "a", Listed: true, Fresh: true, Truthful: tt.truthful}, 7)
			if len(o.Jobs) != 1 || o.Jobs[0].Status != tt.want || (o.Jobs[0].StartedAt == 7) != tt.run || (o.Run != nil) != tt.run || o.Rows[0].Op != RowReclaim {
				t.Errorf("%+v, run %+v", o, o.Run)
			}
		})
	}
}
