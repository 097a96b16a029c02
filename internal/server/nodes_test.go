package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server"
	"kici/internal/server/cluster"
	"kici/internal/server/engine"
	"kici/internal/server/outbox"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

const adminToken = "a-token-of-the-administrator-for-tests"

// twoNodes makes the homes of two nodes that share a PostgreSQL database. Nothing happens there by a tick: what a node
// learns of the other comes by a wake-up.
func twoNodes(t *testing.T, change func(*server.Settings)) (a, b *servertest.Home) {
	t.Helper()
	url := storetest.PostgresURL(t)
	a = servertest.New(t, func(s *server.Settings) {
		s.DatabaseURL, s.Poll, s.BootstrapToken = url, time.Hour, adminToken
		if change != nil {
			change(s)
		}
	})
	return a, a.Second(t)
}

func TestADeliveryAtOneNodeRunsAtTheAgentOfAnother(t *testing.T) {
	a, b := twoNodes(t, nil)
	a.Start(t)
	b.Start(t)
	b.Employ(t, &servertest.Agent{ID: "agent-of-b", Features: careful})
	awaitAgent(t, a, "agent-of-b")
	a.Push(t, app, "main", a.Commit(t, app, servertest.Lock("build", "test<build")))
	a.AwaitRuns(t, 1)
	requireAllGreen(t, a, 1)
}

func awaitAgent(t *testing.T, h *servertest.Home, id string) {
	t.Helper()
	servertest.Await(t, "the agent's registration", func() bool {
		return h.Count(t, "SELECT count(*) FROM agents WHERE agent_id = $1 AND disconnected_at IS NULL", id) == 1
	}, nil)
}

// TestWordsForAnAgentReachItThroughItsNode gives node A what is for the agent of node B: a cancel, and a late answer.
func TestWordsForAnAgentReachItThroughItsNode(t *testing.T) {
	a, b := twoNodes(t, nil)
	a.Start(t)
	b.Start(t)
	p := b.Dial(t)
	p.Hello(b, register("agent-of-b"))
	a.Push(t, app, "main", a.Commit(t, app, servertest.Lock("build")))
	d, ok := p.Next().(wire.JobDispatch)
	if !ok {
		t.Fatal("no dispatch")
	}
	p.Send(wire.JobStatus{MessageID: "m", RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: 1})
	p.Settle()
	if status, body := call(t, a, "POST", "/api/v1/admin/runs/"+d.RunID+"/cancel", "{}"); status != http.StatusOK {
		t.Fatalf("cancel: %d %s", status, body)
	}
	if m, ok := p.Next().(wire.JobCancel); !ok || m.JobID != d.JobID {
		t.Errorf("got %+v, want the cancel", m)
	}
	p.Send(wire.JobStatus{MessageID: "e", RunID: d.RunID, JobID: d.JobID, State: ci.JobCancelled, Timestamp: 1})
	a.AwaitRuns(t, 1)
	servertest.Await(t, "an empty outbox", func() bool { return a.Count(t, "SELECT count(*) FROM outbox") == 0 }, nil)
}

