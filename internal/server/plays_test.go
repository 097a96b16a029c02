package server_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/server"
	"kici/internal/server/logs"
	"kici/internal/server/report"
	"kici/internal/server/servertest"
)

// A play is what agents of the recorded kind do with a server, and what people do to both, line by line. Each line is an
// actor and what happens to it:
//
//	push [branch]              a delivery, of which the newest run follows
//	cancel [force] | rerun     of the newest run
//	approve | reject           of the oldest open hold
//	server restarts | dies     it ends in order, or is killed, and starts again; all connections are gone
//	JOB waits CODE             until people are told so, of the newest job of that name
//	JOB becomes STATUS
//	AGENT joins [LABEL...]     on a new connection, with the jobs that it holds; linux without labels
//	AGENT joins as OTHER       under the other's name
//	AGENT joins once           with a token for it alone, as one that a scaler started
//	AGENT registers            again, on its connection
//	AGENT is gone | leaves     the connection breaks, or ends in order
//	AGENT forgets              its process has ended: it holds no job any more
//	AGENT gets JOB             the next frame is its dispatch
//	AGENT takes JOB from OTHER to speak of it
//	AGENT acks | starts JOB    job.ack; job.ack and the state running
//	AGENT rejects JOB busy | draining
//	AGENT steps JOB INDEX STATE
//	AGENT ends JOB STATE [DATA]
//	AGENT logs JOB N           that many chunks of ten lines
//	AGENT puts TEXT            at the link that it heard last; cut off after the first bytes with "a cut TEXT"
//	AGENT asks JOB             whether the first step may go on
//	AGENT groups JOB GROUP     job.concurrency.report
//	AGENT says JOB FRAME       anything else
//	AGENT hears TYPE [TEXT]    the next frame is of that type and holds the text
//	AGENT stops JOB            the next frame cancels it, and it dies at once
//	AGENT is sent away CODE
//	AGENT is reached           by a frame, which it has not read
type play struct {
	name     string
	change   func(*server.Settings)
	lock     []byte
	lines    string
	want     []string // of each run, oldest first: its status, then name=status of its jobs
	attempts int      // that all jobs had together; 0 does not say
}

// perform plays each once, and in every other play agents send each report twice. Where several speak to the database in the same
// moment, or it outlives its server, a play is given on both engines, on PostgreSQL with the reports twice.
func perform(t *testing.T, plays []play) {
	for i, p := range plays {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			change := func(s *server.Settings) {
				s.BootstrapToken = adminToken
				if p.change != nil {
					p.change(s)
				}
			}
			if p.crowded() {
				servertest.Each(t, change, func(t *testing.T, h *servertest.Home) {
					(&performance{t: t, h: h, play: p, twice: h.Settings.DatabaseURL != ""}).run()
				})
				return
			}
			(&performance{t: t, h: servertest.New(t, change), play: p, twice: i%2 == 1}).run()
		})
	}
}

func (p play) crowded() bool {
	return slices.ContainsFunc([]string{"server ", "cancel", "approve", "b joins"}, func(s string) bool { return strings.Contains(p.lines, s) })
}

// performance is a play under way.
type performance struct {
	play
	t      *testing.T
	h      *servertest.Home
	twice  bool
	line   string // the one being played
	sha    string
	pushed int
	stop   func() // of the server
	kill   func()
	agents map[string]*realAgent
	logged map[string][]string // the lines that were sent, by log
}

func (p *performance) run() {
	p.agents, p.logged = map[string]*realAgent{}, map[string][]string{}
	p.sha = p.h.Commit(p.t, app, p.lock)
	p.open()
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Logf("the play stood at: %s", p.line)
		}
	})
	for line := range strings.Lines(p.lines) {
		if words := strings.Fields(line); len(words) > 0 {
			p.line = strings.TrimSpace(line)
			p.act(words)
		}
	}
	p.line = "the end"
	p.h.AwaitRuns(p.t, len(p.want))
	p.settled()
	runs, jobs := endings(p.t, p.h)
	var got []string
	for i := range runs {
		got = append(got, runs[i]+" "+jobs[i])
	}
	if diff := cmp.Diff(p.want, got); diff != "" {
		p.t.Errorf("ends (-want +got):\n%s", diff)
	}
	p.logsAreWhole()
}

