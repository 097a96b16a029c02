package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
)

// kept are facts of one push in which every promise is kept: the run of ladder has succeeded, that of storm has failed by
// the step that does so on purpose.
func kept() facts {
	f := facts{Logs: map[stepKey][]string{}, Accepted: []acceptance{{Mark: "push-0", Delivery: "delivery"}}}
	f.addRun("ladder", ci.RunSuccess, []made{
		{name: "build", steps: []string{"fetch", "make"}},
		{name: "test (x)", needs: []string{"build"}, steps: []string{"run"}},
		{name: "test (y)", needs: []string{"build"}, steps: []string{"run"}},
		{name: "test (z)", needs: []string{"build"}, steps: []string{"run"}},
		{name: "pack", needs: []string{"test (x)", "test (y)", "test (z)"}, steps: []string{"wrap", "sum"}},
		{name: "tell", needs: []string{"pack"}, steps: []string{"say"}},
	})
	f.addRun("storm", ci.RunFailed, []made{
		{name: "calm", steps: []string{"rest", "shout"}},
		{name: "fragile", steps: []string{"bend", "break"}, status: ci.JobFailed, reason: ci.ReasonStepFailed},
		{name: "mend", needs: []string{"fragile"}, runOn: ci.JobFailed, steps: []string{"glue"}},
		{name: "vain", needs: []string{"fragile"}, status: ci.JobSkipped, reason: ci.ReasonUpstreamUnmet},
		{name: "fan (a)", steps: []string{"turn"}},
		{name: "fan (b)", steps: []string{"turn"}},
		{name: "fan (c)", steps: []string{"turn"}},
		{name: "last", needs: []string{"calm", "fan (a)", "fan (b)", "fan (c)"}, steps: []string{"close"}},
	})
	f.addRun("lane", ci.RunSuccess, []made{{name: "pass", steps: []string{"drive"}}})
	return f
}

// made is a job of the made-up facts. It has succeeded unless it says otherwise.
type made struct {
	name   string
	needs  []string
	runOn  ci.JobStatus
	status ci.JobStatus
	reason string
	steps  []string
}

func (f *facts) addRun(workflow string, status ci.RunStatus, jobs []made) {
	run := runFact{ID: workflow, Delivery: "delivery", Mark: "push-0", Workflow: workflow, Status: status, Created: 1000, Ended: 1_000_000}
	f.Runs = append(f.Runs, run)
	f.Seen = append(f.Seen, sighting{Run: run.ID, Status: status})
	for i, m := range jobs {
		f.addJob(run, m, int64(10_000*(i+1)))
	}
}

// addJob adds a job that was given out at that time, once, and ended nine seconds later.
func (f *facts) addJob(run runFact, m made, at int64) {
	if m.status == "" {
		m.status = ci.JobSuccess
	}
	if m.runOn == "" {
		m.runOn = ci.JobSuccess
	}
	j := jobFact{ID: run.ID + "/" + m.name, Run: run.ID, Name: m.name, Status: m.status, Reason: m.reason, Ended: at + 9000}
	for _, up := range m.needs {
		j.Needs = append(j.Needs, needFact{Job: run.ID + "/" + up, RunOn: []ci.JobStatus{m.runOn}})
	}
	f.Jobs = append(f.Jobs, j)
	if m.status == ci.JobSkipped {
		return
	}
	e := execution{Mark: run.Mark, Workflow: run.Workflow, Job: m.name, Agent: "agent-0", Token: strings.ReplaceAll(j.ID, " ", "-"), Begun: at + 1000, Last: at + 8000,
		Steps: m.steps, Finished: m.steps}
	f.Executions = append(f.Executions, e)
	f.Rows = append(f.Rows, rowFact{Job: j.ID, Status: ci.QueueCompleted})
	f.Attempts = append(f.Attempts, attemptFact{Job: j.ID, Number: 1, Agent: "agent-0", Claimed: at, Ended: j.Ended, Outcome: string(m.status)})
	f.Acked.Ends = append(f.Acked.Ends, ackedEnd{Job: j.ID, Agent: e.Agent, Status: m.status, At: j.Ended + 1})
	for i, name := range m.steps {
		f.addStep(stepFact{stepKey: stepKey{j.ID, i}, Name: name, Type: "step", Status: ci.StepSuccess}, e)
	}
}

