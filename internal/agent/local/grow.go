//go:build unix

package local

import (
	"slices"
	"time"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/decide/plan"
)

// grow takes what a job gave that worked for others: its result becomes jobs of the run, or the failure of its report.
func (r *run) grow(j *job, report *lifecycle.Report) []lifecycle.Outcome {
	var outcomes []lifecycle.Outcome
	var failure *ci.InitFailure
	var err error
	if j.state.Kind == ci.KindInit {
		outcomes, failure, err = r.fill(j)
	} else {
		outcomes, failure, err = r.generate(j)
	}
	if err != nil {
		failure = &ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitDynamicEval, Message: ci.CutText(err.Error()), JobName: ci.CutName(j.state.Name)}
	}
	if failure != nil {
		report.Status, report.Error, report.InitFailure = ci.JobFailed, failure.Message, failure
		return nil
	}
	return outcomes
}

// known is what the run has already. A generator stands for its group until it has made the group's jobs.
func (r *run) known() plan.Known {
	k := plan.Known{Bases: map[string][]string{}, Groups: map[string][]string{}, Edges: r.edges}
	for _, j := range r.jobs {
		k.Bases[j.plan.BaseName] = append(k.Bases[j.plan.BaseName], j.state.Name)
		if j.plan.Group == "" {
			continue
		}
		members := k.Groups[j.plan.Group]
		if j.state.Kind != ci.KindGenerator || j.state.Status != ci.JobSuccess {
			members = append(members, j.state.Name)
		}
		k.Groups[j.plan.Group] = members
	}
	return k
}

// fill completes the place of an init job's target: as the one job that it is, or by children that take over its needs and
// are needed in its stead.
func (r *run) fill(init *job) ([]lifecycle.Outcome, *ci.InitFailure, error) {
	at := slices.IndexFunc(r.jobs, func(j *job) bool { return j.plan.Deferred && j.plan.BaseName == init.plan.Target })
	if at < 0 || r.jobs[at].state.Status.Terminal() {
		return nil, nil, nil
	}
	place := r.jobs[at]
	x, failure, err := plan.Resolve(r.in, r.known(), place.plan.BaseName, init.outputs)
	if err != nil || failure != nil {
		return nil, failure, err
	}
	if len(x.Jobs) == 1 && x.Jobs[0].ID == place.state.ID {
		place.plan = x.Jobs[0]
		return []lifecycle.Outcome{lifecycle.Completed(place.state)}, nil, nil
	}
	r.jobs = slices.Delete(r.jobs, at, at+1)
	delete(r.byName, place.state.Name)
	r.replace(place.state.Name, x.Jobs)
	for i, p := range x.Jobs {
		r.add(p, at+i)
	}
	return r.judge(x.Jobs, nil), nil, nil
}

// replace draws the edges of a place again for each of the jobs that take it.
func (r *run) replace(place string, by []plan.Job) {
	var edges []plan.Edge
	for _, e := range r.edges {
		if e.Job != place && e.Upstream != place {
			edges = append(edges, e)
			continue
		}
		for _, p := range by {
			drawn := e
			if e.Job == place {
				drawn.Job = p.Name
			} else {
				drawn.Upstream = p.Name
			}
			edges = append(edges, drawn)
		}
	}
	r.edges = edges
}

// generate adds what a generator gave, in the place of its group.
func (r *run) generate(g *job) ([]lifecycle.Outcome, *ci.InitFailure, error) {
	up := r.upstreams(g)
	snapshot, err := up.snapshot()
	if err != nil {
		return nil, nil, err
	}
	x, failure, err := plan.Generate(r.in, r.known(), plan.Generated{Generator: g.state.Name, Jobs: g.outputs, Snapshot: snapshot})
	if err != nil || failure != nil {
		return nil, failure, err
	}
	var waiting []*job
	r.edges = slices.DeleteFunc(slices.Clone(r.edges), func(e plan.Edge) bool {
		if !e.ViaGroup || e.Upstream != g.state.Name {
			return false
		}
		if _, broken := x.Failed[e.Job]; !broken {
			waiting = append(waiting, r.byName[e.Job])
		}
		return true
	})
	r.edges = append(r.edges, x.Edges...)
	at := slices.Index(r.jobs, g) + 1
	for i, p := range x.Jobs {
		r.add(p, at+i)
	}
	now := time.Now().UnixMilli()
	var outcomes []lifecycle.Outcome
	for name, f := range x.Failed {
		outcomes = append(outcomes, lifecycle.CannotStart(r.byName[name].state, f, now))
	}
	return append(outcomes, r.judge(x.Jobs, waiting)...), nil, nil
}

// judge decides the first state of new jobs, and anew that of jobs whose needs were drawn again.
func (r *run) judge(added []plan.Job, again []*job) []lifecycle.Outcome {
	var failed []lifecycle.Planned
	var waiting []lifecycle.Dependant
	for _, p := range added {
		j := r.byName[p.Name]
		if p.InitFailure != nil {
			failed = append(failed, lifecycle.Planned{Job: j.state, InitFailure: p.InitFailure})
			continue
		}
		again = append(again, j)
	}
	for _, j := range again {
		waiting = append(waiting, r.dependant(j))
	}
	now := time.Now().UnixMilli()
	return []lifecycle.Outcome{lifecycle.BornFailed(failed, now), lifecycle.Recompute(waiting, now)}
}
