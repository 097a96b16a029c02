// Package local runs a compiled workflow on this machine without an orchestrator. Its jobs are planned and decided about
// as a server does it, and their steps run in the runner of agents; what a server would keep in a database is in memory.
package local

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/decide/plan"
)

// Work is a workflow and what it is started with.
type Work struct {
	Workflow  lockfile.Workflow
	Event     ci.Event
	Source    plan.Source     // the repository as events name it
	Inputs    json.RawMessage // of a dispatch, an object; nil: none
	CheckMode string          // "", check or check-fail-on-drift
	// Host stands for all hosts that a job wants which runs on each of several.
	Host string
}

// org is the organisation of runs that no server knows.
const org = "local"

// input is what the work is planned from. Nobody checks the workflow against its lock file: it was compiled just now.
func (w Work) input(runID string, now int64) plan.Input {
	return plan.Input{
		Workflow: w.Workflow, Event: w.Event, Source: w.Source, Org: org, RunID: runID, ContentHashOmitted: true,
		DispatchInputs: w.Inputs, CheckMode: w.CheckMode, Roster: w.roster(now), Now: now,
	}
}

// Plan gives the jobs that a run of the work would have. With the name of a job it is that one, or all children of it, with
// what they need; the error may be a *NoJobError then.
func Plan(w Work, only string, now int64) (plan.Plan, error) {
	return build(w.input("plan", now), only)
}

// build plans what is wanted of the input.
func build(in plan.Input, only string) (plan.Plan, error) {
	all, err := plan.Build(in)
	if err != nil || only == "" || all.InitFailure != nil {
		return all, err
	}
	if narrowed := narrow(all, only); len(narrowed.Jobs) > 0 {
		return narrowed, nil
	}
	return plan.Plan{}, &NoJobError{Name: only, Have: baseNames(all)}
}

// roster is this machine, once for each job that runs on all of some hosts: it has the labels that the job names. What is
// a pattern there has no label to be made of, and such a job finds no host.
func (w Work) roster(now int64) []label.RosterHost {
	var labels []string
	for _, j := range w.Workflow.Jobs {
		if j.RunsOnAll == nil {
			continue
		}
		for _, group := range j.RunsOnAll.Include {
			for _, m := range group {
				if m.Kind == label.Exact && !slices.Contains(labels, m.Value) {
					labels = append(labels, m.Value)
				}
			}
		}
	}
	if labels == nil {
		return nil
	}
	return []label.RosterHost{{AgentID: w.Host, Name: w.Host, Labels: labels, Platform: runtime.GOOS,
		Arch: strings.Replace(runtime.GOARCH, "amd64", "x64", 1), Connected: true, LastSeenAt: now}}
}

// NoJobError says that a run is not possible since it would have no job of the name that was asked for.
type NoJobError struct {
	Name string
	Have []string
}

func (e *NoJobError) Error() string {
	return fmt.Sprintf("no job is called %q; there are: %s", e.Name, strings.Join(e.Have, ", "))
}

func baseNames(p plan.Plan) []string {
	var names []string
	for _, j := range p.Jobs {
		if !j.Kind.Internal() && !slices.Contains(names, j.BaseName) {
			names = append(names, j.BaseName)
		}
	}
	return names
}

// narrow leaves of a plan the job of a name, or all children of a base name, with what they need. Without such a job it is
// empty.
func narrow(p plan.Plan, name string) plan.Plan {
	wanted := map[string]bool{}
	var want func(name string)
	want = func(name string) {
		if wanted[name] {
			return
		}
		wanted[name] = true
		for _, e := range p.Edges {
			if e.Job == name {
				want(e.Upstream)
			}
		}
	}
	for _, j := range p.Jobs {
		if j.Name == name || j.BaseName == name {
			want(j.Name)
		}
	}
	for _, j := range p.Jobs { // places of jobs come with what completes them
		if j.Target != "" && wanted[j.Target] {
			want(j.Name)
		}
	}
	p.Jobs = slices.DeleteFunc(slices.Clone(p.Jobs), func(j plan.Job) bool { return !wanted[j.Name] })
	p.Edges = slices.DeleteFunc(slices.Clone(p.Edges), func(e plan.Edge) bool { return !wanted[e.Job] })
	return p
}
