package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kici/internal/core/wire"
	"kici/internal/server/servertest"
)

// holding starts a server, an agent that runs one job on and on, and waits until the server knows that it runs.
func holding(t *testing.T, h *servertest.Home) *servertest.Agent {
	t.Helper()
	agent := h.Employ(t, &servertest.Agent{ID: "agent", Features: careful, Hold: true, Chunks: 2})
	h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
	servertest.Await(t, "the start of the job", func() bool {
		return h.Count(t, "SELECT count(*) FROM execution_jobs WHERE status = 'running'") == 1
	}, nil)
	return agent
}

func TestStoppedServerLeavesItsJobsToTheNextStart(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		first := h.Start(t)
		agent := holding(t, h)
		first.Stop()
		if n := h.Count(t, "SELECT count(*) FROM execution_jobs WHERE completed_at IS NULL"); n != 1 {
			t.Fatal("the job ended with the server")
		}
		if closes := agent.Closes(); !slices.Contains(closes, wire.CloseGoingAway) {
			t.Errorf("the agent's connections were closed with %v, want %d", closes, wire.CloseGoingAway)
		}
		h.Start(t)
		servertest.Await(t, "the agent's return", func() bool {
			return h.Count(t, "SELECT count(*) FROM dispatch_queue WHERE status = 'dispatched'") == 1 &&
				h.Count(t, "SELECT count(*) FROM execution_jobs WHERE status = 'running'") == 1
		}, nil)
		agent.Release()
		h.AwaitRuns(t, 1)
		compareJob(t, h, "success", "", 1)
		for job, n := range agent.Ledger.Starts() {
			if n != 1 {
				t.Errorf("job %s was started %d times", job, n)
			}
		}
	})
}

// TestKilledServersJobIsReclaimed is the restart in which a server that keeps the owner of a job in memory alone refuses
// the agent's frames and fails the run, although the agent was there all the time.
func TestKilledServersJobIsReclaimed(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		process := h.Launch(t)
		agent := holding(t, h)
		process.Kill()
		agent.Release() // its end is told to nobody yet
		h.Launch(t)
		h.AwaitRuns(t, 1)
		compareJob(t, h, "success", "", 1)
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build"))) // and the agent's room is free again
		h.AwaitRuns(t, 2)
	})
}

func TestTerminatedServerEndsWell(t *testing.T) {
	h := servertest.New(t, nil)
	process := h.Launch(t)
	holding(t, h)
	if err := process.Terminate(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestSecondServerOnADataFolderIsRefused(t *testing.T) {
	h := servertest.New(t, nil)
	first := h.Start(t)
	const want = "another kici server uses it; stop that one or choose another folder"
	if s, err := h.Open(t); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), h.Settings.DataDir) {
		t.Errorf("second server in one process: %v, %v", s, err)
	}
	if said := h.LaunchRefused(t); !strings.Contains(said, want) {
		t.Errorf("a second process said %q", said)
	}
	if resp, err := http.Get(h.URL() + "/ready"); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the first server suffered: %v, %v", resp, err)
	}
	first.Stop()
	h.Start(t).Stop() // the folder is free again
}

func TestBusyPortIsNamed(t *testing.T) {
	first := servertest.New(t, nil)
	first.Start(t)
	second := servertest.New(t, nil)
	if _, err := fmt.Sscanf(first.URL(), "http://127.0.0.1:%d", &second.Settings.Port); err != nil {
		t.Fatal(err)
	}
	s, err := second.Open(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprint("listen on 127.0.0.1:", second.Settings.Port)) {
		t.Errorf("start on a busy port: %v", err)
	}
}
