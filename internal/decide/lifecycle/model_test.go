package lifecycle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
)

// world is a run with its jobs, kept as the engine keeps it but in memory, and what agents with a start fence really do.
// Every command goes through apply, which follows up ends exactly as the engine does, on slices.
type world struct {
	t     *rapid.T
	run   Run
	jobs  []*Job
	edges map[string][]Edge // by job id; statuses are filled in from jobs
	now   int64
	// running is who really executes a job: an agent starts after its ack was taken and stops when it says so.
	running map[string]string // job id → agent
	begun   map[string]bool   // jobs of which an agent began steps, whatever the server knows of it
	claimed map[string]int64  // when jobs were given out last
	// singleUse tells that agents never come back once their connection ended.
	singleUse bool
	past      []func() // commands that can arrive once more
}

var modelAgents = []string{"a", "b"}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, run: Run{ID: "r", Status: ci.RunPending, TimeoutMs: 1000}, edges: map[string][]Edge{}, running: map[string]string{}, begun: map[string]bool{}, claimed: map[string]int64{}, singleUse: rapid.Bool().Draw(t, "single use")}
	n := rapid.IntRange(1, 6).Draw(t, "jobs")
	width := rapid.IntRange(0, 2).Draw(t, "wave width")
	failFast := rapid.Bool().Draw(t, "fail fast")
	var planned []Planned
	for i := range n {
		job := Job{ID: fmt.Sprint("j", i), Name: fmt.Sprint("j", i), Kind: ci.KindStandard, Position: i, Status: ci.JobPending}
		p := Planned{Job: job}
		for u := range i {
			if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				on := rapid.SampledFrom([][]ci.JobStatus{{ci.JobSuccess}, {ci.JobFailed}, ci.TerminalJobStatuses, {ci.JobSuccess, ci.JobSkipped}}).Draw(t, "run on")
				w.edges[job.ID] = append(w.edges[job.ID], Edge{Upstream: fmt.Sprint("j", u), RunOn: on})
				p.Needs = append(p.Needs, fmt.Sprint("j", u))
			}
		}
		if width > 0 && len(p.Needs) == 0 { // the roots are one fan-out of limited width
			p.Job.Wave = Wave{MaxParallel: width, FailFast: failFast, Label: job.Name, Gated: countRoots(planned) >= width}
		}
		if rapid.IntRange(0, 9).Draw(t, "born failed") == 0 {
			p.InitFailure = &ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitDynamicEval, Message: "no"}
		}
		planned = append(planned, p)
		j := p.Job
		w.jobs = append(w.jobs, &j)
	}
	w.apply(Register(planned, w.now))
	return w
}

func countRoots(planned []Planned) (n int) {
	for _, p := range planned {
		if p.Job.Wave.MaxParallel > 0 {
			n++
		}
	}
	return n
}

func (w *world) job(id string) *Job {
	for _, j := range w.jobs {
		if j.ID == id {
			return j
		}
	}
	w.t.Fatalf("change of unknown job %s", id)
	return nil
}

// seen is a job as a command sees it: a copy.
func seen(j *Job) Job {
	c := *j
	if j.Row != nil {
		row := *j.Row
		c.Row = &row
	}
	return c
}

func (w *world) apply(o Outcome) {
	ended := o.Ended
	w.store(o)
	if len(ended) == 0 {
		return
	}
	for len(ended) > 0 {
		next := w.job(ended[0].ID)
		if diff := cmp.Diff(*next, ended[0], cmpopts.IgnoreFields(Job{}, "Row", "Holds", "HoldReason", "Deferred", "NeedsSatisfied", "AgentID", "SlotWaiting")); diff != "" {
			w.t.Fatalf("a job ended otherwise than is stored (-stored +told):\n%s", diff)
		}
		ended = ended[1:]
		follow := Ended(w.aftermath(next), w.now)
		if diff := cmp.Diff(Ended(w.wholeAftermath(next), w.now), follow); diff != "" {
			w.t.Fatalf("deciding on the whole and on the slice differs (-whole +slice):\n%s", diff)
		}
		w.store(follow)
		ended = append(ended, follow.Ended...)
	}
	if !slices.ContainsFunc(w.jobs, func(j *Job) bool { return !j.Status.Terminal() }) {
		var all []Summary
		for _, j := range w.jobs {
			all = append(all, Summary{Name: j.Name, Status: j.Status})
		}
		w.store(Settle(w.run, all, false, w.now))
	}
}

