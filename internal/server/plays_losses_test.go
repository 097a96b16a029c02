package server_test

import (
	"testing"

	"kici/internal/server/servertest"
)

// TestPlaysOfLosses breaks connections and lets agents come back with less, with more, or too late.
func TestPlaysOfLosses(t *testing.T) {
	one := servertest.Lock("build")
	perform(t, []play{
		{name: "back with the job", lock: one, attempts: 1, lines: `
			a joins
			push
			a gets build
			a starts build
			a steps build 0 running
			a is gone
			build becomes recovering
			a joins
			build becomes running
			a steps build 0 success
			a ends build success`, want: []string{"success build=success"}},
		{name: "back without it, and its end was lost", change: lostSoon, lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			a is gone
			a ends build success
			a joins
			build becomes failed
			push
			a gets build
			a starts build
			a ends build success`, want: []string{"failed build=failed", "success build=success"}},
		{name: "back without it, and its end follows", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			a is gone
			build becomes recovering
			a forgets
			a joins
			a ends build success`, want: []string{"success build=success"}},
		{name: "back after the window with the end", change: lostSoon, lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			a is gone
			build becomes failed
			a joins
			a hears job.cancel no longer assigned
			a steps build 0 success
			a ends build success`, want: []string{"failed build=failed"}},
		{name: "gone before its answer", change: lostSoon, lock: one, attempts: 2, lines: `
			a joins
			push
			a gets build
			a is gone
			a forgets
			a joins
			a gets build
			a starts build
			a ends build success`, want: []string{"success build=success"}},
		{name: "gone before its answer, back with the job", lock: one, attempts: 1, lines: `
			a joins
			push
			a gets build
			a is gone
			build waits recovering
			a joins
			a starts build
			a ends build success`, want: []string{"success build=success"}},
		{name: "leaves in order before its answer", lock: one, attempts: 2, lines: `
			a joins
			push
			a gets build
			a leaves
			a forgets
			build waits no_agent
			b joins
			b gets build
			b starts build
			b ends build success`, want: []string{"success build=success"}},
		{name: "leaves in order with a job that runs", change: lostSoon, lock: one, attempts: 1, lines: `
			a joins
			push
			a gets build
			a starts build
			a leaves
			b joins
			build becomes failed`, want: []string{"failed build=failed"}},
		{name: "answered, gone, and another is there", change: lostSoon, lock: one, attempts: 1, lines: `
			a joins
			push
			a gets build
			a acks build
			a is gone
			b joins
			build becomes failed`, want: []string{"failed build=failed"}},
		{name: "one name on two machines", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			build becomes running
			a2 joins as a
			a is sent away 1001
			build becomes recovering
			a joins
			a2 is sent away 1001
			build becomes running
			a ends build success`, want: []string{"success build=success"}},
		{name: "registers again on the same connection", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			build becomes running
			a registers
			a hears register.ack
			a ends build success`, want: []string{"success build=success"}},
		{name: "registers again while the dispatch is on its way", lock: one, attempts: 1, lines: `
			a joins
			push
			a is reached
			a registers
			a gets build
			a hears register.ack
			a starts build
			a ends build success`, want: []string{"success build=success"}},
		{name: "the server restarts between dispatch and answer", lock: one, attempts: 2, lines: `
			a joins
			push
			a gets build
			server restarts
			a is sent away 1001
			a forgets
			a joins
			a gets build
			a starts build
			a ends build success`, want: []string{"success build=success"}},
		{name: "the server dies between dispatch and answer, which is lost", lock: one, attempts: 1, lines: `
			a joins
			push
			a gets build
			server dies
			a is sent away 1006
			a acks build
			a starts build
			a joins
			build becomes running
			a ends build success`, want: []string{"success build=success"}},
		{name: "the server restarts with the end on its way", lock: one, attempts: 1, lines: `
			a joins
			push
			a gets build
			a starts build
			a logs build 500
			a ends build success
			server restarts
			a is sent away 1001
			a joins`, want: []string{"success build=success"}},
		{name: "the server dies in the queue", lock: one, lines: `
			push
			build waits no_agent
			server dies
			a joins
			a gets build
			a starts build
			a ends build success`, want: []string{"success build=success"}},
		{name: "the server dies while its agent is away", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			a is gone
			build becomes recovering
			server dies
			a joins
			build becomes running
			a ends build success`, want: []string{"success build=success"}},
		{name: "gone between two jobs, and again before its answer", lock: servertest.Lock("build", "after<build"), lines: `
			a joins
			push
			a gets build
			a starts build
			a is gone
			build becomes recovering
			a joins
			a ends build success
			a gets after
			a is gone
			a forgets
			a joins
			a gets after
			a starts after
			a ends after success`, want: []string{"success build=success after=success"}},
	})
}