// logsAreWhole requires every line that was sent, once.
func (p *performance) logsAreWhole() {
	p.t.Helper()
	if len(p.logged) == 0 {
		return
	}
	p.stop() // the logs are the server's alone while it runs
	store, err := logs.Open(p.t.Context(), logs.Options{Root: filepath.Join(p.h.Settings.DataDir, "logs"), DB: p.h.DB})
	if err != nil {
		p.fail("%v", err)
	}
	defer store.Close()
	for path, want := range p.logged {
		if got := messages(p.t, store, path); !slices.Equal(got, want) {
			p.t.Errorf("%s holds %d lines, %d were sent", path, len(got), len(want))
		}
	}
}

func (p *performance) fail(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s: %s", p.line, fmt.Sprintf(format, args...))
}

// open starts the server, as a process of its own where it is to be killed.
func (p *performance) open() {
	if strings.Contains(p.lines, "server dies") {
		process := p.h.Launch(p.t)
		p.kill = process.Kill
		p.stop = func() { _ = process.Terminate() } // how it ends is another test's matter
		return
	}
	running := p.h.Start(p.t)
	p.stop, p.kill = running.Stop, running.Stop
}

func (p *performance) act(words []string) {
	p.t.Helper()
	words = append(words, "", "", "")
	switch who, what := words[0], words[1]; {
	case who == "push":
		p.pushed++
		branch := what
		if branch == "" {
			branch = "main"
		}
		p.h.Push(p.t, app, branch, p.sha)
		servertest.Await(p.t, p.line, func() bool { return p.h.Count(p.t, "SELECT count(*) FROM execution_runs") >= p.pushed }, nil)
	case who == "cancel" || who == "rerun":
		p.settle()
		p.post("/api/v1/admin/runs/"+p.newestRun()+"/"+who, fmt.Sprintf(`{"force":%t}`, what == "force"))
		if who == "rerun" {
			p.pushed++
		}
	case who == "approve" || who == "reject":
		p.settle()
		p.post("/api/v1/admin/held-runs/decision", fmt.Sprintf(`{"holdId":%q,"decision":%q}`, p.hold(), who))
	case who == "server":
		if what == "dies" {
			p.kill()
		} else {
			p.stop()
		}
		p.open()
	case what == "waits":
		p.await(func(j explained) bool { return j.code == words[2] }, who)
	case what == "becomes":
		p.await(func(j explained) bool { return j.status == words[2] }, who)
	default:
		if p.agents[who] == nil {
			p.agents[who] = &realAgent{performance: p, id: who, jobs: map[string]wire.JobDispatch{}, holds: map[string]bool{}, heard: map[string]bool{}}
		}
		p.agents[who].act(what, words[2], strings.TrimSpace(strings.Join(words[3:], " ")))
	}
}

// settle lets the server hear what agents have said before people act on it, as they do line by line. Otherwise a job that is
// cancelled may have been answered for or not, and agents are told so.
func (p *performance) settle() {
	p.t.Helper()
	for _, a := range p.agents {
		if a.peer != nil {
			a.peer.SettleUnlessEnded()
		}
	}
}

func (p *performance) post(path, body string) {
	p.t.Helper()
	if status, answer := call(p.t, p.h, http.MethodPost, path, body); status/100 != 2 {
		p.fail("answered %d %s", status, answer)
	}
}

func (p *performance) text(query string) (s string) {
	p.t.Helper()
	if err := p.h.DB.Read().QueryRowContext(p.t.Context(), query).Scan(&s); err != nil {
		p.fail("%s: %v", query, err)
	}
	return s
}

func (p *performance) newestRun() string {
	p.t.Helper()
	return p.text("SELECT run_id FROM execution_runs ORDER BY created_at DESC, run_id DESC LIMIT 1")
}

