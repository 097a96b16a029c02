package server_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/kit/service"
	"kici/internal/server"
	"kici/internal/server/logs"
	"kici/internal/server/servertest"
)

// careful are the features of agents that lose nothing themselves.
var careful = []string{wire.FeatureFrameAck, wire.FeatureStartFence}

const app = "local/app"

// countdown comes true at the n-th thing that happens after it was set.
type countdown struct {
	left atomic.Int64
	hit  chan struct{}
}

func newCountdown() *countdown { return &countdown{hit: make(chan struct{}, 1)} }

func (c *countdown) tick(string) {
	if c.left.Add(-1) == 0 {
		c.hit <- struct{}{}
	}
}

// next waits until a random number of things have happened, and fails when they do not.
func (c *countdown) next(t *testing.T, random *rand.Rand, most int) {
	t.Helper()
	n := 1 + random.IntN(most)
	c.left.Store(int64(n))
	select {
	case <-c.hit:
	case <-time.After(30 * time.Second):
		t.Fatalf("nothing happens any more, %d of %d things before the next kill", c.left.Load(), n)
	}
}

// seeded makes a source of random moments. Its seed is in the test's output.
func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestKilledServerLosesNothing kills server processes at random moments while a stream of runs goes through agents.
// Every delivery that was acknowledged becomes exactly one run, every run ends green, every job is started once, in the
// attempt that succeeded, every end is told once, and every acknowledged line of log is there.
func TestKilledServerLosesNothing(t *testing.T) {
	servertest.Each(t, nil, testServerKills)
}

// TestKilledServerLosesNoLogOnItsWayToAnObjectStore is the same with logs in segments. At the end the object store alone has
// every line.
func TestKilledServerLosesNoLogOnItsWayToAnObjectStore(t *testing.T) {
	testServerKills(t, servertest.New(t, func(s *server.Settings) { useBucket(t, s) }))
}

const (
	kills      = 4
	killedRuns = 60
	killedLog  = 12 // chunks of a job, whose log becomes a file on the way
)

func testServerKills(t *testing.T, h *servertest.Home) {
	random, moment := seeded(t), newCountdown()
	sha := h.Commit(t, app, servertest.Lock("build", "test<build"))
	process := h.Launch(t)
	ledger := servertest.NewLedger(moment.tick)
	for i := range 3 {
		h.Employ(t, &servertest.Agent{ID: fmt.Sprint("agent-", i), Slots: 4, Features: careful, Chunks: killedLog, Ledger: ledger})
	}
	pushing := stream(t, h, sha, killedRuns, moment.tick)
	for range kills {
		moment.next(t, random, 400)
		process.Kill()
		process = h.Launch(t)
	}
	if err := <-pushing; err != nil {
		t.Fatal(err)
	}
	h.AwaitRuns(t, killedRuns)
	requireAllGreen(t, h, killedRuns)
	requireStartsMatchAttempts(t, h, ledger, 2*killedRuns)
	requireEndsTold(t, h, killedRuns, 2*killedRuns)
	if err := process.Terminate(); err != nil {
		t.Errorf("the last server did not end well: %v", err)
	}
	requireLogs(t, h, 2*killedRuns, ledger)
}

// stream pushes n deliveries, each again and again until a server has acknowledged it. The result tells of the end.
func stream(t *testing.T, h *servertest.Home, sha string, n int, tell func(string)) <-chan error {
	ended := make(chan error, 1)
	ctx := t.Context()
	go func() {
		for i := range n {
			if err := insist(ctx, h, sha, fmt.Sprint("delivery-", i)); err != nil {
				ended <- err
				return
			}
			tell("push")
		}
		ended <- nil
	}()
	return ended
}

// insist delivers until it is told that the delivery is accepted. A server that is down or going down is no answer.
func insist(ctx context.Context, h *servertest.Home, sha, mark string) error {
	for {
		a, err := h.Deliver(ctx, servertest.Source, servertest.PushBody(app, "main", sha), mark)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && a.Status/100 == 2:
			return nil
		case err == nil && a.Status != http.StatusServiceUnavailable:
			return fmt.Errorf("delivery %s was answered %d %s%s", mark, a.Status, a.Reason, a.Error)
		}
		service.Sleep(ctx, 5*time.Millisecond)
	}
}

func requireAllGreen(t *testing.T, h *servertest.Home, n int) {
	t.Helper()
	if got := h.Count(t, "SELECT count(*) FROM execution_runs"); got != n {
		t.Errorf("%d runs, want one for each of %d deliveries", got, n)
	}
	if got := h.Count(t, "SELECT count(*) FROM execution_runs WHERE status = 'success'"); got != n {
		t.Errorf("%d of %d runs succeeded; %s", got, n, reasons(t, h))
	}
}

