package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/decide/contexts"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// chance is an engine with random workflows, agents and people. Whatever happens, in whatever order and however often, is
// a command of the engine; what agents really run is kept beside, since that is what must never happen twice at once.
type chance struct {
	*bench
	rt      *rapid.T
	runs    int
	given   map[string]string // job → agent whose memory has its dispatch
	running map[string]string // job → agent that executes it
	begun   map[string]int    // how often a job was begun
	past    []func()

	scissors *storetest.Scissors // cut the connections to the database; nil: nobody does
}

// insist gives a command until the database has answered.
func (c *chance) insist(do func() error) error {
	if c.scissors != nil {
		c.scissors.CutAfter(rapid.IntRange(0, 5000).Draw(c.rt, "bytes until the cut"), rapid.Bool().Draw(c.rt, "on the way there"))
		err := do()
		if c.scissors.Mend(); err == nil || !store.IsUnavailable(err) {
			return err
		}
	}
	return do()
}

var chanceAgents = []string{"agent-1", "agent-2"}

// spawn registers a run of a random workflow.
func (c *chance) spawn() {
	if c.runs == 3 {
		return
	}
	c.runs++
	runID := fmt.Sprint("run-", c.runs)
	names := []string{"a", "b", "c", "d"}
	var jobs []string
	for i, name := range names[:rapid.IntRange(1, 4).Draw(c.rt, "jobs")] {
		members := ""
		if i > 0 && rapid.Bool().Draw(c.rt, "needs") {
			on := rapid.SampledFrom([]string{`["success"]`, `["failed"]`, `["success","failed","cancelled","skipped","timed_out_stale","drift_dropped"]`}).Draw(c.rt, "on")
			members += fmt.Sprintf(`,"needs":[{"name":%q,"runOn":%s}]`, names[rapid.IntRange(0, i-1).Draw(c.rt, "upstream")], on)
		}
		members += rapid.SampledFrom([]string{"", "", `,"dynamicEnv":true`, `,"matrix":{"_type":"dynamic"},"maxParallel":1`,
			`,"matrix":{"_type":"static","values":[]}`, `,"matrix":{"_type":"static","values":["1","2","3"]},"maxParallel":2,"failFast":true`, `,"approval":{"clauses":[],"when":"always"}`}).Draw(c.rt, "kind")
		jobs = append(jobs, lockJob(name, members))
	}
	if rapid.Bool().Draw(c.rt, "generator") {
		jobs = append(jobs, fmt.Sprintf(`{"_type":"dynamic","source":{"file":".kici/workflows/ci.ts","index":%d},"group":"g"}`, len(jobs)),
			lockJob("z", `,"needs":[{"group":"g"}],"dependsOnGroups":["g"]`))
	}
	rule := rapid.SampledFrom([]string{"", `,"concurrency":{"hasGroup":true,"cancelInProgress":false}`, `,"concurrency":{"hasGroup":true}`,
		`,"approval":{"clauses":[],"when":"always"}`, tokens, tokens + `,"approval":{"clauses":[],"when":"always"}`}).Draw(c.rt, "rule")
	c.plan(runID, nil, rule, jobs...)
}

// any draws one of the values, "" when there is none.
func (c *chance) any(what string, values []string) string {
	if len(values) == 0 {
		return ""
	}
	return rapid.SampledFrom(values).Draw(c.rt, what)
}