// aftermath is the slice that the engine loads: of each dependant the needs that ended badly and the one that ended now,
// in order, and whether another is open.
func (w *world) aftermath(ended *Job) Aftermath {
	a := w.wholeAftermath(ended)
	for i, d := range a.Dependants {
		var edges []Edge
		for _, e := range d.Edges {
			if e.Upstream == ended.Name || !e.Status.Terminal() || !slices.Contains(e.RunOn, e.Status) {
				edges = append(edges, e)
			}
		}
		a.Dependants[i].Edges = edges
	}
	return a
}

func (w *world) wholeAftermath(ended *Job) Aftermath {
	a := Aftermath{Run: w.run, Job: seen(ended)}
	for _, j := range w.jobs {
		edges := slices.Clone(w.edges[j.ID])
		for i := range edges {
			edges[i].Status = w.job(edges[i].Upstream).Status
		}
		if j.Status == ci.JobPending && !j.NeedsSatisfied && slices.ContainsFunc(edges, func(e Edge) bool { return e.Upstream == ended.Name }) {
			a.Dependants = append(a.Dependants, Dependant{Job: seen(j), Edges: edges})
		}
		if ended.Wave.MaxParallel > 0 && j.Wave.MaxParallel > 0 {
			a.Siblings = append(a.Siblings, seen(j))
		}
	}
	return a
}

func (w *world) store(o Outcome) {
	if c := o.Run; c != nil {
		w.storeRun(*c)
	}
	for _, c := range o.Jobs {
		j := w.job(c.JobID)
		if j.Status.Terminal() {
			w.t.Fatalf("terminal job %s (%s) is changed by %+v", j.ID, j.Status, c)
		}
		if c.Status != "" {
			j.Status = c.Status
		}
		if c.AgentID != "" {
			j.AgentID = c.AgentID
		}
		if c.StartedAt != 0 {
			j.StartedAt = c.StartedAt
		}
		j.NeedsSatisfied = j.NeedsSatisfied || c.Satisfied
		j.Wave.Gated = j.Wave.Gated && !c.Release
		if j.Status.Terminal() && j.Status != ci.JobSuccess && c.Reason == nil {
			w.t.Fatalf("job %s ended as %s without a reason", j.ID, j.Status)
		}
	}
	for _, c := range o.Rows {
		w.storeRow(c)
	}
}

func (w *world) storeRun(c RunChange) {
	if w.run.Status.Terminal() {
		w.t.Fatalf("terminal run (%s) is changed by %+v", w.run.Status, c)
	}
	if c.Status != "" {
		w.run.Status = c.Status
	}
	if c.Cancel != nil {
		w.run.Cancel = c.Cancel
	}
	if c.StartedAt != 0 && w.run.StartedAt == 0 {
		w.run.StartedAt = c.StartedAt
	}
	if c.Status.Terminal() && c.Status != ci.RunSuccess && c.Reason == nil && w.run.Reason == nil {
		w.t.Fatalf("run ended as %s without a reason", c.Status)
	}
}

// storeRow repeats the guards of the queue's statements.
func (w *world) storeRow(c RowChange) {
	j := w.job(c.JobID)
	need := func(states ...ci.QueueStatus) {
		if j.Row == nil || !slices.Contains(states, j.Row.Status) {
			w.t.Fatalf("row change %d of job %s with row %+v", c.Op, j.ID, j.Row)
		}
	}
	switch c.Op {
	case RowEnqueue:
		if j.Row != nil {
			w.t.Fatalf("job %s is enqueued twice", j.ID)
		}
		j.Row = &Row{Status: ci.QueuePending}
	case RowAck:
		need(ci.QueueDispatched)
		j.Row.Unanswered = false
	case RowStart:
		need(ci.QueueDispatched)
		j.Row.Started, j.Row.Unanswered = true, false
	case RowResume:
		need(ci.QueueRecovering)
		j.Row.Status, j.Row.Started, j.Row.Unanswered = ci.QueueDispatched, true, false
	case RowReclaim:
		need(ci.QueueDispatched, ci.QueueRecovering)
		j.Row.Status, j.Row.Started, j.Row.Unanswered = ci.QueueDispatched, true, false
	case RowRequeue:
		need(ci.QueueDispatched, ci.QueueRecovering)
		j.Row = &Row{Status: ci.QueuePending, Attempts: j.Row.Attempts + 1}
	case RowRelease:
		need(ci.QueueDispatched)
		if j.Row.Started || !j.Row.Unanswered {
			w.t.Fatalf("job %s is released with row %+v", j.ID, j.Row)
		}
		j.Row = &Row{Status: ci.QueuePending, Attempts: j.Row.Attempts}
	case RowRecover:
		need(ci.QueueDispatched)
		j.Row.Status = ci.QueueRecovering
	case RowComplete:
		need(ci.QueueDispatched, ci.QueueRecovering)
		j.Row.Status = ci.QueueCompleted
	case RowFail:
		need(ci.QueuePending, ci.QueueDispatched, ci.QueueRecovering)
		j.Row.Status = ci.QueueFailed
	case RowExpire:
		need(ci.QueuePending)
		j.Row.Status = ci.QueueExpired
	}
}