func (f *facts) addStep(s stepFact, e execution) {
	if s.Name == "break" {
		s.Status = ci.StepFailed
	}
	f.Steps = append(f.Steps, s)
	lines := []string{"what the system says by itself"}
	for n := range stepLines[s.Name] {
		lines = append(lines, fmt.Sprintf("%s %s %d/%d", e.Token, s.Name, n+1, stepLines[s.Name]))
		f.Acked.Lines = append(f.Acked.Lines, ackedLine{stepKey: s.stepKey, Agent: e.Agent, Text: lines[n+1], Sent: e.Last, At: e.Last})
	}
	f.Logs[s.stepKey] = lines
}

// Find a part of the facts, to break it.

func (f *facts) run(id string) *runFact {
	return &f.Runs[slices.IndexFunc(f.Runs, func(r runFact) bool { return r.ID == id })]
}

func (f *facts) job(id string) *jobFact {
	return &f.Jobs[slices.IndexFunc(f.Jobs, func(j jobFact) bool { return j.ID == id })]
}

func (f *facts) row(id string) *rowFact {
	return &f.Rows[slices.IndexFunc(f.Rows, func(r rowFact) bool { return r.Job == id })]
}

func (f *facts) attempt(id string) *attemptFact {
	return &f.Attempts[slices.IndexFunc(f.Attempts, func(a attemptFact) bool { return a.Job == id })]
}

func (f *facts) execution(job string) *execution {
	return &f.Executions[slices.IndexFunc(f.Executions, func(e execution) bool { return e.Job == job })]
}

// unexecute removes what the job has left behind, as if it had never been executed.
func (f *facts) unexecute(job string) {
	f.Executions = slices.DeleteFunc(f.Executions, func(e execution) bool { return e.Job == job })
}

func TestFactsInWhichEveryPromiseIsKeptPass(t *testing.T) {
	if broken := Check(kept()); len(broken) > 0 {
		t.Errorf("broken: %v", broken)
	}
}