func (c *chance) step() {
	c.now.Add(rapid.SampledFrom([]int64{1, 1, 50, 15_000, 130_000}).Draw(c.rt, "time"))
	agent := rapid.SampledFrom(chanceAgents).Draw(c.rt, "agent")
	job := c.any("job", c.list("SELECT job_id FROM execution_jobs ORDER BY job_id"))
	commands := map[string]func(){
		"spawn": c.spawn,
		"claim": func() { c.take(agent) },
		"ack":   func() { c.ack(agent, job) },
		"run":   func() { c.told(agent, job, ci.JobRunning, "") },
		"end": func() {
			if c.running[job] == agent {
				delete(c.running, job)
			}
			c.told(agent, job, rapid.SampledFrom([]ci.JobStatus{ci.JobSuccess, ci.JobSuccess, ci.JobFailed, ci.JobCancelled}).Draw(c.rt, "end"), c.result(job))
		},
		"deferred": func() {
			at := c.list("SELECT CAST(claimed_at AS TEXT) FROM dispatch_queue WHERE id = $1 AND claimed_at IS NOT NULL", job)
			if c.running[job] != agent && len(at) > 0 { // what has been sent is never deferred
				claimed, err := strconv.ParseInt(at[0], 10, 64)
				c.must(err)
				c.ignore(c.insist(func() error { return c.e.Deferred(c.t.Context(), agent, job, claimed) }))
			}
		},
		"reject": func() {
			if c.running[job] != agent {
				c.ignore(c.insist(func() error { return c.e.Rejected(c.t.Context(), agent, job, "busy") }))
			}
		},
		"lost":   func() { c.must(c.insist(func() error { return c.e.Lost(c.t.Context(), agent, "", false) })) },
		"back":   func() { c.back(agent) },
		"dies":   func() { c.dies(agent) },
		"reboot": func() { c.reboots(agent) },
		"group":  func() { c.askGroup(agent, job) },
		"cancel": func() { c.cancel() },
		"decide": func() { c.vote() },
		"sweep":  func() { c.must(c.insist(func() error { return c.e.SweepOnce(c.t.Context()) })) },
		"follow": func() { c.must(c.insist(func() error { return c.e.FollowOnce(c.t.Context()) })) },
		"again": func() {
			if len(c.past) > 0 {
				rapid.SampledFrom(c.past).Draw(c.rt, "old")()
			}
		},
	}
	names := []string{"spawn", "claim", "claim", "ack", "ack", "run", "end", "end", "reject", "deferred", "lost", "back", "dies", "reboot", "group", "cancel", "decide", "sweep", "follow", "again"}
	name := rapid.SampledFrom(names).Draw(c.rt, "command")
	if name == "cancel" && rapid.IntRange(0, 6).Draw(c.rt, "really") > 0 {
		return
	}
	commands[name]()
	if job != "" && (name == "ack" || name == "run") {
		c.past = append(c.past, commands[name])
	}
}

// ignore lets pass that an agent spoke of a job that it never had.
func (c *chance) ignore(err error) {
	if err != nil && !strings.Contains(err.Error(), engine.ErrNotOwner.Error()) {
		c.rt.Fatal(err)
	}
}

func (c *chance) take(agent string) {
	id := c.any("head", c.list("SELECT id FROM dispatch_queue WHERE status = 'pending' ORDER BY id"))
	if id == "" {
		return
	}
	c.must(c.insist(func() error { return c.claimFor(agent, id) }))
}

// claimFor gives a job to an agent. Where nobody knows whether the claim was stored, its second try finds the row taken, and
// the agent never hears of it.
func (c *chance) claimFor(agent, id string) error {
	return c.db.Write(c.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		ok, err := queue.Claim(ctx, tx, id, agent, "node-1", 2, c.now.Load(), c.now.Load()+10_000)
		if ok && err == nil {
			c.given[id] = agent
		}
		return err
	})
}

// ack is an agent's answer and, when the server takes it, the start of its first step.
func (c *chance) ack(agent, job string) {
	if job == "" || c.given[job] != agent {
		return
	}
	var ack engine.Ack
	err := c.insist(func() (err error) {
		ack, err = c.e.Acked(c.t.Context(), agent, "", job)
		return err
	})
	if err != nil {
		c.ignore(err)
		return
	}
	if ack.Fenced || c.running[job] == agent {
		return
	}
	if other := c.running[job]; other != "" {
		c.rt.Fatalf("job %s runs at %s and at %s", job, other, agent)
	}
	status := c.list("SELECT status FROM dispatch_queue WHERE id = $1", job)
	if len(status) == 0 || ci.QueueStatus(status[0]).Terminal() {
		return // the answer came again, after the end
	}
	c.running[job] = agent
	c.begun[job]++
}

func (c *chance) told(agent, job string, state ci.JobStatus, data string) {
	if job == "" {
		return
	}
	c.frame++
	m := wire.JobStatus{MessageID: fmt.Sprint("m", c.frame), JobID: job, State: state, Timestamp: c.now.Load()}
	if data != "" {
		m.Data = []byte(data)
	}
	c.ignore(c.insist(func() error { return c.e.JobReported(c.t.Context(), agent, m) }))
}

// result is what a job that works for others gives.
func (c *chance) result(job string) string {
	kind := c.list("SELECT kind FROM execution_jobs WHERE job_id = $1", job)
	switch {
	case len(kind) == 0:
		return ""
	case kind[0] == string(ci.KindInit):
		return rapid.SampledFrom([]string{`{}`, `{"initComplete":true,"initResult":{"env":{},"matrixValues":[{"v":"1"},{"v":"2"}]}}`}).Draw(c.rt, "init")
	case kind[0] == string(ci.KindGenerator):
		return rapid.SampledFrom([]string{`{}`, `{"dynamicComplete":true,"dynamicJobs":[]}`,
			`{"dynamicComplete":true,"dynamicJobs":[` + lockJob("x", "") + `,` + lockJob("y", `,"needs":["x"]`) + `]}`,
			`{"dynamicComplete":true,"dynamicJobs":[` + lockJob("x", `,"needs":["z"]`) + `]}`}).Draw(c.rt, "jobs")
	}
	return rapid.SampledFrom([]string{"", `{"droppedJobs":["x","y"]}`}).Draw(c.rt, "drift")
}

