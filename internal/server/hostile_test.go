package server_test

import (
	"fmt"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/servertest"
)

// ugly is a text that one database engine or the other would refuse: NUL, and a byte that is no UTF-8.
const ugly = "a\\u0000b\xffc"

// TestUglyTextsAndLargeNumbersAreStored sends, in every frame that a database keeps something of, texts that it would
// refuse and step indices as hooks and caches have them.
func TestUglyTextsAndLargeNumbersAreStored(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		p := h.Dial(t)
		p.Send(wire.AuthRequest{Token: h.Token, ProtocolVersion: wire.Version})
		p.Next()
		p.SendRaw([]byte(fmt.Sprintf(`{"type":"agent.register","messageId":"%[1]s","agentId":"agent%[1]s","labels":["linux","%[1]s"],"hostname":"%[1]s",
"version":"%[1]s","osRelease":"%[1]s","runningAsUser":"%[1]s","properties":{"%[1]s":"%[1]s"}}`, ugly)))
		if m, ok := p.Next().(wire.RegisterAck); !ok {
			t.Fatalf("got %+v", m)
		}
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
		d, ok := p.Next().(wire.JobDispatch)
		if !ok {
			t.Fatal("no dispatch")
		}
		frames := []string{
			`{"type":"job.status","messageId":"%[1]s","runId":"%[2]s","jobId":"%[3]s","state":"running","timestamp":1,"data":{"%[1]s":"%[1]s"}}`,
			`{"type":"step.status","messageId":"1","runId":"%[2]s","jobId":"%[3]s","stepIndex":0,"stepName":"%[1]s","state":"running","timestamp":1}`,
			`{"type":"step.status","messageId":"2","runId":"%[2]s","jobId":"%[3]s","stepIndex":1000003,"stepName":"init:3","state":"failed","timestamp":1,
"data":{"step_type":"init:3","error":{"message":"%[1]s","exitCode":3},"driftSummary":"%[1]s"},"secretsAccessed":["%[1]s"]}`,
			`{"type":"log.chunk","messageId":"%[1]s","runId":"%[2]s","jobId":"%[3]s","stepIndex":1000003,"lines":["%[1]s"],"timestamp":1}`,
			`{"type":"log.chunk","messageId":"%[1]s","runId":"%[2]s","jobId":"%[3]s","stepIndex":-1,"lines":["%[1]s",""],"timestamp":1}`,
			`{"type":"run.event","runId":"%[2]s","jobId":"%[3]s","eventType":"%[1]s","timestampMs":1.5,"sourceService":"agent","durationMs":null,"metadata":{"%[1]s":"%[1]s"}}`,
			`{"type":"job.context","runId":"%[2]s","jobId":"%[3]s","context":{"runtime":{"nodeVersion":"%[1]s","os":"linux","arch":"x64"},"sandboxType":"%[1]s",
"workingDirectory":"%[1]s","gitRef":"%[1]s","envVars":[{"name":"%[1]s","value":"%[1]s","category":"user"}]}}`,
			`{"type":"agent.log","messageId":"x","agentId":"agent","lines":["%[1]s"],"timestamp":1}`,
			`{"type":"agent.api.request","requestId":"api","method":"%[1]s","params":{"jobId":"%[1]s"}}`,
			`{"type":"job.status","messageId":"e","runId":"%[2]s","jobId":"%[3]s","state":"failed","timestamp":1,"data":{"error":"%[1]s","outputs":{"%[1]s":{"k":"%[1]s"}},
"stepResults":[{"name":"%[1]s","status":"failed","durationMs":1,"error":"%[1]s"}]}}`,
		}
		for _, f := range frames {
			p.SendRaw(fmt.Appendf(nil, f, ugly, d.RunID, d.JobID))
		}
		p.Settle()
		h.AwaitRuns(t, 1)
		var message, step string
		err := h.DB.Read().QueryRowContext(t.Context(), `SELECT j.error_message, s.error_message FROM execution_jobs j
JOIN execution_steps s ON s.job_id = j.job_id AND s.step_index = 1000003`).Scan(&message, &step)
		if want := "a\uFFFDb\uFFFDc"; err != nil || message != want || step != want {
			t.Errorf("stored %q and %q, %v; want %q", message, step, err, want)
		}
		servertest.Await(t, "the event of the agent", func() bool {
			return h.Count(t, "SELECT count(*) FROM run_events WHERE source = 'agent'") == 1
		}, nil)
	})
}

