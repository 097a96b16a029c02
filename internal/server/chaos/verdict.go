package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
)

// Violation is a promise that was broken, with the evidence.
type Violation struct {
	Promise string `json:"promise"`
	What    string `json:"what"`
}

// Check judges the facts. An empty result means that everything that was promised was kept.
func Check(f facts) []Violation {
	c := newCheck(f)
	for _, promise := range promises {
		c.promise = promise.name
		promise.check(c)
	}
	return c.broken
}

// promises are what the system promises, whatever is killed.
var promises = []struct {
	name  string
	check func(*check)
}{
	{"no server and no agent ends by itself", (*check).crashes},
	{"every run ends", (*check).ends},
	{"an accepted push has each of its runs once, and a rerun its own", (*check).deliveries},
	{"a run has the jobs of its workflow", (*check).plans},
	{"a run ends as its jobs say", (*check).folds},
	{"a run that has ended stays as it is", (*check).stays},
	{"a job runs only after what it needs", (*check).needs},
	{"no step fails but the one that must", (*check).failures},
	{"a job is executed as often as its attempts say", (*check).attempts},
	{"no two attempts of a job overlap", (*check).overlaps},
	{"one run of a concurrency group goes on at a time", (*check).groups},
	{"nothing of a job outlives its agent", (*check).survivors},
	{"an acknowledged end is stored", (*check).ackedEnds},
	{"an acknowledged line is stored", (*check).ackedLines},
	{"the log of a step is complete, in order and without repetition", (*check).logs},
}

// check holds the facts by what they are looked up by.
type check struct {
	facts
	promise string
	broken  []Violation

	runs     map[string]runFact
	jobs     map[string]jobFact
	jobsOf   map[string][]jobFact     // by run
	attempt  map[string][]attemptFact // by job, in order
	executed map[string][][]execution
	stray    []execution // that belong to no attempt
}

func newCheck(f facts) *check {
	c := &check{facts: f, runs: map[string]runFact{}, jobs: map[string]jobFact{}, jobsOf: map[string][]jobFact{}, attempt: map[string][]attemptFact{}}
	for _, r := range f.Runs {
		c.runs[r.ID] = r
	}
	for _, j := range f.Jobs {
		c.jobs[j.ID] = j
		c.jobsOf[j.Run] = append(c.jobsOf[j.Run], j)
	}
	for _, a := range f.Attempts {
		c.attempt[a.Job] = append(c.attempt[a.Job], a)
	}
	for _, list := range c.attempt {
		slices.SortFunc(list, func(a, b attemptFact) int { return cmp.Compare(a.Number, b.Number) })
	}
	c.assign()
	return c
}

func (c *check) fail(format string, args ...any) {
	c.broken = append(c.broken, Violation{Promise: c.promise, What: fmt.Sprintf(format, args...)})
}

// name is a job for people.
func (c *check) name(jobID string) string {
	j := c.jobs[jobID]
	return fmt.Sprintf("job %s of run %s (%s)", j.Name, j.Run, jobID)
}

// assign gives every execution to the attempt that it is of: the latest one of its agent for that job of that push which
// was claimed before it began. A run and its repetitions share the push.
func (c *check) assign() {
	c.executed = map[string][][]execution{}
	type key struct{ mark, workflow, job, agent string }
	candidates := map[key][]attemptFact{}
	for id, list := range c.attempt {
		c.executed[id] = make([][]execution, len(list))
		j := c.jobs[id]
		r := c.runs[j.Run]
		for _, a := range list {
			k := key{r.Mark, r.Workflow, j.Name, a.Agent}
			candidates[k] = append(candidates[k], a)
		}
	}
	for _, e := range c.Executions {
		var of *attemptFact
		for _, a := range candidates[key{e.Mark, e.Workflow, e.Job, e.Agent}] {
			if a.Claimed <= e.Begun && (of == nil || a.Claimed > of.Claimed) {
				of = &a
			}
		}
		if of == nil {
			c.stray = append(c.stray, e)
			continue
		}
		at := slices.IndexFunc(c.attempt[of.Job], func(a attemptFact) bool { return a.Number == of.Number })
		c.executed[of.Job][at] = append(c.executed[of.Job][at], e)
	}
}

