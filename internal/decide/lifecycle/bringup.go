package lifecycle

import (
	"fmt"

	"kici/internal/core/ci"
)

// Needless decides about a bring-up of a host whose agent has connected. One that no agent has yet is skipped, which is
// as good to what waits for it as its success; one that runs finds out by itself.
func Needless(job Job, agent string, now int64) Outcome {
	switch {
	case job.Kind != ci.KindBringup || job.Status != ci.JobPending:
		return ignored("it is no bring-up that waits")
	case job.Row.active():
		return ignored("an agent has the bring-up")
	}
	var o Outcome
	o.closeRow(job, ci.ReasonNeedless)
	o.end(job, ci.JobSkipped, reasonOf(ci.ReasonNeedless, fmt.Sprintf("agent %s has connected by itself", agent), map[string]string{"agent": agent}), now)
	return o
}
