package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/store"
)

// JobReported is Reported for a state of a job alone.
func (e *Engine) JobReported(ctx context.Context, agentID string, m wire.JobStatus) error {
	return e.Reported(ctx, agentID, Owned{JobID: m.JobID}, m)
}

// Reported takes what an agent says of a job of its, in its order and in one transaction: states of the job
// (wire.JobStatus) and of its steps (wire.StepStatus), before which it may answer the dispatch (wire.JobAck). Where that comes too
// late the error is ErrNotOwner. An error means that nothing of it was taken.
func (e *Engine) Reported(ctx context.Context, agentID string, of Owned, words ...wire.Message) error {
	return e.ReportedAlong(ctx, agentID, of, func(context.Context, *store.Tx) error { return nil }, words...)
}

// ReportedAlong is Reported with something else that is stored in the same transaction.
func (e *Engine) ReportedAlong(ctx context.Context, agentID string, of Owned, along func(context.Context, *store.Tx) error, words ...wire.Message) error {
	said, err := readWords(words) // before the transaction, which keeps others waiting
	if err != nil {
		return err
	}
	return e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := along(ctx, tx); err != nil {
			return err
		}
		return e.hear(ctx, tx, agentID, of, said)
	})
}

// hear takes words about a job. Those about its steps are stored together, before the state that they led to.
func (e *Engine) hear(ctx context.Context, tx *store.Tx, agentID string, of Owned, words []word) (err error) {
	var about subject
	var steps []stepWord
	known := !slices.ContainsFunc(words, word.changesJob) // a word about a step alone locks no run
	ran, told := ranFor(words)
	for i, w := range words {
		if !known && (i == 0 || w.changesJob()) { // the run is locked before its job, whatever comes first
			if about, err = lockSubject(ctx, tx, of, endsNext(words[i:])); err != nil {
				return err
			}
			known = true
		}
		if w.answer {
			if err := e.answered(ctx, tx, agentID, about, words[i+1:]); err != nil {
				return err
			}
			continue
		}
		if w.job == nil {
			steps = withStep(steps, w.step)
			continue
		}
		if told && w.job.State == ci.JobRunning {
			continue // its end says so, too
		}
		r := report(agentID, *w.job, w.data)
		if told && w.ends() {
			r.BeganAt = e.clock.Millis() - ran
		}
		if w.ends() && lifecycle.Accepts(about.job, r) {
			closed := withResults(steps, r.Steps, e.clock.Millis())
			about.next.stepsLeft = about.next.stepsLeft || !closed
		}
		if err := e.stepsReported(ctx, tx, agentID, of, steps); err != nil {
			return err
		}
		if err := e.jobReported(ctx, tx, about, *w.job, r, w.data); err != nil {
			return err
		}
		steps, known = nil, false
	}
	return e.stepsReported(ctx, tx, agentID, of, steps)
}

// answered takes the answer to a dispatch. That the job runs, or has ended, says as much.
func (e *Engine) answered(ctx context.Context, tx *store.Tx, agentID string, about subject, then []word) error {
	change, fenced := lifecycle.Acked(about.job.ID, about.job.Row, agentID)
	switch {
	case fenced:
		return ErrNotOwner
	case change == nil, slices.ContainsFunc(then, word.saysMore):
		return nil
	}
	return e.storeRow(ctx, tx, about.run.ID, *change, e.clock.Millis())
}

// saysMore tells that a job runs or has ended.
func (w word) saysMore() bool { return w.ends() || w.job != nil && w.job.State == ci.JobRunning }

// subject is the job that words are about, locked with its run.
type subject struct {
	run  lifecycle.Run
	job  lifecycle.Job
	next *ahead // what its end concerns, when that comes next
}

func lockSubject(ctx context.Context, tx *store.Tx, of Owned, ends bool) (s subject, err error) {
	if ends {
		s.next = &ahead{}
	}
	s.run, s.job, err = lockJob(ctx, tx, of.JobID, s.next)
	return s, err
}

// word is what an agent says of a job, or of a step of it.
type word struct {
	job  *wire.JobStatus
	data wire.JobData // of job
	step stepWord     // when there is neither a job nor an answer
	// answer says that the agent has the job.
	answer bool
}

func (w word) changesJob() bool { return w.job != nil || w.answer }

// ends tells that a job has ended as its agent has it. There are other ends, which only the server decides.
func (w word) ends() bool { return w.job != nil && slices.Contains(agentsEnds, w.job.State) }

var agentsEnds = []ci.JobStatus{ci.JobSuccess, ci.JobFailed, ci.JobCancelled}