func (c *check) crashes() {
	for _, words := range c.Crashes {
		c.fail("%s", words)
	}
}

func (c *check) ends() {
	for _, o := range c.Open {
		c.fail("run %s did not end: %s", o.Run, o.Explanation)
	}
	for _, r := range c.Runs {
		if !r.Status.Terminal() && !slices.ContainsFunc(c.Open, func(o openRun) bool { return o.Run == r.ID }) {
			c.fail("run %s is left as %s", r.ID, r.Status)
		}
		if r.Status.Terminal() {
			c.nothingOpen(r)
		}
	}
}

// nothingOpen looks for parts of an ended run that have not ended.
func (c *check) nothingOpen(r runFact) {
	open := map[string]bool{}
	for _, j := range c.jobsOf[r.ID] {
		open[j.ID] = true
		if !j.Status.Terminal() || j.Ended == 0 {
			c.fail("run %s has ended as %s, and %s is %s", r.ID, r.Status, c.name(j.ID), j.Status)
		}
		for _, a := range c.attempt[j.ID] {
			if a.Ended == 0 {
				c.fail("attempt %d of %s has no end", a.Number, c.name(j.ID))
			}
		}
	}
	for _, s := range c.Steps {
		if open[s.Job] && !s.Status.Terminal() {
			c.fail("run %s has ended as %s, and step %d of %s is %s", r.ID, r.Status, s.Step, c.name(s.Job), s.Status)
		}
	}
	for _, row := range c.Rows {
		if open[row.Job] && !row.Status.Terminal() {
			c.fail("run %s has ended as %s, and the queue has %s as %s", r.ID, r.Status, c.name(row.Job), row.Status)
		}
	}
}

func (c *check) deliveries() {
	runs := map[string]map[string]int{} // by mark and workflow
	for _, r := range c.Runs {
		if r.Parent != "" {
			continue
		}
		if runs[r.Mark] == nil {
			runs[r.Mark] = map[string]int{}
		}
		runs[r.Mark][r.Workflow]++
	}
	for _, a := range c.Accepted {
		for _, workflow := range slices.Sorted(maps.Keys(workflowJobs)) {
			if runs[a.Mark][workflow] == 0 {
				c.fail("push %s was accepted as %s and has no run of %s", a.Mark, a.Delivery, workflow)
			}
		}
	}
	for _, again := range c.Reruns {
		if r, parent := c.runs[again.Run], c.runs[again.Parent]; r.Parent != again.Parent || r.Workflow != parent.Workflow || r.Mark != parent.Mark {
			c.fail("run %s was told to repeat run %s of %s for push %s, and it is of %q for push %q and repeats %q", again.Run, again.Parent,
				parent.Workflow, parent.Mark, r.Workflow, r.Mark, r.Parent)
		}
	}
	for mark, of := range runs {
		for workflow, n := range of {
			if n > 1 {
				c.fail("push %s has %d runs of %s", mark, n, workflow)
			}
		}
	}
}

func (c *check) plans() {
	for _, r := range c.Runs {
		var names []string
		for _, j := range c.jobsOf[r.ID] {
			names = append(names, j.Name)
		}
		slices.Sort(names)
		if want := slices.Sorted(slices.Values(workflowJobs[r.Workflow])); !slices.Equal(names, want) {
			c.fail("run %s of %s has the jobs %q, not %q", r.ID, r.Workflow, names, want)
		}
	}
}

