package lifecycle

import (
	"fmt"
	"strings"

	"kici/internal/core/ci"
)

// Planned is a job at its birth: what it needs, and whether it could not be made at all.
type Planned struct {
	Job         Job
	Needs       []string // expanded names of upstream jobs, in order
	InitFailure *ci.InitFailure
}

// Register decides the first state of every job of a new run: roots are queued, others wait with the reason, and those
// that could not be made are born failed, so that their dependants resolve.
func Register(jobs []Planned, now int64) Outcome {
	var o Outcome
	for _, p := range jobs {
		switch {
		case p.InitFailure != nil:
			o.bear(p, now)
		case len(p.Needs) > 0:
			o.Jobs = append(o.Jobs, JobChange{JobID: p.Job.ID, Reason: NeedsReason(p.Needs), Hold: p.Job.Holds})
		default:
			o.admit(p.Job, JobChange{JobID: p.Job.ID, Satisfied: true, Hold: p.Job.Holds})
		}
	}
	if f := allRefused(jobs); f != nil {
		o.Run = &RunChange{InitFailure: f, Reason: reasonOf(ci.ReasonInitFailure, f.Message, nil)}
	}
	return o
}

// BornFailed ends jobs that join a run and could not be made, so that what needs them resolves.
func BornFailed(jobs []Planned, now int64) Outcome {
	var o Outcome
	for _, p := range jobs {
		o.bear(p, now)
	}
	return o
}

func (o *Outcome) bear(p Planned, now int64) {
	reason := reasonOf(ci.ReasonInitFailure, p.InitFailure.Message, map[string]string{"category": p.InitFailure.Category})
	o.end(p.Job, ci.JobFailed, reason, now).InitFailure = p.InitFailure
}

// NeedsReason says what a job waits for.
func NeedsReason(names []string) *ci.Reason {
	shown := names[:min(len(names), ci.MaxListEntries)]
	return reasonOf(ci.ReasonNeeds, "waits for "+strings.Join(shown, ", "), map[string]any{"needs": shown, "count": len(names)})
}

// allRefused gives the run its own init failure when no job of it could be made.
func allRefused(jobs []Planned) *ci.InitFailure {
	for _, p := range jobs {
		if p.InitFailure == nil {
			return nil
		}
	}
	if len(jobs) == 0 {
		return &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitEnvironmentRules, Message: "the workflow has no jobs"}
	}
	first := jobs[0].InitFailure
	if len(jobs) == 1 {
		return &ci.InitFailure{Scope: ci.ScopeRun, Category: first.Category, Message: first.Message}
	}
	return &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitEnvironmentRules,
		Message: ci.CutText(fmt.Sprintf("none of the %d jobs could be made: %s", len(jobs), first.Message))}
}

// Stillborn decides about a run of which no job can be made.
func Stillborn(f ci.InitFailure, now int64) Outcome {
	f.Message = ci.CutText(f.Message)
	return Outcome{Run: &RunChange{Status: ci.RunFailed, CompletedAt: now, InitFailure: &f,
		Reason: reasonOf(ci.ReasonInitFailure, f.Message, map[string]string{"category": f.Category})}}
}
