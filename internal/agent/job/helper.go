package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"kici/internal/core/ci"
)

// kind is what sort of job it is.
type kind string

const (
	standard   kind = ""         // a job of the author's, with steps
	initialise kind = "init"     // computes what of a job only its functions tell
	evaluate   kind = "evaluate" // calls a generator of jobs
	build      kind = "build"    // packs source and dependencies
	bringUp    kind = "bring-up" // starts an agent on another host
)

// kind follows the order in which the protocol tells them apart.
func (c jobConfig) kind() kind {
	switch {
	case c.InitOnly:
		return initialise
	case truthy(c.DynamicJobFn):
		return evaluate
	case c.BringupOnly:
		return bringUp
	case c.BuildOnly:
		return build
	}
	return standard
}

// helps tells whether the job works for others. Such a job has one step, which stands for all of it: the agent reports
// it, under the name of the kind.
func (k kind) helps() bool { return k != standard }

// helpStep is the index of that step.
const helpStep = 0

// maxResult bounds what a job gives that works for others, in bytes of JSON: servers close the connection at frames of
// more than 4 MiB, and the frame holds a little more.
const maxResult = 3 << 20

// logIndex is the log for what is said at a step index. All that a job says which works for others belongs to its step.
func (j *Job) logIndex(index int) int {
	if j.conf.kind().helps() {
		return helpStep
	}
	return index
}

// beginHelp reports the start of the step.
func (j *Job) beginHelp() {
	if k := j.conf.kind(); k.helps() {
		j.postStep(j.stepStatus(helpStep, string(k), ci.StepRunning))
	}
}

// endHelp reports the end of the step, after its log is complete.
func (j *Job) endHelp(res outcome) {
	k := j.conf.kind()
	if !k.helps() {
		return
	}
	state := map[ci.JobStatus]ci.StepStatus{ci.JobSuccess: ci.StepSuccess, ci.JobCancelled: ci.StepCancelled}[res.state]
	if state == "" {
		state = ci.StepFailed
	}
	took := time.Since(j.started)
	data := map[string]any{"durationMs": took.Milliseconds()}
	if res.err != "" {
		data["error"] = res.err
	}
	m := j.stepStatus(helpStep, string(k), state)
	streamed := j.logs.Streamed(helpStep)
	m.LogBytesStreamed, m.Data = &streamed, object(data)
	j.postStep(m)
	j.shop.Metrics.StepEnded(state, took)
}

// checkHelp refuses a success without a result, and a result that no server takes.
func (j *Job) checkHelp(res outcome) error {
	var result json.RawMessage
	switch j.conf.kind() {
	case initialise:
		result = res.result.InitResult
	case evaluate:
		result = res.result.DynamicJobs
	default:
		return nil
	}
	switch {
	case res.state != ci.JobSuccess:
		return nil
	case len(result) == 0:
		return errors.New("the step runner gave no result")
	case len(result) > maxResult:
		return fmt.Errorf("the result has %d bytes, more than the %d that can be sent", len(result), maxResult)
	}
	return nil
}

// helpData is what the terminal status of such a job carries.
func (j *Job) helpData(res outcome) map[string]any {
	k := j.conf.kind()
	data := map[string]any{}
	if res.state == ci.JobSuccess {
		switch k {
		case initialise:
			data["initComplete"], data["initResult"] = true, res.result.InitResult
		case evaluate:
			data["dynamicComplete"], data["dynamicJobs"] = true, res.result.DynamicJobs
		case build:
			data["buildComplete"], data["workflowName"] = true, j.conf.WorkflowName
		}
		return data
	}
	if res.err != "" {
		data["error"] = res.err
	}
	if flag := map[kind]string{initialise: "initFailed", evaluate: "dynamicFailed", build: "buildFailed"}[k]; flag != "" {
		data[flag] = true
	}
	if res.result != nil && len(res.result.InitFailure) > 0 {
		data["initFailure"] = res.result.InitFailure
	}
	return data
}