// An attempt that never reached its agent, one of a run that was repeated, lines that came long after the end: none of it
// breaks a promise.
func TestWhatIsAllowedPasses(t *testing.T) {
	tests := []struct {
		name  string
		allow func(f *facts)
	}{
		{"an attempt that was never executed, and another", func(f *facts) {
			first := *f.attempt("ladder/build")
			f.attempt("ladder/build").Number = 2
			first.Agent, first.Claimed, first.Ended, first.Outcome = "agent-1", 5000, 9000, "dispatch ack timeout"
			f.Attempts = append(f.Attempts, first)
			f.row("ladder/build").Requeued = 1
		}},
		{"a job that failed before its first step", func(f *facts) {
			j := f.job("ladder/tell")
			j.Status, j.Reason = ci.JobFailed, ci.ReasonAgentLost
			f.run("ladder").Status, f.Seen[0].Status = ci.RunFailed, ci.RunFailed
			f.row(j.ID).Status = ci.QueueFailed
			f.Acked = ackedFacts{}
			f.unexecute("tell")
			f.Steps = slices.DeleteFunc(f.Steps, func(s stepFact) bool { return s.Job == j.ID })
		}},
		{"a run of a group that was given up, and the next", func(f *facts) {
			f.run("lane").Ended = 15_000
			f.addRun("other", ci.RunSuccess, nil)
			*f.run("other") = runFact{ID: "other", Mark: "push-1", Workflow: "lane", Status: ci.RunSuccess, Created: 1000, Ended: 1_000_000}
			f.addJob(*f.run("other"), made{name: "pass", steps: []string{"drive"}}, 15_000)
		}},
		{"an agent that ended between two jobs", func(f *facts) { f.Ends = []agentEnd{{"agent-0", f.execution("pack").Last + 1}} }},
		{"a line that came too late to be stored", func(f *facts) {
			f.Acked.Lines = append(f.Acked.Lines, ackedLine{stepKey: stepKey{"ladder/build", 0}, Agent: "agent-0", Text: "late", Sent: f.job("ladder/build").Ended + late + 1, At: f.job("ladder/build").Ended + late + 1})
		}},
		{"a line of an agent that no longer had the job", func(f *facts) {
			first := *f.attempt("ladder/build")
			f.attempt("ladder/build").Number = 2
			first.Agent, first.Claimed, first.Ended, first.Outcome = "agent-1", 5000, 9000, "dispatch ack timeout"
			f.Attempts = append(f.Attempts, first)
			f.row("ladder/build").Requeued = 1
			f.Acked.Lines = append(f.Acked.Lines, ackedLine{stepKey: stepKey{"ladder/build", -1}, Agent: "agent-1", Text: "cloned", Sent: 9001, At: 9001})
		}},
		{"a line of an agent from which the job went and to which it came back", func(f *facts) {
			last := f.attempt("ladder/build")
			last.Number = 2
			first := *last
			first.Number, first.Claimed, first.Ended, first.Outcome = 1, last.Claimed-300, last.Claimed-40, "agent came back without the job"
			f.Attempts = append(f.Attempts, first)
			f.row("ladder/build").Requeued = 1
			f.Acked.Lines = append(f.Acked.Lines, ackedLine{stepKey: stepKey{"ladder/build", -1}, Agent: first.Agent, Text: "cloned", Sent: last.Claimed - 30, At: last.Claimed + 10})
		}},
		{"a claim of which nobody has heard", func(f *facts) {
			first := *f.attempt("ladder/build")
			f.attempt("ladder/build").Number = 2
			first.Agent, first.Claimed, first.Ended, first.Outcome = "agent-1", 5000, 5100, lifecycle.OutcomeDeferred
			f.Attempts = append(f.Attempts, first)
		}},
		{"the end, as an agent tells it that no longer had the job", func(f *facts) {
			first := *f.attempt("ladder/build")
			f.attempt("ladder/build").Number = 2
			first.Agent, first.Claimed, first.Ended, first.Outcome = "agent-1", 5000, 9000, "dispatch ack timeout"
			f.Attempts = append(f.Attempts, first)
			f.row("ladder/build").Requeued = 1
			f.Acked.Ends = append(f.Acked.Ends, ackedEnd{Job: "ladder/build", Agent: "agent-1", Status: ci.JobCancelled, At: 9001})
		}},
		{"a run that repeats another", func(f *facts) {
			again := kept()
			f.addRun("again", ci.RunSuccess, nil)
			f.Reruns = []rerun{{Run: "again", Parent: "ladder"}}
			*f.run("again") = runFact{ID: "again", Mark: "push-0", Workflow: "ladder", Parent: "ladder", Status: ci.RunSuccess, Created: 2_000_000, Ended: 3_000_000}
			for _, j := range again.Jobs {
				if j.Run == "ladder" {
					f.repeat(again, j)
				}
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := kept()
			tt.allow(&f)
			if broken := Check(f); len(broken) > 0 {
				t.Errorf("broken: %v", broken)
			}
		})
	}
}

// repeat adds a job of ladder to the run again, two million milliseconds later, as another agent has executed it.
func (f *facts) repeat(of facts, j jobFact) {
	const later = 2_000_000
	was := j.ID
	rename := func(id string) string { return "again/" + strings.TrimPrefix(id, "ladder/") }
	j.ID, j.Run, j.Ended = rename(j.ID), "again", j.Ended+later
	for i := range j.Needs {
		j.Needs[i].Job = rename(j.Needs[i].Job)
	}
	a, e := *of.attempt(was), *of.execution(j.Name)
	a.Job, a.Claimed, a.Ended = j.ID, a.Claimed+later, a.Ended+later
	e.Token, e.Begun, e.Last = "again-"+e.Token, e.Begun+later, e.Last+later
	f.Jobs, f.Attempts, f.Executions = append(f.Jobs, j), append(f.Attempts, a), append(f.Executions, e)
	f.Rows = append(f.Rows, rowFact{Job: j.ID, Status: ci.QueueCompleted})
}

func TestEveryBrokenPromiseIsSeen(t *testing.T) {
	tests := []struct {
		name    string
		broken  func(f *facts)
		promise string // its beginning
		what    string // a part of what is said
	}{
		{"a server fell over", func(f *facts) { f.Crashes = []string{"server ended by itself: panic"} }, "no server", "panic"},
		{"a run hangs", func(f *facts) { f.Open = []openRun{{"ladder", "waits for an agent"}} }, "every run ends", "waits for an agent"},
		{"a run is left open", func(f *facts) { f.run("ladder").Status = ci.RunCancelling }, "every run ends", "left as cancelling"},
		{"a job is left open", func(f *facts) { f.job("ladder/tell").Status = ci.JobRunning }, "every run ends", "is running"},
		{"a job has no time of its end", func(f *facts) { f.job("ladder/tell").Ended = 0 }, "every run ends", "tell"},
		{"a step is left open", func(f *facts) { f.Steps[0].Status = ci.StepRunning }, "every run ends", "step 0 of job build"},
		{"a queue row is left open", func(f *facts) { f.row("ladder/pack").Status = ci.QueueRecovering }, "every run ends", "recovering"},
		{"an attempt is left open", func(f *facts) { f.attempt("ladder/pack").Ended = 0 }, "every run ends", "attempt 1 of job pack"},
		{"an accepted push is lost", func(f *facts) { f.Accepted = append(f.Accepted, acceptance{"push-1", "other"}) }, "an accepted push", "push-1"},
		{"a push has a run twice", func(f *facts) { f.addRun("twin", ci.RunSuccess, nil); f.run("twin").Workflow = "ladder" }, "an accepted push", "2 runs of ladder"},
		{"an accepted rerun is lost", func(f *facts) { f.Reruns = []rerun{{Run: "again", Parent: "ladder"}} }, "an accepted push", "told to repeat run ladder"},
		{"a job is missing", func(f *facts) { f.job("ladder/pack").Run = "storm" }, "a run has the jobs", "run ladder"},
		{"a run is green with a failed job", func(f *facts) { f.job("ladder/tell").Status = ci.JobTimedOutStale }, "a run ends as its jobs", "say failed"},
		{"a run is green with a cancelled job", func(f *facts) { f.job("ladder/tell").Status = ci.JobCancelled }, "a run ends as its jobs", "say cancelled"},
		{"a run is red without a reason", func(f *facts) { f.job("storm/fragile").Status = ci.JobSuccess }, "a run ends as its jobs", "say success"},
		{"an end was taken back", func(f *facts) { f.Seen[0].Status = ci.RunFailed }, "a run that has ended", "told to be failed"},
		{"an ended run is gone", func(f *facts) { f.Seen = append(f.Seen, sighting{"ghost", ci.RunSuccess}) }, "a run that has ended", "gone at the end"},
		{"a job ran before what it needs", func(f *facts) { f.attempt("ladder/pack").Claimed = 31_000 }, "a job runs only after", "before the end of job test"},
		{"a job ran although its needs are unmet", func(f *facts) { f.job("storm/mend").Needs[0].RunOn = nil }, "a job runs only after", "1 of its needs are unmet"},
		{"a job was skipped without cause", func(f *facts) { f.job("storm/vain").Needs = nil }, "a job runs only after", "needs are met"},
		{"a job succeeded that never ran", func(f *facts) { f.unexecute("pack") }, "a job is executed", "never executed"},
		{"a step failed that never ran", func(f *facts) { f.unexecute("fragile") }, "a job is executed", "never executed"},
		{"a job succeeded that nobody was given", func(f *facts) {
			f.Attempts = slices.DeleteFunc(f.Attempts, func(a attemptFact) bool { return a.Job == "ladder/tell" })
		}, "a job is executed", "without an attempt"},
		{"an attempt was executed twice", func(f *facts) {
			again := *f.execution("pack")
			again.Token, again.Begun, again.Last = "again", again.Last+1, again.Last+100
			f.Executions = append(f.Executions, again)
		}, "a job is executed", "executed 2 times"},
		{"an executed job was offered again", func(f *facts) {
			first := *f.attempt("ladder/pack")
			f.attempt("ladder/pack").Number, f.attempt("ladder/pack").Agent = 2, "agent-1"
			f.Attempts = append(f.Attempts, first)
		}, "a job is executed", "offered again"},
		{"an agent executed what it was not given", func(f *facts) { f.execution("pack").Agent = "agent-7" }, "a job is executed", "agent-7"},
		{"a job succeeded in the middle of a step", func(f *facts) { f.execution("pack").Finished = []string{"wrap"} }, "a job is executed", `only ["wrap"]`},
		{"the queue forgot an attempt", func(f *facts) { f.row("ladder/pack").Requeued = 1 }, "a job is executed", "came back 1 times"},
		{"a row expired that was given out", func(f *facts) { f.row("ladder/pack").Status = ci.QueueExpired }, "a job is executed", "came back 0 times"},
		{"a step fails without cause", func(f *facts) {
			j := f.job("ladder/pack")
			j.Status, j.Reason, j.Message = ci.JobFailed, ci.ReasonStepFailed, "no outputs of x"
			f.run("ladder").Status = ci.RunFailed
		}, "no step fails", "no outputs of x"},
		{"two runs of a group go on", func(f *facts) {
			f.addRun("other", ci.RunSuccess, nil)
			*f.run("other") = runFact{ID: "other", Mark: "push-1", Workflow: "lane", Status: ci.RunSuccess, Created: 1000, Ended: 1_000_000}
			f.addJob(*f.run("other"), made{name: "pass", steps: []string{"drive"}}, 12_000)
		}, "one run of a concurrency group", "run other began"},
		{"two attempts overlap", func(f *facts) {
			other := *f.attempt("ladder/pack")
			other.Number, other.Agent = 2, "agent-1"
			f.Attempts = append(f.Attempts, other)
			again := *f.execution("pack")
			again.Agent, again.Token, again.Begun = "agent-1", "again", again.Begun+1
			f.Executions = append(f.Executions, again)
		}, "no two attempts", "again began"},
		{"a step runs on without its agent", func(f *facts) { f.Ends = []agentEnd{{"agent-0", f.execution("pack").Begun + 1}} }, "nothing of a job", "ran on"},
		{"an acknowledged end is lost", func(f *facts) { f.job("ladder/pack").Ended++; f.Acked.Ends[4].At-- }, "an acknowledged end", "job pack"},
		{"an acknowledged line is lost", func(f *facts) {
			key := stepKey{"ladder/build", 1}
			f.Logs[key] = f.Logs[key][:3]
		}, "an acknowledged line", "lacks 6 acknowledged lines"},
		{"an acknowledged line of an attempt in vain is lost", func(f *facts) {
			first := *f.attempt("ladder/build")
			f.attempt("ladder/build").Number = 2
			first.Agent, first.Claimed, first.Ended, first.Outcome = "agent-1", 5000, 9000, "dispatch ack timeout"
			f.Attempts = append(f.Attempts, first)
			f.Acked.Lines = append(f.Acked.Lines, ackedLine{stepKey: stepKey{"ladder/build", -1}, Agent: "agent-1", Text: "cloned", Sent: 8999, At: 8999})
		}, "an acknowledged line", "step -1 of job build"},
		{"a line that nobody acknowledged is lost", func(f *facts) {
			key := stepKey{"ladder/build", 1}
			f.Logs[key] = f.Logs[key][:3]
			f.Acked.Lines = nil
		}, "the log of a step", "has 2 of 8 lines"},
		{"a line is stored twice", func(f *facts) {
			key := stepKey{"ladder/build", 1}
			f.Logs[key] = append(f.Logs[key], f.Logs[key][8])
		}, "the log of a step", "after line 8"},
		{"lines are out of order", func(f *facts) {
			lines := f.Logs[stepKey{"ladder/build", 1}]
			lines[1], lines[2] = lines[2], lines[1]
		}, "the log of a step", "after line 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := kept()
			tt.broken(&f)
			broken := Check(f)
			if !slices.ContainsFunc(broken, func(v Violation) bool {
				return strings.HasPrefix(v.Promise, tt.promise) && strings.Contains(v.What, tt.what)
			}) {
				t.Errorf("not seen: %q with %q; said was %v", tt.promise, tt.what, broken)
			}
		})
	}
}
