package job

import (
	"errors"
	"fmt"
	"time"

	"kici/internal/agent/runner"
)

// Why a job ends before its time, with nobody who hears of its result.
var (
	ErrRefused     = errors.New("the server refused this agent")
	ErrNotAssigned = errors.New("the job is not this agent's any more")
)

// Why else a job's context ends before the job.
var (
	errCancelled = errors.New("the job was cancelled")
	errStopped   = errors.New("the agent was stopped")
)

// timeoutError ends a job that exceeded its own timeout.
type timeoutError struct{ limit time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("job_timeout: job exceeded its timeout of %dms", e.limit.Milliseconds())
}

// Cancel ends the job: politely the first time, with its cancel hooks, unless force says otherwise or no step can have
// begun. grace is how long the polite end may take; 0 takes the job's own. The server repeats a wish, under the same id,
// when it cannot know that it arrived.
func (j *Job) Cancel(id string, force bool, grace time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if id != "" && id == j.heard {
		return
	}
	j.heard = id
	if force || j.cancelling || !j.executing {
		j.cancelling = true
		j.end(errCancelled)
		return
	}
	j.cancelling = true
	if grace <= 0 {
		grace = j.conf.grace()
	}
	j.grace = min(grace, maxGrace)
	j.deadline = time.AfterFunc(j.grace, func() { j.end(errCancelled) })
	j.tell(runner.Abort{Type: runner.TypeAbort})
	if err := j.proc.Terminate(); err != nil {
		j.log.Warn("the runner could not be signalled", "err", err)
	}
}

// Stop ends the job at once.
func (j *Job) Stop() { j.end(errStopped) }

// Abandon ends a job of which nobody wants to hear any more.
func (j *Job) Abandon(why error) {
	j.mu.Lock()
	j.silent = true
	j.mu.Unlock()
	j.log.Warn("job abandoned", "why", why)
	j.end(why)
}

func (j *Job) isSilent() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.silent
}

// extendForHook gives a cancel hook its own time, which the runner enforces; the agent's is a little longer.
func (j *Job) extendForHook(stepType string, begins bool) {
	if stepType != "hook:onCancel" && stepType != "hook:cleanup" {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.deadline == nil {
		return
	}
	if begins {
		j.deadline.Reset(hookLimit)
	} else {
		j.deadline.Reset(j.grace)
	}
}

// tearDown ends the runner with everything that steps left running.
func (j *Job) tearDown() {
	j.mu.Lock()
	proc := j.proc
	if j.deadline != nil {
		j.deadline.Stop()
	}
	j.mu.Unlock()
	if proc == nil {
		return
	}
	if err := proc.Kill(); err != nil {
		j.log.Error("processes of the job are left behind", "err", err)
	}
	proc.Wait()
}
