package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
)

// MaxGenerated is how many jobs one generator may give.
const MaxGenerated = 100

// generatorConfig is the jobConfig of a generator's evaluation. What upstreams gave joins at the dispatch.
type generatorConfig struct {
	DynamicJobFn      bool                      `json:"dynamicJobFn"`
	WorkflowName      string                    `json:"workflowName"`
	Source            *lockfile.GeneratorSource `json:"source"`
	TimeoutMs         int64                     `json:"timeoutMs"`
	ContentHash       string                    `json:"contentHash,omitempty"`
	ResolvedHashFiles []string                  `json:"resolvedHashFiles,omitempty"`
	ResultAware       bool                      `json:"resultAware,omitempty"`
	DeclaredNeeds     []any                     `json:"declaredNeeds,omitempty"`
}

// generator plans the evaluation of a job generator, the i-th entry. Until it is done, its group consists of it alone.
func (b *builder) generator(i int, j lockfile.Job) error {
	w := b.in.Workflow
	name := generatorName(w.Name, i)
	source := j.Generator
	if source == nil {
		source = &lockfile.GeneratorSource{File: sourceFile(w), Index: i}
	}
	config := generatorConfig{DynamicJobFn: true, WorkflowName: w.Name, Source: source, TimeoutMs: generatorTimeoutMs,
		ContentHash: b.contentHash(), ResolvedHashFiles: w.ResolvedHashFiles}
	if len(allNeeds(j)) > 0 {
		config.ResultAware, config.DeclaredNeeds = true, declared(j)
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("marshal configuration of generator %s: %w", name, err)
	}
	b.grows = true
	if j.Group != "" {
		b.expansion[group(j.Group)] = append(b.expansion[group(j.Group)], name)
	}
	b.helper(ci.KindGenerator, name, roleInitRunner, raw, generatorTimeoutMs, j)
	return nil
}

// declared is what a generator needs: the names of jobs as texts, and groups as objects.
func declared(j lockfile.Job) []any {
	out := []any{}
	for _, n := range allNeeds(j) {
		if n.Name != "" {
			out = append(out, n.Name)
			continue
		}
		out = append(out, map[string]string{"group": n.Group})
	}
	return out
}

func generatorName(workflow string, index int) string {
	return ending("__dynamic__"+workflow, fmt.Sprintf("__%d", index))
}

// generation is where generated jobs come from, as their agents are told so that they can be made again.
type generation struct {
	Index            int             `json:"index"`
	ExpectedJobNames []string        `json:"expectedJobNames"`
	UpstreamSnapshot json.RawMessage `json:"upstreamSnapshot,omitempty"`
	DeclaredNeeds    []any           `json:"declaredNeeds,omitempty"`
	group            string
}

// Generated is what a generator of a run gave.
type Generated struct {
	Generator string          // name of its job
	Jobs      json.RawMessage // a list of lock file jobs
	Snapshot  json.RawMessage // of its upstreams, as it was given
	// Pinned tells whether a text is the id of an agent of the roster; a job that runs on exactly that is its own.
	Pinned func(agentID string) bool
}

// Generate makes the jobs that a generator gave. The members of its group take its place in what waits for the group. A
// failure is of the generator, for people; a job of it that cannot run is born failed.
func Generate(in Input, known Known, g Generated) (Expansion, *ci.InitFailure, error) {
	index := generatorIndex(in.Workflow, g.Generator)
	if index < 0 {
		return Expansion{}, nil, fmt.Errorf("generate: workflow %s has no generator %s", in.Workflow.Name, g.Generator)
	}
	b := joining(in, known)
	entry := b.in.Workflow.Jobs[index]
	jobs, message := b.decodeGenerated(g.Jobs)
	if message != "" {
		return Expansion{}, &ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitDynamicEval, Message: ci.CutText(message), JobName: ci.CutName(g.Generator)}, nil
	}
	b.generated = &generation{Index: index, ExpectedJobNames: b.names(jobs), UpstreamSnapshot: g.Snapshot, group: entry.Group}
	if entry.Generator != nil {
		b.generated.Index = entry.Generator.Index
	}
	if len(allNeeds(entry)) > 0 {
		b.generated.DeclaredNeeds = declared(entry)
	}
	members, err := b.generate(jobs, g.Pinned)
	if err != nil {
		return Expansion{}, nil, err
	}
	if b.count > b.in.MaxJobs {
		return Expansion{}, &ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitMatrixExpansion, JobName: ci.CutName(g.Generator), Message: ci.CutText(
			fmt.Sprintf("workflow '%s' expands to %d jobs (max %d)", in.Workflow.Name, b.count, b.in.MaxJobs))}, nil
	}
	return b.join(known, g.Generator, entry.Group, members), nil, nil
}

func generatorIndex(w lockfile.Workflow, name string) int {
	for i, j := range w.Jobs {
		if j.Kind() == lockfile.KindDynamic && generatorName(w.Name, i) == name {
			return i
		}
	}
	return -1
}

// names are the jobs' as their author's function gave them.
func (b *builder) names(jobs []lockfile.Job) []string {
	out := make([]string, len(jobs))
	for i, j := range jobs {
		out[i] = b.asWritten(j).Name
	}
	return out
}