// TestTheFirstEndOfAJobStands repeats the end of a job, and contradicts it.
func TestTheFirstEndOfAJobStands(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		p := h.Dial(t)
		m := register("agent")
		m.Features = careful
		p.Hello(h, m)
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build", "test<build")))
		d, ok := p.Next().(wire.JobDispatch)
		if !ok {
			t.Fatal("no dispatch")
		}
		report := func(id string, state ci.JobStatus) {
			t.Helper()
			p.Send(wire.JobStatus{MessageID: id, RunID: d.RunID, JobID: d.JobID, State: state, Timestamp: 1})
		}
		report("running", ci.JobRunning)
		report("first", ci.JobSuccess)
		report("first", ci.JobSuccess) // a replay
		report("second", ci.JobSuccess)
		report("third", ci.JobFailed)
		report("fourth", ci.JobRunning)
		var acks []string
		dispatches := 0
		for len(acks) < 6 || dispatches < 1 {
			switch m := p.Next().(type) {
			case wire.Ack:
				acks = append(acks, m.MessageID)
			case wire.JobDispatch:
				dispatches++
			default:
				t.Fatalf("got %+v", m)
			}
		}
		if got := strings.Join(acks, " "); got != "running first first second third fourth" {
			t.Errorf("acknowledged %s", got)
		}
		if n := h.Count(t, "SELECT count(*) FROM execution_jobs WHERE job_id = $1 AND status = 'success'", d.JobID); n != 1 {
			t.Error("the job's end was changed")
		}
		if n := h.Count(t, "SELECT count(*) FROM dispatch_attempts"); n != 2 {
			t.Errorf("%d dispatches, want one of each job", n)
		}
	})
}

// TestAnAgentGetsNoMoreJobsThanItHasSlots leaves ten jobs waiting for an agent of three slots that answers nothing.
func TestAnAgentGetsNoMoreJobsThanItHasSlots(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		var jobs []string
		for i := range 10 {
			jobs = append(jobs, fmt.Sprint("job-", i))
		}
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock(jobs...)))
		servertest.Await(t, "the queue", func() bool { return h.Count(t, "SELECT count(*) FROM dispatch_queue") == 10 }, nil)
		p := h.Dial(t)
		m := register("agent")
		m.MaxConcurrency = 3
		p.Hello(h, m)
		var got []wire.JobDispatch
		for range 3 {
			d, ok := p.Next().(wire.JobDispatch)
			if !ok {
				t.Fatal("no dispatch")
			}
			got = append(got, d)
		}
		p.Send(wire.AgentStatus{MessageID: "s", AgentID: "agent", ActiveJobs: 0}) // what it says is advice, and wakes the dispatcher
		p.Settle()
		p.Send(wire.JobStatus{MessageID: "e", RunID: got[0].RunID, JobID: got[0].JobID, State: ci.JobSuccess, Timestamp: 1})
		if _, ok := p.Next().(wire.JobDispatch); !ok { // exactly one for the free slot
			t.Fatal("no dispatch for the free slot")
		}
		p.Settle()
		if rest := p.Rest(); len(rest) != 0 {
			t.Errorf("more was sent: %+v", rest)
		}
		if n := h.Count(t, "SELECT count(*) FROM dispatch_queue WHERE status = 'dispatched'"); n != 3 {
			t.Errorf("the agent holds %d jobs, want 3", n)
		}
	})
}