// reasons collects why jobs ended otherwise than well.
func reasons(t *testing.T, h *servertest.Home) string {
	t.Helper()
	rows, err := h.DB.Read().QueryContext(t.Context(), "SELECT job_id, status, coalesce(reason, '') FROM execution_jobs WHERE status <> 'success' LIMIT 5")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []error
	for rows.Next() {
		var job, status, reason string
		if err := rows.Scan(&job, &status, &reason); err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Errorf("%s %s %s", job, status, reason))
	}
	return fmt.Sprint(errors.Join(out...))
}

// requireStartsMatchAttempts compares how often agents started every job with its attempts. No agent was lost, so one
// attempt came to its end and any other was taken back before the job started.
func requireStartsMatchAttempts(t *testing.T, h *servertest.Home, ledger *servertest.Ledger, n int) {
	t.Helper()
	starts := ledger.Starts()
	if diff := cmp.Diff(attempts(t, h, "outcome = 'success'"), starts); diff != "" || len(starts) != n {
		t.Errorf("%d jobs started, want %d (- attempts that succeeded, + starts):\n%s", len(starts), n, diff)
	}
	for job, n := range starts {
		if n != 1 {
			t.Errorf("job %s was started %d times, though no agent was ever lost", job, n)
		}
	}
}

// attempts counts the attempts of every job that meet the condition.
func attempts(t *testing.T, h *servertest.Home, condition string) map[string]int {
	t.Helper()
	rows, err := h.DB.Read().QueryContext(t.Context(), "SELECT job_id, count(*) FROM dispatch_attempts WHERE "+condition+" GROUP BY job_id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var job string
		var n int
		if err := rows.Scan(&job, &n); err != nil {
			t.Fatal(err)
		}
		out[job] = n
	}
	return out
}

// requireLogs requires every line of every job in its order, none twice, and among them every acknowledged one.
func requireLogs(t *testing.T, h *servertest.Home, n int, ledger *servertest.Ledger) {
	t.Helper()
	store := openLogs(t, h)
	var want []string
	for i := range killedLog {
		want = append(want, fmt.Sprint("line ", i))
	}
	rows, err := h.DB.Read().QueryContext(t.Context(), "SELECT run_id, job_id, job_name FROM execution_jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	seen, acknowledged := 0, ledger.Lines()
	for rows.Next() {
		var run, job, name string
		if err := rows.Scan(&run, &job, &name); err != nil {
			t.Fatal(err)
		}
		seen++
		if diff := cmp.Diff(want, messages(t, store, logs.Path(run, name, 0))); diff != "" {
			t.Errorf("log of job %s, of which %d lines were acknowledged (-want +got):\n%s", job, len(acknowledged[job]), diff)
		}
	}
	if seen != n {
		t.Errorf("%d jobs, want %d", seen, n)
	}
}

// TestKilledAgentsJobEndsWithinTheWindow kills agents in the different states of their jobs.
func TestKilledAgentsJobEndsWithinTheWindow(t *testing.T) {
	const lost = "Job failed: agent disconnected and did not reconnect within the recovery window"
	tests := []struct {
		name     string
		silent   bool // the agent answers no dispatch; otherwise it starts the job and never ends it
		features []string
		returns  bool   // the agent starts again, and knows nothing of the job
		status   string // of the job
		message  string // of the job, "" for none
		attempts int
		starts   int
	}{
		{"a job that was never answered goes to another agent", true, careful, false, "success", "", 2, 1},
		{"a job that ran is lost with its agent", false, careful, false, "failed", lost, 1, 1},
		{"a job that ran on an agent without acknowledgements, too", false, nil, false, "failed", lost, 1, 1},
		{"an agent that returns without the job lost it", false, careful, true, "failed",
			"Job failed: agent first came back without the job, so it was lost while it ran", 1, 1},
		{"an agent that returns without a job it never answered gets it again", true, careful, true, "success", "", 2, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			servertest.Each(t, func(s *server.Settings) { s.Engine.RecoveryWindow = time.Second }, func(t *testing.T, h *servertest.Home) {
				moment := newCountdown()
				h.Start(t)
				ledger := servertest.NewLedger(func(what string) {
					if what == "dispatch" && tt.silent || what == "chunk" {
						moment.tick(what)
					}
				})
				agent := h.Employ(t, &servertest.Agent{ID: "first", Silent: tt.silent, Hold: true, Features: tt.features, Chunks: 1, Ledger: ledger})
				moment.left.Store(1)
				h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
				<-moment.hit
				if !tt.silent {
					servertest.Await(t, "the start of the job", func() bool {
						return h.Count(t, "SELECT count(*) FROM execution_jobs WHERE status = 'running'") == 1
					}, nil)
				}
				agent.Kill()
				next := "second"
				if tt.returns {
					next = "first"
				}
				h.Employ(t, &servertest.Agent{ID: next, Features: careful, Ledger: ledger})
				h.AwaitRuns(t, 1)
				compareJob(t, h, tt.status, tt.message, tt.attempts)
				for job, n := range ledger.Starts() {
					if n != tt.starts {
						t.Errorf("job %s was started %d times, want %d", job, n, tt.starts)
					}
				}
			})
		})
	}
}