func (p *performance) hold() string {
	p.t.Helper()
	servertest.Await(p.t, p.line, func() bool { return p.h.Count(p.t, "SELECT count(*) FROM held_runs WHERE status = 'pending'") > 0 }, nil)
	return p.text("SELECT id FROM held_runs WHERE status = 'pending' ORDER BY created_at, id LIMIT 1")
}

// explained is what people are told of a job.
type explained struct{ status, code string }

// await waits until people are told so of a job of any run.
func (p *performance) await(so func(explained) bool, job string) {
	p.t.Helper()
	var told []string
	servertest.Await(p.t, p.line, func() bool {
		told = nil
		found, err := report.Runs(p.t.Context(), p.h.DB.Read(), report.RunFilter{Limit: 100})
		if err != nil {
			p.fail("%v", err)
		}
		for _, r := range found {
			x, err := report.Explain(p.t.Context(), p.h.DB.Read(), r.RunID, "", time.Now().UnixMilli())
			if err != nil {
				p.fail("%v", err)
			}
			for _, j := range x.Jobs {
				told = append(told, fmt.Sprintf("%s %s %s: %s", j.JobName, j.Status, j.Reason.Code, j.Reason.Message))
				if strings.ReplaceAll(j.JobName, " ", "") == job && so(explained{string(j.Status), j.Reason.Code}) {
					return true
				}
			}
		}
		return false
	}, func() string { return strings.Join(told, "\n") })
}

// settled requires that nothing is left behind, that no two attempts of a job and no two of an agent's overlapped, and
// that no agent was told more than the play says.
func (p *performance) settled() {
	p.t.Helper()
	for what, query := range map[string]string{
		"holds that are open":          "SELECT count(*) FROM held_runs WHERE status = 'pending'",
		"queue rows that are open":     "SELECT count(*) FROM dispatch_queue WHERE status IN ('pending', 'dispatched', 'recovering')",
		"attempts that have not ended": "SELECT count(*) FROM dispatch_attempts WHERE ended_at IS NULL",
		"places in groups":             "SELECT count(*) FROM concurrency_slots",
		"jobs in line for groups":      "SELECT count(*) FROM concurrency_waiters",
		"words for agents":             "SELECT count(*) FROM outbox",
		"steps that run":               "SELECT count(*) FROM execution_steps WHERE status IN ('pending', 'running')",
		"attempts that overlap": `SELECT count(*) FROM dispatch_attempts a JOIN dispatch_attempts b
ON a.job_id = b.job_id AND a.attempt < b.attempt AND a.ended_at > b.claimed_at`,
		"ended jobs without a reason": "SELECT count(*) FROM execution_jobs WHERE status <> 'success' AND reason IS NULL",
		"ended runs without a reason": "SELECT count(*) FROM execution_runs WHERE status <> 'success' AND failure_reason IS NULL",
		"attempts of an agent that overlap": `SELECT count(*) FROM dispatch_attempts a JOIN dispatch_attempts b
ON a.agent_id = b.agent_id AND a.job_id <> b.job_id AND a.claimed_at < b.ended_at AND b.claimed_at < a.ended_at`,
	} {
		servertest.Await(p.t, "no "+what, func() bool { return p.h.Count(p.t, query) == 0 }, nil)
	}
	if n := p.h.Count(p.t, "SELECT count(*) FROM dispatch_attempts"); p.attempts != 0 && n != p.attempts {
		p.t.Errorf("%d attempts, want %d", n, p.attempts)
	}
	for id, a := range p.agents {
		if a.peer == nil {
			continue
		}
		a.peer.Settle()
		for _, raw := range a.peer.RestRaw() {
			late := p.twice && strings.Contains(string(raw), wire.ReasonNotAssigned)                           // of two answers each is told so
			again := strings.Contains(p.lines, "server dies") && strings.Contains(string(raw), `"job.cancel"`) // it had been sent before
			if late || again || a.again(raw) {
				continue // agents take no notice of a cancel of what they do not have
			}
			p.t.Errorf("%s was sent, out of its turn: %s", id, raw)
		}
	}
}