// endsNext tells that the next state of a job that matters is its end.
func endsNext(words []word) bool {
	for _, w := range words {
		if w.job != nil && w.job.State != ci.JobRunning {
			return w.ends()
		}
	}
	return false
}

func readWords(words []wire.Message) (read []word, err error) {
	read = make([]word, len(words))
	for i, m := range words {
		switch m := m.(type) {
		case wire.JobStatus:
			read[i] = word{job: &m, data: wire.ParseJobData(m.Data)}
		case wire.JobAck:
			read[i].answer = true
		case wire.StepStatus:
			if read[i].step, err = stepWordOf(m); err != nil {
				return nil, fmt.Errorf("read what is said of step %d of job %s: %w", m.StepIndex, m.JobID, err)
			}
		default:
			return nil, fmt.Errorf("%s says nothing of a job's state", m.MessageType())
		}
	}
	return read, nil
}

// ranFor is how many milliseconds a job ran, by the clock of its agent, of which words tell that it began and then that it
// ended: what is true in between need not be stored.
func ranFor(words []word) (ran int64, told bool) {
	var began *wire.JobStatus
	for _, w := range words {
		switch {
		case w.job == nil:
		case w.job.State == ci.JobRunning && began == nil:
			began = w.job
		case w.ends() && began != nil:
			return max(0, w.job.Timestamp-began.Timestamp), true
		}
	}
	return 0, false
}

// jobReported takes the state of a job as its agent has it, which for its end is r. States that only the server decides change
// nothing.
func (e *Engine) jobReported(ctx context.Context, tx *store.Tx, about subject, m wire.JobStatus, r lifecycle.Report, data wire.JobData) error {
	if slices.Contains(agentsEnds, m.State) {
		return e.finished(ctx, tx, about, m, r, data)
	}
	var o lifecycle.Outcome
	switch m.State {
	case ci.JobRunning:
		o = lifecycle.Started(about.run, about.job, r.Agent, e.clock.Millis())
	case ci.JobCancelling:
		o = lifecycle.Cancelling(about.job, r.Agent)
	default:
		o = lifecycle.Outcome{Ignored: fmt.Sprintf("the state %s is not an agent's to report", m.State)}
	}
	e.explain(about.run.ID, o)
	return e.apply(ctx, tx, about.run, o)
}

// finished takes the end of a job, with what it gives to its run.
func (e *Engine) finished(ctx context.Context, tx *store.Tx, about subject, m wire.JobStatus, r lifecycle.Report, data wire.JobData) (err error) {
	run, job := about.run, about.job
	var grown []lifecycle.Outcome
	if lifecycle.Accepts(job, r) {
		if job.Kind.Internal() && r.Status == ci.JobSuccess && run.Cancel == nil { // what would join was cancelled before it was made
			if grown, err = e.helped(ctx, tx, job, data, &r); err != nil {
				return err
			}
		}
		if err := e.keepSecretOutputs(ctx, tx, run.ID, m); err != nil {
			return err
		}
		about.next.stands.outputs = about.next.stands.outputs || len(m.SecretOutputs) > 0
		if names := append(data.DroppedJobs, m.DroppedJobs...); len(names) > 0 {
			if r.Dropped, err = dropped(ctx, tx, job.ID, names); err != nil {
				return err
			}
		}
	}
	o := lifecycle.Finished(run, job, r, e.clock.Millis())
	e.explain(run.ID, o)
	if job.Kind.Internal() || len(r.Dropped) > 0 || run.CheckMode != "" { // more changes than that this job has ended
		about.next = nil
	}
	return e.applyAhead(ctx, tx, run, about.next, append([]lifecycle.Outcome{o}, grown...)...)
}

// maxStepResults bounds the steps of which the end of a job tells; each costs the only writer of the database a moment.
const maxStepResults = 10_000

func report(agentID string, m wire.JobStatus, data wire.JobData) lifecycle.Report {
	r := lifecycle.Report{Agent: agentID, Status: m.State, Error: ci.CutText(data.Error), InitFailure: data.InitFailure, Outputs: data.Outputs}
	for _, s := range data.StepResults[:min(len(data.StepResults), maxStepResults)] {
		r.Steps = append(r.Steps, lifecycle.StepResult{
			Name: s.Name, Status: s.Status, DurationMs: int64(s.DurationMs), Error: ci.CutText(errorText(s.Error)),
		})
	}
	return r
}

// errorText reads the error of a step's result, which is a text.
func errorText(raw json.RawMessage) string {
	var text string
	_ = json.Unmarshal(raw, &text) // anything else costs the text, not the result
	return text
}