// compareJob compares the only job of a home.
func compareJob(t *testing.T, h *servertest.Home, status, message string, attempts int) {
	t.Helper()
	var gotStatus, gotMessage string
	err := h.DB.Read().QueryRowContext(t.Context(), "SELECT status, coalesce(error_message, '') FROM execution_jobs").Scan(&gotStatus, &gotMessage)
	if err != nil {
		t.Fatal(err)
	}
	if gotStatus != status || gotMessage != message {
		t.Errorf("the job is %s %q, want %s %q", gotStatus, gotMessage, status, message)
	}
	if got := h.Count(t, "SELECT count(*) FROM dispatch_attempts"); got != attempts {
		t.Errorf("%d attempts, want %d", got, attempts)
	}
}

// TestKilledAgentsStartAJobOnceForEachAttempt kills agents at random moments while runs go through them. Every run ends:
// green, or failed since its agent was lost while it ran, or since five agents in a row were lost before it ran. No job
// is started more often than it had attempts; its agent may be killed before it starts.
func TestKilledAgentsStartAJobOnceForEachAttempt(t *testing.T) {
	const runs, deaths = 60, 12
	change := func(s *server.Settings) { s.Engine.RecoveryWindow = time.Second }
	servertest.Each(t, change, func(t *testing.T, h *servertest.Home) {
		random, moment := seeded(t), newCountdown()
		h.Start(t)
		sha := h.Commit(t, app, servertest.Lock("build"))
		ledger := servertest.NewLedger(moment.tick)
		employ := func(i int) *servertest.Agent {
			return h.Employ(t, &servertest.Agent{ID: fmt.Sprint("agent-", i), Slots: 2, Features: careful, Chunks: 3, Ledger: ledger})
		}
		agents := []*servertest.Agent{employ(0), employ(1), employ(2)}
		pushing := stream(t, h, sha, runs, moment.tick)
		for range deaths {
			moment.next(t, random, 40)
			i := random.IntN(len(agents))
			agents[i].Kill()
			agents[i] = employ(i)
		}
		if err := <-pushing; err != nil {
			t.Fatal(err)
		}
		h.AwaitRuns(t, runs)
		had := attempts(t, h, "1 = 1")
		for job, n := range ledger.Starts() {
			if n > had[job] {
				t.Errorf("job %s was started %d times in %d attempts", job, n, had[job])
			}
		}
		if n := h.Count(t, `SELECT count(*) FROM execution_jobs WHERE status <> 'success' AND (status <> 'failed'
    OR reason NOT LIKE '%"agent_lost"%' AND reason NOT LIKE '%"attempts_exceeded"%')`); n > 0 {
			t.Errorf("%d jobs ended for other reasons than their agents' loss: %s", n, reasons(t, h))
		}
	})
}

// TestAgentsThatAnswerAtOnceLoseNoRun is the burst in which a server that dispatches before it has stored the run loses
// the answers.
func TestAgentsThatAnswerAtOnceLoseNoRun(t *testing.T) {
	const runs, senders = 200, 8
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		sha := h.Commit(t, app, servertest.Lock("build"))
		ledger := servertest.NewLedger(nil)
		for i := range 4 {
			h.Employ(t, &servertest.Agent{ID: fmt.Sprint("agent-", i), Chunks: 1, Ledger: ledger})
		}
		var sending sync.WaitGroup
		for s := range senders {
			sending.Go(func() {
				for i := s; i < runs; i += senders {
					if err := insist(t.Context(), h, sha, fmt.Sprint("delivery-", i)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		sending.Wait()
		h.AwaitRuns(t, runs)
		requireAllGreen(t, h, runs)
		requireStartsMatchAttempts(t, h, ledger, runs)
		if n := h.Count(t, "SELECT count(*) FROM dispatch_attempts"); n != runs {
			t.Errorf("%d attempts for %d jobs", n, runs)
		}
	})
}
