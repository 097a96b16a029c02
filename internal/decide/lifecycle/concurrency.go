package lifecycle

import (
	"fmt"

	"kici/internal/core/ci"
)

// Concurrency says how many runs of a group may work at a time, and whether a new one takes the place of the others.
type Concurrency struct {
	Max              int // at least 1
	CancelInProgress bool
}

// Slot is a run's place in a group, or in the line for one.
type Slot struct {
	RunID  string
	JobID  string // that waits for it; "" when the run holds it
	Active bool
}

// SlotDecision is what a run that names its group is told.
type SlotDecision struct {
	Proceed   bool
	Supersede []string // runs that must make room
}

// TakeSlot decides about a run that names its group. slots are those of the group, oldest first, without runs that have
// ended. A run that names it again hears the same.
func TakeSlot(runID string, c Concurrency, slots []Slot) SlotDecision {
	active := 0
	var others []string
	for _, s := range slots {
		switch {
		case s.RunID == runID && s.Active:
			return SlotDecision{Proceed: true}
		case s.RunID == runID:
		default:
			others = append(others, s.RunID)
			if s.Active {
				active++
			}
		}
	}
	switch {
	case c.CancelInProgress:
		return SlotDecision{Proceed: true, Supersede: unique(others)}
	case active < c.Max && !queuedBefore(runID, slots):
		return SlotDecision{Proceed: true}
	}
	return SlotDecision{}
}

// queuedBefore tells that another run waits in front: a place that is free for a moment is not taken past it.
func queuedBefore(runID string, slots []Slot) bool {
	for _, s := range slots {
		if !s.Active {
			return s.RunID != runID
		}
	}
	return false
}

func unique(ids []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// NextSlots gives the runs that get a place now, oldest first. limit is what each of them allows in its group.
func NextSlots(slots []Slot, limit func(runID string) int) []string {
	active := map[string]bool{}
	for _, s := range slots {
		if s.Active {
			active[s.RunID] = true
		}
	}
	var next []string
	for _, s := range slots {
		if s.Active || active[s.RunID] {
			continue
		}
		if len(active) >= limit(s.RunID) {
			break // strictly first come, first served
		}
		active[s.RunID] = true
		next = append(next, s.RunID)
	}
	return next
}

// SupersededReason is why a run of a group ends when a newer one takes its place.
func SupersededReason(group, by string) ci.Reason {
	return ci.NewReason(ci.ReasonSuperseded, ci.CutText(fmt.Sprintf("Superseded by run in concurrency group '%s'", group)),
		map[string]string{"group": ci.CutName(group), "by": by})
}

// SlotReason is why a job waits for its run's place in a group.
func SlotReason(group string, holders []string) ci.Reason {
	return ci.NewReason(ci.ReasonConcurrency, ci.CutText(fmt.Sprintf("Queued in concurrency group '%s'", group)),
		map[string]any{"group": ci.CutName(group), "holders": holders[:min(len(holders), ci.MaxListEntries)]})
}

// Withdrawn decides about a job whose agent cannot wait with it for a place in the group: it is taken back, and given out
// again once its run has the place. That costs no attempt, since nothing went wrong. A job of a run that is being
// cancelled ends.
func Withdrawn(run Run, job Job, agent string, why ci.Reason, now int64) Outcome {
	switch {
	case job.Status.Terminal() || !job.Row.heldBy(agent):
		return ignored("the job has ended or is with another agent")
	case run.Cancel != nil:
		return cancelHere(run, job, now)
	}
	return Outcome{
		Rows: []RowChange{{JobID: job.ID, Op: RowWithdraw, Reason: why.Code}},
		Jobs: []JobChange{{JobID: job.ID, Status: ci.JobPending, Reason: &why, WaitSlot: true}},
	}
}

// SlotGiven decides about a job that was taken back, once its run has its place.
func SlotGiven(job Job) Outcome {
	if job.Status.Terminal() || !job.SlotWaiting {
		return ignored("the job does not wait for a place in a group")
	}
	var o Outcome
	job.SlotWaiting = false
	o.admit(job, JobChange{JobID: job.ID, GiveSlot: true})
	return o
}