// step sends one random command, for a random job and agent, or repeats an old one.
func (w *world) step() {
	w.now++
	j := w.jobs[rapid.IntRange(0, len(w.jobs)-1).Draw(w.t, "job")]
	agent := rapid.SampledFrom(modelAgents).Draw(w.t, "agent")
	commands := map[string]func(){
		"claim": func() { w.claim(j, agent) },
		"ack":   func() { w.ack(j, agent) },
		"start": func() { w.apply(Started(w.run, seen(j), agent, w.now)) },
		"end": func() {
			status := rapid.SampledFrom([]ci.JobStatus{ci.JobSuccess, ci.JobFailed, ci.JobCancelled}).Draw(w.t, "end")
			if w.running[j.ID] == agent {
				delete(w.running, j.ID)
			}
			w.apply(Finished(w.run, seen(j), Report{Agent: agent, Status: status}, w.now))
		},
		"reject": func() {
			if w.running[j.ID] != agent {
				w.apply(rejected(w.run, seen(j), agent, w.now))
			}
		},
		"deferred": func() {
			if w.running[j.ID] != agent { // what has been sent is never deferred
				w.apply(Deferred(w.run, seen(j), agent, w.claimed[j.ID], w.now))
			}
		},
		"ack expired": func() {
			if c := seen(j); c.Row != nil && c.Row.Status == ci.QueueDispatched && c.Row.Unanswered {
				w.apply(AckExpired(w.run, c, c.Row.AgentID, w.now))
			}
		},
		"agent gone": func() {
			w.apply(AgentGone(w.run, seen(j), w.departure(agent), w.now))
		},
		"agent died": func() {
			if w.running[j.ID] == agent {
				delete(w.running, j.ID)
			}
			w.apply(AgentGone(w.run, seen(j), w.departure(agent), w.now))
		},
		"returned": func() {
			r := Return{Agent: agent, Listed: w.running[j.ID] == agent, Fresh: true, Truthful: true, Fences: true, Rebooted: w.reboots(), Deadline: w.now + 10}
			w.apply(Returned(w.run, seen(j), r, w.now))
		},
		"recovery expired": func() { w.apply(RecoveryExpired(w.run, seen(j), w.reboots(), w.now)) },
		"stale":            func() { w.apply(Stale(seen(j), 5000, w.now)) },
		"queue expired":    func() { w.apply(QueueExpired(seen(j), agent == "a", "", w.now)) },
		"cancel":           func() { w.cancel(rapid.Bool().Draw(w.t, "force")) },
		"again": func() {
			if len(w.past) > 0 {
				rapid.SampledFrom(w.past).Draw(w.t, "old")()
			}
		},
	}
	names := []string{"claim", "ack", "start", "end", "claim", "ack", "start", "end", "reject", "deferred", "ack expired", "agent gone", "agent died",
		"returned", "recovery expired", "stale", "queue expired", "cancel", "again"}
	name := rapid.SampledFrom(names).Draw(w.t, "command")
	if name == "cancel" && rapid.IntRange(0, 5).Draw(w.t, "really") > 0 {
		return // a run that is cancelled early shows little
	}
	commands[name]()
	if name == "start" || name == "ack" {
		w.past = append(w.past, commands[name])
	}
}

// reboots tells whether the host of the agent was about to reboot.
func (w *world) reboots() bool { return rapid.IntRange(0, 3).Draw(w.t, "reboots") == 0 }

