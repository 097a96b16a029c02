package lifecycle

import (
	"fmt"

	"kici/internal/core/ci"
)

// rebooted decides about a job that an agent held when it was lost while its host was about to reboot. A job that had started
// has asked for that, or ran beside one that did: it is a success, since the end of the machine was wanted, and nobody comes
// back with it. One that had not starts elsewhere, or there later. decided is false for what the reboot does not decide: a job
// that works for others, whose result is missing, and one that may run without having said so.
func rebooted(run Run, job Job, agent string, fences bool, now int64) (o Outcome, decided bool) {
	switch {
	case job.stopping(run):
		return cancelHere(run, job, now), true // the machine takes everything with it that there was to stop
	case !job.Row.mayRun(fences):
		return Undelivered(run, job, agent, "the host of its agent reboots", now), true
	case !job.Row.Started || job.Kind.Internal():
		return o, false
	}
	o = Finished(run, job, Report{Agent: agent, Status: ci.JobSuccess}, now)
	o.Jobs[0].Reason = reasonOf(ci.ReasonReboot, fmt.Sprintf("the host of agent %s reboots, as a job on it asked for; the job ended with it", agent),
		map[string]string{"agent": agent})
	return o, true
}