// folds repeats in its own words how the end of a run follows from those of its jobs.
func (c *check) folds() {
	for _, r := range c.Runs {
		if !r.Status.Terminal() {
			continue
		}
		want := ci.RunSuccess
		for _, j := range c.jobsOf[r.ID] {
			switch j.Status {
			case ci.JobSuccess, ci.JobSkipped:
			case ci.JobCancelled:
				if want == ci.RunSuccess {
					want = ci.RunCancelled
				}
			default:
				want = ci.RunFailed
			}
		}
		if r.Status != want {
			c.fail("run %s is %s, and its jobs say %s", r.ID, r.Status, want)
		}
	}
}

func (c *check) stays() {
	for _, s := range c.Seen {
		if r, ok := c.runs[s.Run]; !ok || r.Status != s.Status {
			c.fail("run %s was told to be %s, and is %s at the end", s.Run, s.Status, cmp.Or(string(r.Status), "gone"))
		}
	}
}

// needs looks at every job that was given to an agent, and at those that were skipped.
func (c *check) needs() {
	for _, j := range c.Jobs {
		unmet := 0
		for _, n := range j.Needs {
			up := c.jobs[n.Job]
			if !slices.Contains(n.RunOn, up.Status) {
				unmet++
			}
			if len(c.attempt[j.ID]) > 0 {
				c.after(j, up)
			}
		}
		if unmet > 0 && len(c.attempt[j.ID]) > 0 {
			c.fail("%s was given to an agent although %d of its needs are unmet", c.name(j.ID), unmet)
		}
		if j.Status == ci.JobSkipped && j.Reason == ci.ReasonUpstreamUnmet && unmet == 0 {
			c.fail("%s was skipped although its needs are met", c.name(j.ID))
		}
	}
}

func (c *check) after(j, up jobFact) {
	first := c.attempt[j.ID][0].Claimed
	if up.Ended == 0 || up.Ended > first {
		c.fail("%s was given to an agent at %d, before the end of %s at %d", c.name(j.ID), first, c.name(up.ID), up.Ended)
	}
}

// failures looks for steps that have failed although nothing is wrong with them, such as for want of what an earlier job has
// left. In a run that somebody ends a step may say what it will.
func (c *check) failures() {
	for _, j := range c.Jobs {
		if j.Reason == ci.ReasonStepFailed && j.Name != fails && c.runs[j.Run].Status == ci.RunFailed && !c.cancelled(j.Run) {
			c.fail("%s has failed by a step: %s", c.name(j.ID), j.Message)
		}
	}
}

func (c *check) cancelled(run string) bool {
	return slices.ContainsFunc(c.jobsOf[run], func(j jobFact) bool { return j.Status == ci.JobCancelled })
}

func (c *check) attempts() {
	for _, e := range c.stray {
		c.fail("agent %s has executed job %s of %s for push %s at %d (%s) without an attempt", e.Agent, e.Job, e.Workflow, e.Mark, e.Begun, e.Token)
	}
	for _, j := range c.Jobs {
		list := c.attempt[j.ID]
		for i, a := range list {
			c.once(j, a, c.executed[j.ID][i], i == len(list)-1)
		}
		if j.Status == ci.JobSuccess && len(list) == 0 {
			c.fail("%s has succeeded without an attempt", c.name(j.ID))
		}
	}
	for _, row := range c.Rows {
		c.counted(row)
	}
}

// counted compares how often a row came back to the queue with the attempts on record: its last claim is not counted, a row
// that expired was waiting for one, and a claim of which nobody has heard, of an agent or of the queue, cost nothing.
func (c *check) counted(row rowFact) {
	n := 0
	for _, a := range c.attempt[row.Job] {
		if a.Outcome != lifecycle.OutcomeDeferred {
			n++
		}
	}
	least, most := row.Requeued, row.Requeued+1
	switch row.Status {
	case ci.QueueExpired:
		most = least
	case ci.QueueCompleted:
		least = most
	}
	if n < least || n > most {
		c.fail("the queue says that %s (%s) came back %d times, and it has %d attempts that count", c.name(row.Job), row.Status, row.Requeued, n)
	}
}