// TestPlaysOfDisorder says things in the wrong order, of the wrong jobs, and to an agent that has enough to do.
func TestPlaysOfDisorder(t *testing.T) {
	one := servertest.Lock("build")
	perform(t, []play{
		{name: "the end alone", lock: one, lines: `
			a joins
			push
			a gets build
			a ends build success`, want: []string{"success build=success"}},
		{name: "the end before the beginning", lock: one, lines: `
			a joins
			push
			a gets build
			a ends build failed {"error":"e"}
			a starts build
			a hears job.cancel no longer assigned
			a steps build 0 running
			a ends build success`, want: []string{"failed build=failed"}},
		{name: "the answer last", lock: one, lines: `
			a joins
			push
			a gets build
			a steps build 0 running
			a steps build 0 success
			a says build {"type":"job.status","state":"running"}
			a acks build
			a ends build success`, want: []string{"success build=success"}},
		{name: "states that are not its own to say", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			a says build {"type":"job.status","state":"queued"}
			a says build {"type":"job.status","state":"recovering"}
			a says build {"type":"job.status","state":"timed_out_stale"}
			a says build {"type":"job.status","state":"drift_dropped"}
			build becomes running
			a ends build success`, want: []string{"success build=success"}},
		{name: "steps of every number", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			a steps build 1000001 running
			a steps build 1000001 success
			a steps build 9007199254740990 success
			a steps build 0 failed
			a steps build 0 running
			a steps build 1103 pending
			a ends build success`, want: []string{"success build=success"}},
		{name: "the end of a job of another", lock: servertest.Lock("build", "other"), lines: `
			a joins
			b joins
			push
			a gets build
			b gets other
			a starts build
			b starts other
			b takes build from a
			b says build {"type":"job.status","state":"success"}
			build becomes running
			a ends build failed
			b ends other success`, want: []string{"failed build=failed other=success"}},
		{name: "busy, then free", lock: one, attempts: 2, lines: `
			a joins
			push
			a gets build
			a rejects build busy
			a gets build
			a starts build
			a ends build success`, want: []string{"success build=success"}},
		{name: "draining with a job in hand, and gone", lock: servertest.Lock("build", "after<build"), lines: `
			a joins
			push
			a gets build
			a starts build
			a ends build success
			a gets after
			a rejects after draining
			a leaves
			after waits no_agent
			b joins
			b gets after
			b starts after
			b ends after success`, want: []string{"success build=success after=success"}},
		{name: "refused by all, five times", lock: one, attempts: 5, lines: `
			a joins
			push
			a gets build
			a rejects build busy
			a gets build
			a rejects build busy
			a gets build
			a rejects build busy
			a gets build
			a rejects build busy
			a gets build
			a rejects build busy`, want: []string{"failed build=failed"}},
		{name: "a refusal of a job that runs", lock: one, attempts: 1, lines: `
			a joins
			push
			a gets build
			a starts build
			a rejects build busy
			build becomes running
			a ends build success`, want: []string{"success build=success"}},
		{name: "a secret that cannot be opened", lock: servertest.Lock("build", "after<build"), lines: `
			a joins
			push
			a gets build
			a starts build
			a says build {"type":"job.status","state":"success","secretOutputs":{"K":{"agentPublicKey":"bm90IGEga2V5","encrypted":"AAAA"}}}
			a forgets
			a gets after
			a starts after
			a ends after success`, want: []string{"success build=success after=success"}},
		{name: "a large log while others finish", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			a logs build 5000
			a ends build success`, want: []string{"success build=success"}},
		{name: "an event, and its doubles", lock: one, lines: `
			a joins
			push
			a gets build
			a starts build
			a says build {"type":"event.emit","requestId":"1","eventName":"built","payload":{}}
			a hears event.emit.response deliveryId
			a says build {"type":"event.emit","requestId":"2","eventName":"__workflow_complete","payload":{}}
			a hears event.emit.response error
			a ends build success`, want: []string{"success build=success"}},
	})
}
