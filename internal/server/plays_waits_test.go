package server_test

import (
	"bytes"
	"testing"
	"time"

	"kici/internal/server"
	"kici/internal/server/servertest"
)

const (
	anybody   = `,"approval":{"clauses":[],"reason":"ship it","when":"always"}`
	afterTest = `,"needs":["test"]`
)

// lostSoon gives up agents that do not come back, after a second.
func lostSoon(s *server.Settings) { s.Engine.RecoveryWindow = time.Second }

// TestPlaysOfPeopleWhoDecide waits for people: with a step, a job and a workflow.
func TestPlaysOfPeopleWhoDecide(t *testing.T) {
	step := servertest.Lock("build")
	job := lockOf(lockJob("test", onLinux), lockJob("deploy", onLinux+afterTest+anybody))
	perform(t, []play{
		{name: "step approved", lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a steps build 0 running
			a asks build
			build waits approval_required
			approve
			a hears step.approval-resolved approved
			a steps build 0 success
			a ends build success`, want: []string{"success build=success"}},
		{name: "step rejected", lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a asks build
			reject
			a hears step.approval-resolved rejected
			a steps build 0 failed
			a ends build failed {"error":"rejected"}`, want: []string{"failed build=failed"}},
		{name: "step forgotten", lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a asks build ,"timeoutSeconds":1
			a hears step.approval-resolved expired
			a ends build failed`, want: []string{"failed build=failed"}},
		{name: "step asked twice", lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a asks build
			a asks build
			approve
			a hears step.approval-resolved approved
			a ends build success`, want: []string{"success build=success"}},
		{name: "the connection breaks while a step waits, and its agent fails it", lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a asks build
			build waits approval_required
			a is gone
			build becomes recovering
			a joins
			a steps build 0 failed
			a ends build failed {"error":"the connection broke"}`, want: []string{"failed build=failed"}},
		{name: "it breaks for good", change: lostSoon, lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a asks build
			a is gone`, want: []string{"failed build=failed"}},
		{name: "decided while its agent is away", lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a asks build
			build waits approval_required
			a is gone
			build becomes recovering
			approve
			a joins
			a hears step.approval-resolved approved
			a ends build success`, want: []string{"success build=success"}},
		{name: "the run is cancelled while a step waits", lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a asks build
			build waits approval_required
			cancel
			a stops build`, want: []string{"cancelled build=cancelled"}},
		{name: "the server restarts while a step waits", lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a asks build
			build waits approval_required
			server restarts
			a is sent away 1001
			build becomes recovering
			a joins
			a asks build
			approve
			a hears step.approval-resolved approved
			a ends build success`, want: []string{"success build=success"}},
		{name: "the server dies while a step waits", lock: step, lines: `
			a joins
			push
			a gets build
			a starts build
			a asks build
			build waits approval_required
			server dies
			a is sent away 1006
			a joins
			approve
			a hears step.approval-resolved approved
			a ends build success`, want: []string{"success build=success"}},
		{name: "job approved while the agent is idle", lock: job, lines: `
			a joins
			push
			a gets test
			a starts test
			a ends test success
			deploy waits approval_required
			approve
			a gets deploy
			a starts deploy
			a ends deploy success`, want: []string{"success test=success deploy=success"}},
		{name: "job rejected", lock: job, lines: `
			a joins
			push
			a gets test
			a starts test
			a ends test success
			deploy waits approval_required
			reject`, want: []string{"failed test=success deploy=failed"}},
		{name: "the server dies while a job waits for people", lock: job, lines: `
			a joins
			push
			a gets test
			a starts test
			a ends test success
			deploy waits approval_required
			server dies
			a is sent away 1006
			approve
			deploy waits no_agent
			a joins
			a gets deploy
			a starts deploy
			a ends deploy success`, want: []string{"success test=success deploy=success"}},
		{name: "cancelled while a job waits for people", lock: job, lines: `
			a joins
			push
			a gets test
			a starts test
			a ends test success
			deploy waits approval_required
			cancel`, want: []string{"cancelled test=success deploy=cancelled"}},
		{name: "workflow approved", lock: heldWorkflow(), lines: `
			a joins
			push
			build waits approval_required
			server restarts
			a is sent away 1001
			a joins
			build waits approval_required
			approve
			a gets build
			a starts build
			a ends build success
			a gets after
			a starts after
			a ends after success`, want: []string{"success build=success after=success"}},
		{name: "workflow rejected", lock: heldWorkflow(), lines: `
			a joins
			push
			build waits approval_required
			reject`, want: []string{"failed build=failed after=skipped"}},
	})
}

// heldWorkflow is a lock file of two jobs that people must let go.
func heldWorkflow() []byte {
	return bytes.Replace(lockOf(lockJob("build", onLinux), lockJob("after", onLinux+`,"needs":["build"]`)), []byte(`"contentHash"`),
		[]byte(`"approval":{"clauses":[],"reason":"look first","when":"always"},"contentHash"`), 1)
}