// back is an agent that registers anew with what it runs, and stops what it is told to.
func (c *chance) back(agent string) {
	var held []wire.InFlightJob
	for job, at := range c.running {
		if at == agent {
			held = append(held, wire.InFlightJob{JobID: job})
		}
	}
	slices.SortFunc(held, func(a, b wire.InFlightJob) int { return strings.Compare(a.JobID, b.JobID) })
	var cancels []wire.JobCancel
	c.must(c.insist(func() (err error) {
		cancels, err = c.e.Connected(c.t.Context(), agent, held, true)
		return err
	}))
	for _, stop := range cancels {
		delete(c.running, stop.JobID)
	}
}

// dies is an agent that is killed with all it runs.
func (c *chance) dies(agent string) {
	for _, memory := range []map[string]string{c.running, c.given} {
		for job, at := range memory {
			if at == agent {
				delete(memory, job)
			}
		}
	}
	c.must(c.insist(func() error { return c.e.Lost(c.t.Context(), agent, "", false) }))
}

// reboots is an agent whose host is about to reboot.
func (c *chance) reboots(agent string) {
	until := c.now.Load() + rapid.SampledFrom([]int64{1000, 600_000}).Draw(c.rt, "back within")
	c.must(c.db.Write(c.t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := fleet.AwaitReboot(ctx, tx, agent, "c-"+agent, until)
		return err
	}))
}

func (c *chance) askGroup(agent, job string) {
	if job == "" || c.running[job] != agent {
		return
	}
	patient := rapid.Bool().Draw(c.rt, "patient")
	var ack wire.ConcurrencyAck
	c.ignore(c.insist(func() (err error) {
		ack, err = engine.Groups{Engine: c.e}.Report(c.t.Context(), agent, patient, wire.ConcurrencyReport{MessageID: "q-" + job, JobID: job, Group: "g"})
		return err
	}))
	if ack.Action == wire.ConcurrencyCancel || ack.Action == wire.ConcurrencyWait && !patient {
		delete(c.running, job)
		c.begun[job] = 0 // no step had begun: the group is asked before
	}
}

func (c *chance) cancel() {
	if run := c.any("run", c.list("SELECT run_id FROM execution_runs WHERE completed_at IS NULL ORDER BY run_id")); run != "" {
		force := rapid.Bool().Draw(c.rt, "force")
		err := c.insist(func() error {
			_, err := c.e.Cancel(c.t.Context(), run, "api_key:1", "", force)
			return err
		})
		if !errors.Is(err, engine.ErrRunTerminal) { // the answer to the first may have been lost
			c.must(err)
		}
	}
}

func (c *chance) vote() {
	if hold := c.any("hold", c.list("SELECT id FROM held_runs ORDER BY id")); hold != "" {
		answer := rapid.SampledFrom([]contexts.Answer{contexts.Approve, contexts.Approve, contexts.Reject}).Draw(c.rt, "answer")
		c.must(c.insist(func() error {
			_, err := c.e.Decide(c.t.Context(), hold, engine.Vote{By: contexts.Actor{ID: "anna", MayDecide: true}, Through: ci.QueueContext, Answer: answer})
			return err
		}))
	}
}

// drain lets time pass and every deadline come, with nobody to help.
func (c *chance) drain() {
	for range 60 {
		if len(c.list("SELECT run_id FROM execution_runs WHERE completed_at IS NULL")) == 0 {
			return
		}
		c.now.Add(25 * 3_600_000)
		for _, agent := range chanceAgents {
			c.dies(agent)
		}
		c.must(c.e.FollowOnce(c.t.Context()))
		c.must(c.e.SweepOnce(c.t.Context()))
	}
	c.rt.Fatalf("runs wait for nothing: %s", strings.Join(c.list(`SELECT j.job_name || ' ' || j.status || ' ' || coalesce(j.reason, '-') || ' row ' || coalesce(q.status, '-')
FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id LEFT JOIN dispatch_queue q ON q.id = j.job_id
WHERE r.completed_at IS NULL ORDER BY j.run_id, j.position`), "\n"))
}