func (w *world) departure(agent string) Departure {
	return Departure{Agent: agent, SingleUse: w.singleUse, Fences: true, Reboots: w.reboots(), Deadline: w.now + 10}
}

func rejected(run Run, job Job, agent string, now int64) Outcome {
	if job.Row == nil || job.Row.Started || !job.Row.Unanswered {
		return Outcome{}
	}
	return Undelivered(run, job, agent, "agent rejected dispatch (busy)", now)
}

func (w *world) claim(j *Job, agent string) {
	if j.Row == nil || j.Row.Status != ci.QueuePending {
		return
	}
	if !j.NeedsSatisfied || j.Wave.Gated {
		w.t.Fatalf("job %s is queued though it may not run yet", j.ID)
	}
	if w.begun[j.ID] {
		w.t.Fatalf("job %s is given out again though an agent began it", j.ID)
	}
	j.Row.Status, j.Row.AgentID, j.Row.Unanswered, j.Row.Started, j.Row.ClaimedAt = ci.QueueDispatched, agent, true, false, w.now
	w.claimed[j.ID] = w.now
}

// ack is an agent's job.ack and, when the server takes it, the start of the first step.
func (w *world) ack(j *Job, agent string) {
	change, fenced := Acked(j.ID, seen(j).Row, agent)
	if change != nil {
		w.storeRow(*change)
	}
	if fenced || w.running[j.ID] == agent {
		return
	}
	if other, busy := w.running[j.ID]; busy {
		w.t.Fatalf("job %s runs on %s and on %s at once", j.ID, other, agent)
	}
	w.running[j.ID] = agent
	w.begun[j.ID] = true
}

func (w *world) cancel(force bool) {
	var open []Job
	for _, j := range w.jobs {
		if !j.Status.Terminal() {
			open = append(open, seen(j))
		}
	}
	w.apply(CancelRun(w.run, open, Cancel{By: "somebody", Reason: ci.NewReason(ci.ReasonCancelled, "no longer wanted", nil), At: w.now, Forced: force}, w.now))
}

// drain lets everything that is due happen: time passes until nothing is left to wait for.
func (w *world) drain() {
	for range 200 {
		if w.run.Status.Terminal() {
			return
		}
		w.now += 1_000_000
		for _, j := range w.jobs {
			c := seen(j)
			switch {
			case c.Row == nil || c.Row.Status.Terminal():
			case c.Row.Status == ci.QueuePending:
				w.apply(QueueExpired(c, false, "", w.now))
			case c.Row.Status == ci.QueueRecovering:
				w.apply(RecoveryExpired(w.run, c, false, w.now))
			case c.Row.Unanswered:
				w.apply(AckExpired(w.run, c, c.Row.AgentID, w.now))
			case c.Status == ci.JobRunning:
				w.apply(Stale(c, 5000, w.now))
			default:
				w.apply(AgentGone(w.run, c, Departure{Agent: c.Row.AgentID, Fences: true, Deadline: w.now}, w.now))
			}
		}
	}
	w.t.Fatalf("the run is still %s and waits for nothing: %+v", w.run.Status, w.jobs)
}

func TestNoCommandsLeaveARunStuckOrAJobTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			w.step()
		}
		w.drain()
		var all []Summary
		for _, j := range w.jobs {
			if j.Row != nil && !j.Row.Status.Terminal() {
				t.Fatalf("the run has ended and job %s still has row %+v", j.ID, j.Row)
			}
			all = append(all, Summary{Name: j.Name, Status: j.Status})
		}
		status, _, done := Fold(all, "", false)
		if !done || status != w.run.Status {
			t.Fatalf("run is %s, its jobs say %s (%v)", w.run.Status, status, done)
		}
	})
}

func TestFoldIsIndependentOfOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Summary {
			return Summary{Name: "j", Status: rapid.SampledFrom(ci.JobStatuses).Draw(t, "status")}
		}), 1, 8).Draw(t, "jobs")
		status, _, done := Fold(jobs, "", false)
		shuffled := rapid.Permutation(jobs).Draw(t, "order")
		if s, _, d := Fold(shuffled, "", false); s != status || d != done {
			t.Fatalf("fold of %v is %s, of %v %s", jobs, status, shuffled, s)
		}
	})
}
