//go:build unix

package local

import (
	"slices"
	"time"

	"kici/internal/agent/runner"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

// show tells the screen how things are.
func (r *run) show() {
	if r.o.Screen != nil {
		r.o.Screen.Show(r.detail(), r.views())
	}
	r.changed = false
}

func (r *run) detail() adminwire.RunDetail {
	event := r.in.Event.Display()
	d := adminwire.RunDetail{
		Run: adminwire.Run{RunID: r.state.ID, WorkflowName: r.in.Workflow.Name, Status: r.state.Status, Provider: r.in.Source.Provider,
			RepoIdentifier: r.in.Source.Repo, Ref: r.in.Source.Ref, SHA: r.in.Source.SHA, CreatedAt: adminwire.At(r.state.CreatedAt),
			StartedAt: adminwire.At(r.started), CompletedAt: adminwire.At(r.ended), TriggerEvent: &event},
		IsTestRun: true, Reason: r.state.Reason, InitFailure: r.failure,
	}
	if r.ended != 0 {
		took := r.ended - max(r.started, r.state.CreatedAt)
		d.DurationMs = &took
	}
	if r.state.Reason != nil && r.state.Status.Terminal() {
		message := r.mask.String(r.state.Reason.Message)
		d.FailureReason = &message
	}
	return d
}

func (r *run) views() []adminwire.Job {
	views := make([]adminwire.Job, len(r.jobs))
	for i, j := range r.jobs {
		views[i] = j.view
		views[i].Steps = slices.Clone(j.view.Steps)
	}
	return views
}

// step is the entry of a step of the job, which is made when it is new.
func (j *job) step(index int, name, kind string) *adminwire.Step {
	if kind == "step" {
		kind = ""
	}
	at, found := slices.BinarySearchFunc(j.view.Steps, index, func(s adminwire.Step, index int) int { return s.StepIndex - index })
	if !found {
		j.view.Steps = slices.Insert(j.view.Steps, at, adminwire.Step{StepIndex: index, StepName: name, StepType: kind, Status: ci.StepPending})
	}
	return &j.view.Steps[at]
}

// stepName is the name of what says a line.
func (j *job) stepName(index int) string {
	for _, s := range j.view.Steps {
		if s.StepIndex == index {
			return s.StepName
		}
	}
	return "job"
}

func (r *run) stepStarted(j *job, v runner.StepStart) {
	s := j.step(v.StepIndex, v.StepName, v.StepType)
	s.Status = ci.StepRunning
	if v.State == string(ci.StepPending) {
		s.Status = ci.StepPending
	} else {
		s.StartedAt = adminwire.Time{Time: time.Now().UTC()}
	}
	s.ErrorMessage, s.DurationMs, s.CompletedAt = nil, nil, adminwire.Time{} // of an attempt before
	r.changed = true
}

func (r *run) stepEnded(j *job, v runner.StepComplete) {
	s := j.step(v.StepIndex, v.StepName, v.StepType)
	s.Status, s.DurationMs = ci.StepStatus(v.Status), &v.DurationMs
	s.CompletedAt = adminwire.Time{Time: time.Now().UTC()}
	s.SecretsAccessed = v.SecretsAccessed
	if v.Error != nil {
		message := r.mask.String(v.Error.Message)
		s.ErrorMessage = &message
		if v.Error.ExitCode != nil {
			code := int64(*v.Error.ExitCode)
			s.ExitCode = &code
		}
	}
	if v.CheckOutcome != "" {
		s.CheckOutcome = &v.CheckOutcome
		r.drift = r.drift || v.CheckOutcome == "dry-run"
	}
	if v.DriftSummary != "" {
		summary := r.mask.String(v.DriftSummary)
		s.DriftSummary = &summary
	}
	r.changed = true
}

// settleSteps takes over what the job's end says of its steps, which wins over what was said before.
func (j *job) settleSteps(results []runner.StepResult) {
	for _, v := range results {
		s := j.step(v.StepIndex, v.Name, "")
		s.Status, s.DurationMs = ci.StepStatus(v.Status), &v.DurationMs
		if v.Error == "" && s.Status != ci.StepFailed {
			s.ErrorMessage = nil
		}
	}
}

// closeSteps ends the steps that a runner left open when it was ended.
func (j *job) closeSteps() {
	for i := range j.view.Steps {
		if s := &j.view.Steps[i]; !s.Status.Terminal() {
			s.Status = ci.StepCancelled
		}
	}
}

// line passes a line of a log on. Runners mask what they print; this is for what comes from elsewhere.
func (r *run) line(j *job, index int, text string) {
	if r.o.Screen != nil {
		r.o.Screen.Line(adminwire.LogName{JobID: j.view.JobID, Job: j.state.Name, StepIndex: index, Step: j.stepName(index)}, r.mask.String(text))
	}
}
