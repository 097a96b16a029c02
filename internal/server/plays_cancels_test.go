package server_test

import (
	"testing"
	"time"

	"kici/internal/server"
	"kici/internal/server/servertest"
)

// TestPlaysOfCancels cancels runs at every moment of their jobs' lives. The agents kill at once, whatever they are told.
func TestPlaysOfCancels(t *testing.T) {
	one, two := servertest.Lock("build"), servertest.Lock("build", "after<build")
	perform(t, []play{
		{name: "in the queue", lock: two, lines: `
			push
			build waits no_agent
			cancel
			a joins`, want: []string{"cancelled build=cancelled after=cancelled"}},
		{name: "dispatched and not answered", lock: one, attempts: 1, lines: `
			a joins
			push
			a gets build
			build waits awaiting_ack
			cancel
			a stops build`, want: []string{"cancelled build=cancelled"}},
		{name: "dispatched, and answered too late", lock: one, attempts: 1, lines: `
			a joins
			push
			a gets build
			build waits awaiting_ack
			cancel
			a hears job.cancel
			a acks build
			a hears job.cancel no longer assigned
			a ends build cancelled`, want: []string{"cancelled build=cancelled"}},
		{name: "answered and not begun", lock: one, lines: `
			a joins
			push
			a gets build
			a acks build
			build waits starting
			cancel
			a stops build`, want: []string{"cancelled build=cancelled"}},
		{name: "running, twice", lock: two, lines: `
			a joins
			push
			a gets build
			a starts build
			a steps build 0 running
			build becomes running
			cancel
			a hears job.cancel
			build becomes cancelling
			cancel
			a steps build 0 cancelled
			a ends build cancelled`, want: []string{"cancelled build=cancelled after=cancelled"}},
		{name: "running, then forced", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			build becomes running
			cancel
			a hears job.cancel
			build becomes cancelling
			cancel force
			a hears job.cancel "force":true
			a ends build cancelled`, want: []string{"cancelled build=cancelled"}},
		{name: "an end that was on its way stands", lock: two, lines: `
			a joins
			push
			a gets build
			a starts build
			build becomes running
			cancel
			a hears job.cancel
			a ends build success`, want: []string{"cancelled build=success after=cancelled"}},
		{name: "recovering, and its agent comes back with it", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			build becomes running
			a is gone
			build becomes recovering
			cancel
			a joins
			a hears job.cancel no longer assigned
			a ends build cancelled`, want: []string{"cancelled build=cancelled"}},
		{name: "cancelling, and the connection breaks", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			build becomes running
			cancel
			a hears job.cancel
			a is gone
			a ends build cancelled
			a joins`, want: []string{"cancelled build=cancelled"}},
		{name: "cancelling, and the server dies", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			build becomes running
			cancel
			a hears job.cancel
			server dies
			a is sent away 1006
			a joins
			a hears job.cancel
			a ends build cancelled`, want: []string{"cancelled build=cancelled"}},
		{name: "an agent that does not obey", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			build becomes running
			cancel
			a hears job.cancel
			a hears job.cancel "force":true
			build becomes cancelled
			a ends build success`, want: []string{"cancelled build=cancelled"},
			change: func(s *server.Settings) { s.Engine.CancelPolite, s.Engine.CancelForced = time.Second, time.Second }},
		{name: "while it writes much", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			a logs build 5000
			cancel
			a logs build 5000
			a stops build`, want: []string{"cancelled build=cancelled"}},
		{name: "a newer run in its group", lock: grouped(`{"hasGroup":true}`), lines: `
			a joins
			b joins
			push
			a gets build
			a starts build
			a groups build g
			a hears job.concurrency.ack proceed
			push
			b gets build
			b starts build
			b groups build g
			b hears job.concurrency.ack proceed
			a hears job.cancel Superseded
			a ends build cancelled
			b ends build success`, want: []string{"cancelled build=cancelled", "success build=success"}},
		{name: "in line for its group", lock: grouped(`{"hasGroup":true,"cancelInProgress":false}`), lines: `
			a joins
			b joins
			push
			a gets build
			a starts build
			a groups build g
			a hears job.concurrency.ack proceed
			push
			b gets build
			b starts build
			b groups build g
			b hears job.concurrency.ack cancel
			b ends build failed
			build waits concurrency
			cancel
			a ends build success`, want: []string{"success build=success", "cancelled build=cancelled"}},
		{name: "its agent is taken from it in line, and is gone before it says so", lock: grouped(`{"hasGroup":true,"cancelInProgress":false}`), lines: `
			a joins
			b joins
			push
			a gets build
			a starts build
			a groups build g
			a hears job.concurrency.ack proceed
			push
			b gets build
			b starts build
			b groups build g
			b hears job.concurrency.ack cancel
			b is gone
			b ends build failed
			build waits concurrency
			a ends build success
			a gets build
			a starts build
			a groups build g
			a hears job.concurrency.ack proceed
			a ends build success
			b joins`, want: []string{"success build=success", "success build=success"}},
		{name: "its agent is taken from it in line, and comes back before it has ended it", lock: grouped(`{"hasGroup":true,"cancelInProgress":false}`), lines: `
			z joins
			push
			z gets build
			z starts build
			z groups build g
			z hears job.concurrency.ack proceed
			b joins
			push
			b gets build
			b starts build
			b groups build g
			b hears job.concurrency.ack cancel
			b is gone
			b joins
			b hears job.cancel no longer assigned
			z ends build success
			z gets build
			b ends build cancelled
			z starts build
			z groups build g
			z hears job.concurrency.ack proceed
			z ends build success`, want: []string{"success build=success", "success build=success"}},
		{name: "the server dies with a run in line", lock: grouped(`{"hasGroup":true,"cancelInProgress":false}`), lines: `
			a joins
			b joins
			push
			a gets build
			a starts build
			a groups build g
			a hears job.concurrency.ack proceed
			push
			b gets build
			b starts build
			b groups build g
			b hears job.concurrency.ack cancel
			b ends build failed
			build waits concurrency
			server dies
			a is sent away 1006
			b is sent away 1006
			a joins
			build waits concurrency
			a ends build success
			a gets build
			a starts build
			a groups build g
			a hears job.concurrency.ack proceed
			a ends build success`, want: []string{"success build=success", "success build=success"}},
	})
}