// once says how often an attempt must have been executed: a job is offered again only when it cannot have started, and
// only a job that was executed can have ended by its steps.
func (c *check) once(j jobFact, a attemptFact, executions []execution, last bool) {
	n := len(executions)
	switch {
	case n > 1:
		c.fail("attempt %d of %s was executed %d times: %v", a.Number, c.name(j.ID), n, tokens(executions))
	case n == 1 && !last:
		c.fail("attempt %d of %s (%s) was executed (%s), and the job was offered again", a.Number, c.name(j.ID), a.Outcome, executions[0].Token)
	case !last:
	case n == 0 && (j.Status == ci.JobSuccess || j.Reason == ci.ReasonStepFailed):
		c.fail("%s is %s (%s), and was never executed", c.name(j.ID), j.Status, j.Reason)
	case n == 1 && j.Status == ci.JobSuccess && len(executions[0].Finished) != len(executions[0].Steps):
		c.fail("%s has succeeded, and of its steps %q only %q came to their end", c.name(j.ID), executions[0].Steps, executions[0].Finished)
	}
}

func tokens(executions []execution) (out []string) {
	for _, e := range executions {
		out = append(out, fmt.Sprintf("%s at %d", e.Token, e.Begun))
	}
	return out
}

func (c *check) overlaps() {
	for id, attempts := range c.executed {
		all := slices.Concat(attempts...)
		slices.SortFunc(all, func(a, b execution) int { return cmp.Compare(a.Begun, b.Begun) })
		for i := 1; i < len(all); i++ {
			if all[i].Begun < all[i-1].Last {
				c.fail("%s: %s ran until %d, and %s began at %d", c.name(id), all[i-1].Token, all[i-1].Last, all[i].Token, all[i].Begun)
			}
		}
	}
}

// agony is how long the kernel may take to end what a killed agent has started.
const agony = 1000

func (c *check) survivors() {
	for _, end := range c.Ends {
		for _, e := range c.Executions {
			if e.Agent == end.Agent && e.Begun <= end.At && e.Last > end.At+agony {
				c.fail("%s ended at %d, and job %s of %s for push %s (%s) ran on until %d", end.Agent, end.At, e.Job, e.Workflow, e.Mark, e.Token, e.Last)
			}
		}
	}
}

// groups looks at the runs of which only one may go on. What an agent still does that was given up is not the run's any more.
func (c *check) groups() {
	type turn struct {
		run         string
		begun, last int64
	}
	var turns []turn
	for id, attempts := range c.executed {
		r := c.runs[c.jobs[id].Run]
		for _, e := range slices.Concat(attempts...) {
			if r.Workflow == alone {
				turns = append(turns, turn{r.ID, e.Begun, min(e.Last, r.Ended)})
			}
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.begun, b.begun) })
	for i := 1; i < len(turns); i++ {
		if before := turns[i-1]; turns[i].run != before.run && turns[i].begun < before.last {
			c.fail("run %s went on until %d, and run %s began at %d", before.run, before.last, turns[i].run, turns[i].begun)
		}
	}
}

// had tells whether a job was with an agent for all of a time, by one attempt, or has been with it last. What comes from an
// agent that no longer has the job is acknowledged and dropped: it would be sent for ever otherwise. When the server took it is
// not known but for the moments when it was sent and acknowledged; meanwhile the job may have gone and come back.
func (c *check) had(jobID, agent string, since, at int64) bool {
	list := c.attempt[jobID]
	for i, a := range list {
		if a.Agent == agent && a.Claimed <= since && (i == len(list)-1 || at < a.Ended) {
			return true
		}
	}
	return false
}

func (c *check) ackedEnds() {
	for _, e := range c.Acked.Ends {
		if j := c.jobs[e.Job]; c.had(e.Job, e.Agent, e.At, e.At) && (j.Ended == 0 || j.Ended > e.At) {
			c.fail("the end of %s as %s was acknowledged at %d, and it has ended at %d as %s", c.name(e.Job), e.Status, e.At, j.Ended, j.Status)
		}
	}
}