func TestAFrameInTheOutboxReachesItsAgent(t *testing.T) {
	servertest.Each(t, func(s *server.Settings) { s.Poll = time.Hour }, func(t *testing.T, h *servertest.Home) {
		frame, err := wire.Encode(wire.ConcurrencyAck{RequestID: "r1", Action: wire.ConcurrencyProceed, RunID: "r", JobID: "j"})
		if err != nil {
			t.Fatal(err)
		}
		put := func(agent string, payload any) {
			t.Helper()
			err := h.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				return outbox.Put(ctx, tx, engine.AgentTopic, agent, payload, 1)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		h.Start(t)
		p := h.Dial(t)
		p.Hello(h, register("agent"))
		for i := range 300 { // more than one look takes
			put(fmt.Sprint("nobody-", i), map[string]any{"frame": json.RawMessage(frame)})
		}
		put("agent", map[string]any{"frame": json.RawMessage(`{"type":"no.such.frame"}`)})
		put("agent", map[string]any{"frame": json.RawMessage(frame)})
		h.Dial(t).Hello(h, register("another")) // an arrival is a wake-up
		if m, ok := p.Next().(wire.ConcurrencyAck); !ok || m.RequestID != "r1" || m.Action != wire.ConcurrencyProceed {
			t.Errorf("got %+v", m)
		}
		servertest.Await(t, "an empty outbox", func() bool { return h.Count(t, "SELECT count(*) FROM outbox") == 0 }, nil)
	})
}

// call asks the administration of a node.
func call(t *testing.T, h *servertest.Home, method, path, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// TestALogIsReadAtAnyNode follows, at node A, the log of a job that runs at the agent of node B.
func TestALogIsReadAtAnyNode(t *testing.T) {
	a, b := twoNodes(t, nil)
	a.Start(t)
	there := b.Start(t)
	p := b.Dial(t)
	p.Hello(b, register("agent-of-b"))
	a.Push(t, app, "main", a.Commit(t, app, servertest.Lock("build")))
	d, ok := p.Next().(wire.JobDispatch)
	if !ok {
		t.Fatal("no dispatch")
	}
	p.Send(wire.JobStatus{MessageID: "m", RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: 1})
	p.Send(wire.StepStatus{MessageID: "s", RunID: d.RunID, JobID: d.JobID, StepName: "s", State: ci.StepRunning, Timestamp: 1})
	p.Settle()
	path := fmt.Sprintf("/api/v1/admin/runs/%s/jobs/%s/steps/0/logs?wait=25s", d.RunID, d.JobID)
	page := make(chan string, 1)
	go func() {
		_, body := call(t, a, "GET", path, "")
		page <- body
	}()
	p.Send(wire.LogChunk{MessageID: "c", RunID: d.RunID, JobID: d.JobID, Lines: []string{"hello from b"}, Timestamp: 1})
	if body := <-page; !strings.Contains(body, "hello from b") {
		t.Errorf("read at the other node: %s", body)
	}
	if status, _ := callAs(t, a, "GET", path, "kici_wrong"); status != http.StatusUnauthorized {
		t.Errorf("a stranger was answered %d", status)
	}
	there.Stop()
	if status, body := call(t, a, "GET", path, ""); status != http.StatusServiceUnavailable || !strings.Contains(body, "The log is on node "+there.NodeID()+", which does not answer") {
		t.Errorf("when that node is down: %d %s", status, body)
	}
}

// TestALogInAnObjectStoreOutlivesItsNode stops the node that had the log: the other one has it from the object store.
func TestALogInAnObjectStoreOutlivesItsNode(t *testing.T) {
	a, b := twoNodes(t, func(s *server.Settings) { useBucket(t, s) })
	a.Start(t)
	there := b.Start(t)
	b.Employ(t, &servertest.Agent{ID: "agent-of-b", Features: careful, Chunks: 2})
	a.Push(t, app, "main", a.Commit(t, app, servertest.Lock("build")))
	a.AwaitRuns(t, 1)
	there.Stop()
	var run, job string
	if err := a.DB.Read().QueryRowContext(t.Context(), "SELECT run_id, job_id FROM execution_jobs").Scan(&run, &job); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/api/v1/admin/runs/%s/jobs/%s/steps/0/logs", run, job)
	if status, body := call(t, a, "GET", path, ""); status != http.StatusOK || !strings.Contains(body, `"totalLines":2`) || !strings.Contains(body, "line 1") {
		t.Errorf("%d %s", status, body)
	}
}

func callAs(t *testing.T, h *servertest.Home, method, path, token string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, req, token)
}

func send(t *testing.T, req *http.Request, token string) (status int, body string) {
	t.Helper()
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

// quick lets nodes notice each other's death soon.
func quick(s *server.Settings) { s.Beat = 200 * time.Millisecond }

// TestTheWorkOfADeadNodeIsTakenOver kills the node of an agent. The agent goes to the other node with its job, which is
// neither lost nor run again.
func TestTheWorkOfADeadNodeIsTakenOver(t *testing.T) {
	a, b := twoNodes(t, quick)
	a.Start(t)
	there := b.Launch(t)
	ledger := servertest.NewLedger(nil)
	agent := b.Employ(t, &servertest.Agent{ID: "agent", Features: careful, Hold: true, Ledger: ledger})
	awaitAgent(t, a, "agent")
	a.Push(t, app, "main", a.Commit(t, app, servertest.Lock("build")))
	servertest.Await(t, "the job's start", func() bool { return a.Count(t, "SELECT count(*) FROM execution_jobs WHERE status = 'running'") == 1 }, nil)
	there.Kill()
	servertest.Await(t, "the burial", func() bool {
		return a.Count(t, "SELECT count(*) FROM nodes") == 1 && a.Count(t, "SELECT count(*) FROM dispatch_queue WHERE status = 'recovering'") == 1
	}, nil)
	b.Move(a)
	servertest.Await(t, "the agent's return", func() bool {
		return a.Count(t, "SELECT count(*) FROM dispatch_queue WHERE status = 'dispatched'") == 1
	}, nil)
	agent.Release()
	a.AwaitRuns(t, 1)
	requireAllGreen(t, a, 1)
	for job, n := range ledger.Starts() {
		if n != 1 {
			t.Errorf("job %s was started %d times", job, n)
		}
	}
}

// TestANodeThatWasPausedTakesItsConnectionsUpAgain stops the process of a node for so long that the other one takes over
// its work, while the agent's connection stands. Both hold the job for theirs then, and neither does harm.
func TestANodeThatWasPausedTakesItsConnectionsUpAgain(t *testing.T) {
	a, b := twoNodes(t, quick)
	a.Start(t)
	there := b.Launch(t)
	agent := b.Employ(t, &servertest.Agent{ID: "agent", Features: careful, Hold: true})
	awaitAgent(t, a, "agent")
	a.Push(t, app, "main", a.Commit(t, app, servertest.Lock("build")))
	// The step is the last that the agent tells of: a pause in the middle of a transaction would cost its connection.
	servertest.Await(t, "the step's start", func() bool { return a.Count(t, "SELECT count(*) FROM execution_steps WHERE status = 'running'") == 1 }, nil)
	there.Pause()
	servertest.Await(t, "the burial", func() bool { return a.Count(t, "SELECT count(*) FROM nodes") == 1 }, nil)
	if n := a.Count(t, "SELECT count(*) FROM dispatch_queue WHERE status = 'recovering'"); n != 1 {
		t.Errorf("%d jobs wait for their agent, want 1", n)
	}
	there.Continue()
	servertest.Await(t, "the node's return", func() bool {
		return a.Count(t, "SELECT count(*) FROM nodes") == 2 && a.Count(t, "SELECT count(*) FROM dispatch_queue WHERE status = 'dispatched'") == 1
	}, nil)
	awaitAgent(t, a, "agent")
	agent.Release()
	a.AwaitRuns(t, 1)
	requireAllGreen(t, a, 1)
	if closes := agent.Closes(); len(closes) != 0 {
		t.Errorf("the agent was disconnected: %v", closes)
	}
}

func TestARevokedTokenEndsItsConnectionsOnEveryNode(t *testing.T) {
	a, b := twoNodes(t, nil)
	a.Start(t)
	b.Start(t)
	p := b.Dial(t)
	p.Hello(b, register("agent-of-b"))
	var token string
	err := a.DB.Read().QueryRowContext(t.Context(), "SELECT token_id FROM agents WHERE agent_id = 'agent-of-b'").Scan(&token)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := call(t, a, "DELETE", "/api/v1/agent-tokens/"+token, ""); status != http.StatusOK || body != `{"kicked":1}`+"\n" && body != `{"kicked":1}` {
		t.Errorf("revoke: %d %s", status, body)
	}
	if m, ok := p.Next().(wire.AuthFailure); !ok || m.Reason != wire.ReasonTokenRevoked {
		t.Errorf("got %+v, want the failure", m)
	}
	if code, reason := p.Ending(); code != wire.CloseUnauthorized || reason != wire.ReasonTokenRevoked {
		t.Errorf("closed with %d %s", code, reason)
	}
}

// TestAJobThatWaitsForADrainingNodeSaysWhich drains the only node that has an agent and asks both why a job waits.
func TestAJobThatWaitsForADrainingNodeSaysWhich(t *testing.T) {
	a, b := twoNodes(t, nil)
	here := a.Start(t)
	there := b.Start(t)
	b.Employ(t, &servertest.Agent{ID: "agent-of-b", Features: careful})
	awaitAgent(t, a, "agent-of-b")
	drain := func(action string) {
		t.Helper()
		if status, body := call(t, b, "POST", "/api/v1/admin/orchestrator/drain", `{"action":"`+action+`"}`); status != http.StatusOK {
			t.Fatalf("%s: %d %s", action, status, body)
		}
	}
	drain("drain")
	a.Push(t, app, "main", a.Commit(t, app, servertest.Lock("build")))
	servertest.Await(t, "the job in the queue", func() bool { return a.Count(t, "SELECT count(*) FROM dispatch_queue") == 1 }, nil)
	var run, job string
	if err := a.DB.Read().QueryRowContext(t.Context(), "SELECT run_id, id FROM dispatch_queue").Scan(&run, &job); err != nil {
		t.Fatal(err)
	}
	want := "the only agent that fits, agent-of-b, is connected to node " + there.NodeID() + ", which drains: it gives out no jobs"
	for _, h := range []*servertest.Home{a, b} {
		for _, path := range []string{"/api/v1/admin/runs/" + run + "/explain", "/api/v1/admin/queue/" + job} {
			if status, body := call(t, h, "GET", path, ""); status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
	}
	if a.Count(t, "SELECT count(*) FROM nodes WHERE draining AND id = $1", here.NodeID()) != 0 {
		t.Error("the other node drains, too")
	}
	drain("resume")
	a.AwaitRuns(t, 1)
	requireAllGreen(t, a, 1)
}

// TestADrainIsKnownAfterItsNodeWasTakenForDead forgets a draining node, as a survivor does with one that was paused.
func TestADrainIsKnownAfterItsNodeWasTakenForDead(t *testing.T) {
	a, b := twoNodes(t, quick)
	a.Start(t)
	there := b.Start(t)
	if status, body := call(t, b, "POST", "/api/v1/admin/orchestrator/drain", `{"action":"drain"}`); status != http.StatusOK {
		t.Fatalf("drain: %d %s", status, body)
	}
	err := a.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error { return cluster.Bury(ctx, tx, there.NodeID()) })
	if err != nil {
		t.Fatal(err)
	}
	servertest.Await(t, "the node's return", func() bool {
		return a.Count(t, "SELECT count(*) FROM nodes WHERE draining AND id = $1", there.NodeID()) == 1
	}, nil)
}

// TestADrainIsKnownWhileItsNodeBeats drains and resumes a node that says all the time that it is alive, and with it whether
// it drains.
func TestADrainIsKnownWhileItsNodeBeats(t *testing.T) {
	settings := func(s *server.Settings) { s.Beat, s.BootstrapToken = time.Millisecond, adminToken }
	servertest.Each(t, settings, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		for turn := range 100 {
			action, want := "drain", 1
			if turn%2 == 1 {
				action, want = "resume", 0
			}
			if status, body := call(t, h, "POST", "/api/v1/admin/orchestrator/drain", `{"action":"`+action+`"}`); status != http.StatusOK {
				t.Fatalf("%s: %d %s", action, status, body)
			}
			if n := h.Count(t, "SELECT count(*) FROM nodes WHERE draining"); n != want {
				t.Fatalf("turn %d: after %s, %d nodes are known to drain", turn, action, n)
			}
		}
	})
}