// grouped is a lock file of a workflow whose runs share a place.
func grouped(rule string) []byte {
	return wholeWorkflow(lockOf(lockJob("build", onLinux)), `"concurrency":`+rule)
}

// TestPlaysOfLimits lets times run out.
func TestPlaysOfLimits(t *testing.T) {
	perform(t, []play{
		{name: "a workflow runs too long", lock: wholeWorkflow(lockOf(lockJob("build", onLinux)), `"timeout":1000`), lines: `
			a joins
			push
			a gets build
			a starts build
			a hears job.cancel workflow_timeout
			a ends build cancelled`, want: []string{"cancelled build=cancelled"}},
		{name: "a job runs too long, as its agent says", lock: servertest.Lock("build", "after<build"), lines: `
			a joins
			push
			a gets build
			a starts build
			a ends build failed {"error":"job_timeout: 5s"}`, want: []string{"failed build=failed after=skipped"}},
		{name: "a job runs too long, and its agent says nothing", lock: lockOf(lockJob("build", onLinux+`,"timeout":500`)), lines: `
			a joins
			push
			a gets build
			a starts build
			a hears job.cancel job_timeout
			a ends build cancelled`, want: []string{"failed build=failed"},
			change: func(s *server.Settings) { s.Engine.CancelPolite = time.Second }},
		{name: "nobody takes it, though somebody could", lock: servertest.Lock("build", "other"), lines: `
			a joins
			push
			a gets build
			a starts build
			other becomes timed_out_stale
			a ends build success`, want: []string{"failed build=success other=timed_out_stale"},
			change: func(s *server.Settings) { s.Engine.QueueTimeout = 2 * time.Second }},
		{name: "nobody could", lock: servertest.Lock("build:gpu"), lines: `
			a joins
			push
			build becomes unroutable`, want: []string{"failed build=unroutable"},
			change: func(s *server.Settings) { s.Engine.QueueTimeout = time.Second }},
		{name: "an agent that is silent about its job", lock: servertest.Lock("build"), lines: `
			a joins
			push
			a gets build
			a starts build
			a hears job.cancel No heartbeat
			a is sent away 4031
			a joins
			a hears job.cancel no longer assigned
			a ends build success`, want: []string{"failed build=timed_out_stale"},
			change: func(s *server.Settings) { s.Engine.StaleAfter = time.Second }},
		{name: "an agent that answers no dispatch", lock: servertest.Lock("build"), lines: `
			a joins
			push
			a gets build
			a hears job.cancel dispatch ack timeout
			a is sent away 4031
			b joins
			b gets build
			b starts build
			b ends build success
			a forgets
			a joins`, want: []string{"success build=success"}, attempts: 2,
			change: func(s *server.Settings) { s.AckTimeout = time.Second }},
	})
}