// decodeGenerated reads a generator's jobs, or says what is wrong with them.
func (b *builder) decodeGenerated(raw json.RawMessage) (jobs []lockfile.Job, message string) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, "the generator's result is not a list of jobs"
	}
	if len(list) > MaxGenerated {
		return nil, fmt.Sprintf("the generator gave %d jobs (max %d)", len(list), MaxGenerated)
	}
	for i, item := range list {
		author, err := lockfile.DecodeJob(item, b.in.Workflow.Name)
		j := boundedJob(author)
		switch {
		case err != nil:
			return nil, fmt.Sprintf("job %d of the generator's: %v", i+1, err)
		case j.Name == "":
			return nil, fmt.Sprintf("job %d of the generator's has no name", i+1)
		case b.taken[j.Name] > 0 || len(b.expansion[j.Name]) > 0:
			return nil, fmt.Sprintf("the generator gave a job '%s', and the run has one of that name already", j.Name)
		}
		b.taken[j.Name] = 1
		b.written[j.Name] = author
		jobs = append(jobs, j)
	}
	return jobs, ""
}

// generate plans the jobs and gives the names of them all.
func (b *builder) generate(jobs []lockfile.Job, pinned func(string) bool) (members []string, err error) {
	for _, j := range jobs {
		if message := b.unknownNeed(j, jobs); message != "" {
			b.born(j, refusal{ci.InitDynamicEval, message})
			continue
		}
		b.pin(j, pinned)
		if err := b.static(j); err != nil {
			return nil, err
		}
	}
	source, err := json.Marshal(b.generated)
	if err != nil {
		return nil, fmt.Errorf("marshal source of generated jobs: %w", err)
	}
	for i := range b.jobs {
		if b.jobs[i].Kind == ci.KindBringup {
			continue // it works for a member, and is none
		}
		b.jobs[i].Group, b.jobs[i].DynamicSource = b.generated.group, source
		members = append(members, b.jobs[i].Name)
	}
	return members, nil
}

// pin makes a job that runs on one exact text, which is the id of an agent, that agent's own.
func (b *builder) pin(j lockfile.Job, pinned func(string) bool) {
	if len(j.RunsOn) == 1 && j.RunsOn[0].Kind == label.Exact && pinned != nil && pinned(j.RunsOn[0].Value) {
		b.pins[j.Name] = j.RunsOn[0].Value
	}
}

// unknownNeed says what a generated job needs that the run does not have, "" when nothing is amiss.
func (b *builder) unknownNeed(j lockfile.Job, siblings []lockfile.Job) string {
	for _, n := range allNeeds(j) {
		if n.Name == "" {
			if _, known := b.expansion[group(n.Group)]; !known {
				return fmt.Sprintf("generated job '%s' needs group '%s', which no generator of the workflow makes", j.Name, n.Group)
			}
			continue
		}
		sibling := slices.ContainsFunc(siblings, func(s lockfile.Job) bool { return s.Name == n.Name })
		if len(b.expansion[n.Name]) == 0 && !sibling {
			return fmt.Sprintf("generated job '%s' needs '%s', which is no job of the run", j.Name, n.Name)
		}
	}
	return ""
}

// join draws the edges of new jobs and moves what waited for their generator's group to them. Jobs on a cycle fail.
func (b *builder) join(known Known, generator, groupName string, members []string) Expansion {
	if groupName != "" {
		b.expansion[group(groupName)] = append(without(b.expansion[group(groupName)], generator), members...)
	}
	x := Expansion{Jobs: b.jobs, Edges: append(edges(b.needs, b.expansion), b.bringUps...)}
	kept := []Edge{}
	for _, e := range known.Edges {
		if !e.ViaGroup || e.Upstream != generator {
			kept = append(kept, e)
			continue
		}
		for _, m := range members {
			x.Edges = append(x.Edges, Edge{Job: e.Job, Upstream: m, RunOn: e.RunOn})
		}
	}
	x.breakCycles(append(kept, x.Edges...))
	return x
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

// breakCycles fails the jobs on cycles and takes their needs away, so that the rest of the run can end.
func (x *Expansion) breakCycles(all []Edge) {
	for {
		g := graph{needs: map[string][]string{}}
		for _, e := range all {
			if _, seen := g.needs[e.Job]; !seen {
				g.order = append(g.order, e.Job)
			}
			g.needs[e.Job] = append(g.needs[e.Job], e.Upstream)
		}
		path := g.cycle()
		if path == nil {
			return
		}
		message := "cycle detected: " + strings.Join(path, " -> ")
		for _, name := range path[1:] {
			x.fail(name, message)
		}
		onPath := func(e Edge) bool { return slices.Contains(path, e.Job) }
		all = slices.DeleteFunc(all, onPath)
		x.Edges = slices.DeleteFunc(x.Edges, onPath)
	}
}

func (x *Expansion) fail(name, message string) {
	f := ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitDynamicEval, Message: ci.CutText(message), JobName: ci.CutName(name)}
	for i := range x.Jobs {
		if x.Jobs[i].Name == name {
			x.Jobs[i].InitFailure, x.Jobs[i].Config = &f, nil
			return
		}
	}
	if x.Failed == nil {
		x.Failed = map[string]ci.InitFailure{}
	}
	x.Failed[name] = f
}
