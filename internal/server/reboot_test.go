package server_test

import (
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/report"
	"kici/internal/server/servertest"
)

// begun lets an agent with two places take the job of a run, begin it, and ask for the reboot of its host.
func begun(t *testing.T, h *servertest.Home) (p *servertest.Peer, job wire.JobDispatch) {
	t.Helper()
	p = h.Dial(t)
	p.Hello(h, twoPlaces)
	h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("restart")))
	job, ok := p.Next().(wire.JobDispatch)
	if !ok {
		t.Fatal("the agent is given no job")
	}
	p.Send(wire.JobAck{MessageID: "1", RunID: job.RunID, JobID: job.JobID, Timestamp: 1})
	p.Send(wire.JobStatus{MessageID: "2", RunID: job.RunID, JobID: job.JobID, State: ci.JobRunning, Timestamp: 1})
	p.Send(wire.APIRequest{RequestID: "3", Method: "host.requestReboot", Params: []byte(`{"deadlineMs":600000}`)})
	if answer, ok := p.Next().(wire.APIResponse); !ok || answer.Error != "" {
		t.Fatalf("asked for a reboot: %+v", answer)
	}
	return p, job
}

var twoPlaces = wire.AgentRegister{MessageID: "r", AgentID: "web-1", Labels: []string{"linux"}, MaxConcurrency: 2}

// TestAHostIsRebooted goes the whole way: a job asks for it, what comes meanwhile waits and says why, the machine goes down with
// the job, and the agent goes on when it is back, at a server that was away itself.
func TestAHostIsRebooted(t *testing.T) {
	t.Parallel() // it waits more than it works
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		first := h.Start(t)
		p, restart := begun(t, h)
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("later")))
		const pending = "SELECT count(*) FROM dispatch_queue WHERE status = 'pending'"
		servertest.Await(t, "the job that comes meanwhile", func() bool { return h.Count(t, pending) == 1 }, nil)
		waiting, err := report.Queue(t.Context(), h.DB.Read(), report.QueueFilter{Statuses: []string{"pending"}, Limit: 2})
		if err != nil || len(waiting) != 1 || waiting[0].Reason.Code != ci.ReasonReboot || !strings.Contains(waiting[0].Reason.Message, "host web-1 reboots, until ") {
			t.Errorf("%v: the job waits: %+v", err, waiting)
		}
		p.Settle()
		p.Cut()
		servertest.Await(t, "the end of the job that asked", func() bool {
			return h.Count(t, "SELECT count(*) FROM execution_jobs WHERE job_id = $1 AND status = 'success' AND reason LIKE '%host_reboot%'", restart.JobID) == 1
		}, nil)
		first.Stop()
		h.Start(t)
		if h.Count(t, pending) != 1 || h.Count(t, "SELECT count(*) FROM agents WHERE reboot_until IS NOT NULL") != 1 {
			t.Error("the restart of the server has ended the reboot")
		}
		back := h.Dial(t)
		back.Hello(h, twoPlaces)
		later, ok := back.Next().(wire.JobDispatch)
		if !ok || h.Count(t, "SELECT count(*) FROM agents WHERE reboot_until IS NOT NULL") != 0 {
			t.Fatalf("the host is back: %+v", later)
		}
		back.Send(wire.JobStatus{MessageID: "e", RunID: later.RunID, JobID: later.JobID, State: ci.JobSuccess, Timestamp: 1})
		h.AwaitRuns(t, 2)
		requireAllGreen(t, h, 2)
	})
}

// A server that is killed has not seen the connection end.
func TestARebootOutlivesAKilledServer(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		process := h.Launch(t)
		p, _ := begun(t, h)
		process.Kill()
		p.Cut()
		h.Launch(t)
		h.Dial(t).Hello(h, twoPlaces)
		h.AwaitRuns(t, 1)
		requireAllGreen(t, h, 1)
	})
}