// queuedWhileHeld lists the jobs that must not be in the queue yet, and the runs that are held by nothing.
const queuedWhileHeld = `SELECT q.id FROM dispatch_queue q JOIN execution_runs r ON r.run_id = q.run_id WHERE r.status = 'held'
UNION ALL SELECT r.run_id FROM execution_runs r WHERE (r.status = 'held') <> EXISTS (SELECT 1 FROM held_runs h
    WHERE h.run_id = r.run_id AND h.status = 'pending' AND h.hold_scope = 'workflow' AND h.job_id <> '')`

// settled are statements that list what must not be there once every run has ended.
var settled = map[string]string{
	"open jobs":                  "SELECT job_id FROM execution_jobs WHERE completed_at IS NULL",
	"ends without a reason":      "SELECT job_id || ' ' || status FROM execution_jobs WHERE status <> 'success' AND reason IS NULL",
	"runs that fail unexplained": "SELECT run_id FROM execution_runs WHERE status <> 'success' AND reason IS NULL",
	"open queue rows":            "SELECT id FROM dispatch_queue WHERE status IN ('pending', 'dispatched', 'recovering')",
	"open holds":                 "SELECT id FROM held_runs WHERE status = 'pending'",
	"places in groups":           "SELECT run_id FROM concurrency_slots",
	"waiters for groups":         "SELECT job_id FROM concurrency_waiters",
	"attempts that never ended":  "SELECT job_id FROM dispatch_attempts WHERE ended_at IS NULL",
	"successes with failed jobs": `SELECT r.run_id FROM execution_runs r JOIN execution_jobs j ON j.run_id = r.run_id
WHERE r.status = 'success' AND j.status NOT IN ('success', 'skipped')`,
	"failures without a failed job": `SELECT r.run_id FROM execution_runs r WHERE r.status = 'failed' AND NOT EXISTS (
SELECT 1 FROM execution_jobs j WHERE j.run_id = r.run_id AND j.status IN ('failed', 'timed_out_stale', 'unroutable', 'drift_dropped'))`,
}

func TestWhateverHappensEveryRunEndsAndNothingIsLeft(t *testing.T) {
	storetest.Check(t, func(t *testing.T, rt *rapid.T, db *store.DB) { everyRunEnds(t, rt, db, nil) })
}

// Connections to the database end at any byte of a command. Nobody knows whether it was carried out, so whoever gave it gives
// it again.
func TestWhateverIsCutEveryRunEndsAndNothingIsLeft(t *testing.T) {
	storetest.Fewer(t)
	db, scissors := storetest.Faulty(t, storetest.PostgresURL(t))
	rapid.Check(t, func(rt *rapid.T) { everyRunEnds(t, rt, db, scissors) })
}

func everyRunEnds(t *testing.T, rt *rapid.T, db *store.DB, scissors *storetest.Scissors) {
	b := newBench(t, db)
	b.must(b.db.Write(t.Context(), wipe))
	for _, id := range chanceAgents {
		b.write(func(ctx context.Context, tx *store.Tx) error {
			return errors.Join(fleet.Seen(ctx, tx, fleet.Agent{ID: id, Labels: []string{"linux"}, Features: []string{wire.FeatureFrameAck, wire.FeatureStartFence},
				Lifecycle: fleet.Static, MaxConcurrency: 2, NodeID: "node-1", ConnectionID: "c-" + id, LastSeenAt: b.now.Load()}), fleet.EndReboot(ctx, tx, id))
		})
	}
	b.guard(fakeContexts{"prod": {RequiredReviewers: []string{"anna"}}, "base": {WaitTimerSeconds: number(60)}})
	c := &chance{bench: b, rt: rt, given: map[string]string{}, running: map[string]string{}, begun: map[string]int{}, scissors: scissors}
	b.insist = c.insist
	for range rapid.IntRange(5, 60).Draw(rt, "steps") {
		c.step()
		if early := c.list(queuedWhileHeld); len(early) > 0 {
			rt.Fatalf("queued while their run is held: %q", early)
		}
	}
	c.drain()
	for what, query := range settled {
		if left := c.list(query); len(left) > 0 {
			rt.Fatalf("%s: %q", what, left)
		}
	}
	for job, times := range c.begun {
		if times > 1 {
			rt.Fatalf("job %s was begun %d times", job, times)
		}
	}
}

// wipe empties the tables that a check leaves full.
func wipe(ctx context.Context, tx *store.Tx) error {
	for _, table := range []string{"held_run_approvals", "held_runs", "concurrency_waiters", "concurrency_slots", "concurrency_groups", "outbox",
		"dispatch_attempts", "dispatch_queue", "execution_steps", "execution_job_needs", "execution_jobs", "execution_runs"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table); err != nil {
			return err
		}
	}
	return nil
}
