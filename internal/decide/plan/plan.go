// Package plan turns a matched workflow and its event into the jobs of a run: their names and positions, what each demands
// of an agent, what each is configured with, and which waits for which. It is pure but for the sandboxed expressions of
// the author, which see the event and nothing else.
package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/decide/contexts"
)

// Source is the commit that the run is about.
type Source struct {
	Repo     string // repository identifier, as in acme/app
	CloneURL string
	Ref      string
	SHA      string
	Provider string // github, generic, local
}

// Input is everything a plan is made of.
type Input struct {
	Workflow lockfile.Workflow
	Event    ci.Event
	Source   Source
	Org      string
	RunID    string

	ContentHashOmitted bool            // of test runs, whose source is an uploaded overlay that no hash was made of
	CacheShared        bool            // the contributor is trusted: caches may be shared with other refs
	DispatchInputs     json.RawMessage // an object, or nil
	CheckMode          string          // "", apply, check or check-fail-on-drift
	MaxJobs            int             // 0: ci.MaxJobsPerRun
	// Platform and Arch are of the agents that run jobs which work for others, in Node's words: linux, x64.
	Platform, Arch string
	Packing        *Packing // what must be packed before any job, nil: nothing
	LockfileHash   string   // of the package manager's lock file beside the workflows, "" when there is none
	// Roster are the hosts that a fan-out over hosts chooses from, as they are at the time Now, epoch milliseconds.
	Roster      []label.RosterHost
	Now         int64
	RosterGrace time.Duration // silence after which a connected host counts as lost
	MaxHosts    int           // of one fan-out; 0: ci.MaxFanoutHosts
}

// Plan is what to register. With an InitFailure the whole run fails and there are no jobs.
type Plan struct {
	Workflow    string
	TimeoutMs   int64 // wall clock of the whole run; 0: none
	Jobs        []Job // in the order of dispatch; names are unique
	Edges       []Edge
	Approval    *lockfile.Approval // holds the run before any job
	Concurrency *lockfile.Concurrency
	Secrets     WorkflowSecrets
	InitFailure *ci.InitFailure
	// Document is what it was planned from, for Decode, when jobs of the run give more jobs later; nil otherwise.
	Document json.RawMessage
}

// Job is one expanded job. With an InitFailure it is born failed, so that what depends on it resolves, and has no Config.
type Job struct {
	ID             string
	Kind           ci.JobKind
	Name           string // BaseName, or BaseName (VariantLabel)
	BaseName       string // the name in the source
	MatrixValues   lockfile.Pairs
	Host           *Host  // of a host child: the only host that may take it
	VariantKind    string // "", VariantMatrix or VariantHost
	VariantLabel   string
	FanoutIndex    int // rank among the children, from 0
	FanoutTotal    int // 0: no position, since it has no siblings
	Selector       label.Selector
	Pick           string // deterministic or any: how to choose among several fitting agents
	Config         json.RawMessage
	TimeoutMs      int64 // 0: none; the agent enforces it
	GraceMs        int64 // between the polite and the hard stop; 0: the default
	Contexts       []string
	ContextDisplay []string // Contexts, with (dynamic) for those that only an agent can name
	Concurrency    string   // concurrency group, or ""
	Approval       *lockfile.Approval
	Root           bool // waits for no other job
	// Deferred tells that the job waits for the init job that names it as its Target; it has no Config until then.
	Deferred      bool
	Target        string          // of an init job: base name of the job it works for
	BringsUp      string          // of a bring-up: the id of the agent that it starts
	Group         string          // of generated jobs, and of their generator: the group that dependants name
	DynamicSource json.RawMessage // of a generated job: how its agent makes it again, without the event
	WaveGated     bool            // waits for a place in its fan-out
	MaxParallel   int             // width of the fan-out's wave; 0: none
	FailFast      bool            // acts only with MaxParallel
	InitFailure   *ci.InitFailure
}

// The kinds of fan-out children.
const (
	VariantMatrix = "matrix"
	VariantHost   = "host"
)

// Edge says that Job waits for Upstream to end in one of RunOn. Both are names of jobs of the run.
type Edge struct {
	Job, Upstream string
	RunOn         []ci.JobStatus
	// ViaGroup tells that Upstream is a generator, needed for the jobs that it will make: they take its place.
	ViaGroup bool
}

// Build plans a run. The error is a defect of the caller or of the sandbox; whatever is wrong with the workflow is an
// init failure of the plan or of a job.
func Build(in Input) (Plan, error) {
	if in.MaxJobs == 0 {
		in.MaxJobs = ci.MaxJobsPerRun
	}
	b := newBuilder(in)
	w := b.in.Workflow
	p := Plan{Workflow: w.Name, TimeoutMs: w.TimeoutMs, Approval: w.Approval, Concurrency: w.Concurrency, Secrets: secretsOf(w)}
	if p.InitFailure = refuse(w); p.InitFailure != nil {
		return p, nil
	}
	for name := range baseNames(w) {
		b.taken[name] = 1
	}
	for i, j := range w.Jobs {
		if err := b.add(i, j); err != nil {
			return Plan{}, fmt.Errorf("plan workflow %s: %w", w.Name, err)
		}
		if b.count > in.MaxJobs {
			p.InitFailure = b.tooMany(i)
			return p, nil
		}
	}
	var err error
	if p.Jobs, p.Edges, err = b.finish(); err != nil {
		return Plan{}, fmt.Errorf("plan workflow %s: %w", w.Name, err)
	}
	if b.grows {
		p.Document, err = in.encode()
	}
	return p, err
}

// refuse tells why the workflow cannot be planned at all.
func refuse(w lockfile.Workflow) *ci.InitFailure {
	fail := func(category, format string, args ...any) *ci.InitFailure {
		return &ci.InitFailure{Scope: ci.ScopeRun, Category: category, Message: ci.CutText(fmt.Sprintf(format, args...))}
	}
	if len(w.Problems) > 0 {
		return fail(ci.InitLockResolution, "workflow '%s' of the lock file cannot be used: %s", w.Name, strings.Join(w.Problems, "; "))
	}
	if message := checkNeeds(w); message != "" {
		return fail(ci.InitLockResolution, "%s", message)
	}
	return nil
}

// builder collects jobs: all of a plan, or those that a job of a run gives.
type builder struct {
	in        Input                   // with bounded names
	written   map[string]lockfile.Job // see bounded
	eval      evaluator
	jobs      []Job
	count     int                 // of jobs, also of those left out because the plan is refused anyway
	needs     []dependant         // one for each job, in the same order
	expansion map[string][]string // base name or group → names of its jobs
	taken     map[string]int      // names in use, with the number of children that asked for each
	grows     bool
	bringUps  []Edge            // from children to the jobs that start an agent on their hosts
	generated *generation       // of jobs that a generator gave
	pins      map[string]string // of those, base name → the only agent that may take the job
}

func newBuilder(in Input) *builder {
	b := &builder{in: in, expansion: map[string][]string{}, taken: map[string]int{}, pins: map[string]string{}}
	b.eval.event = sync.OnceValues(func() (json.RawMessage, error) { return json.Marshal(in.Event) })
	b.in.Workflow, b.written = bounded(in.Workflow)
	return b
}

// add plans one entry of the workflow's jobs, the i-th.
func (b *builder) add(i int, j lockfile.Job) error {
	switch j.Kind() {
	case lockfile.KindStatic:
		return b.static(j)
	case lockfile.KindDynamic:
		return b.generator(i, j)
	case lockfile.KindUnknown:
		// An entry of a later schema; readers skip it.
	}
	return nil
}

// finish draws the edges and finds the roots. What waits for nothing else waits for the build.
func (b *builder) finish() ([]Job, []Edge, error) {
	edges := edges(b.needs, b.expansion)
	markRoots(b.jobs, b.needs, edges)
	jobs := b.jobs
	if b.in.Packing != nil {
		build, err := b.buildJob()
		if err != nil {
			return nil, nil, err
		}
		for i, j := range b.jobs {
			if j.Root && j.InitFailure == nil && j.Kind != ci.KindBringup {
				b.jobs[i].Root = false
				edges = append(edges, Edge{Job: j.Name, Upstream: build.Name, RunOn: []ci.JobStatus{ci.JobSuccess}})
			}
		}
		jobs = append([]Job{build}, jobs...)
	}
	b.uproot(jobs)
	return jobs, append(edges, b.bringUps...), nil
}

// born adds a job that fails at birth.
func (b *builder) born(j lockfile.Job, r refusal) {
	b.push(Job{
		Kind: ci.KindStandard, Name: j.Name, BaseName: j.Name, Pick: pick(j),
		InitFailure: &ci.InitFailure{Scope: ci.ScopeJob, Category: r.category, Message: ci.CutText(r.message), JobName: ci.CutName(j.Name)},
	}, j)
}

func (b *builder) push(p Job, j lockfile.Job) {
	p.ID = JobID(b.in.RunID, p.Name)
	b.jobs = append(b.jobs, p)
	b.count++
	b.needs = append(b.needs, dependant{name: p.Name, needs: allNeeds(j), groups: j.DependsOnGroups})
	b.expansion[p.BaseName] = append(b.expansion[p.BaseName], p.Name)
}

// static plans a job and its fan-out, or its place while an agent has still to compute a part of it.
func (b *builder) static(j lockfile.Job) error {
	ready, open, refused := b.prepare(j)
	switch {
	case refused != nil:
		b.born(j, *refused)
		return nil
	case open.any():
		return b.deferred(j, ready, open)
	}
	if n := b.arriving(ready.children); b.count+n > b.in.MaxJobs {
		b.count += n // the plan is refused; only the number matters
		return nil
	}
	return b.materialise(j, ready)
}

// prepared is what the children of a job have in common, and which children there are.
type prepared struct {
	proto    Job
	env      lockfile.Pairs
	children []Child
}

// prepare evaluates what can be evaluated here, and tells what only an agent can.
func (b *builder) prepare(j lockfile.Job) (ready prepared, open unresolved, refused *refusal) {
	if refused = b.unable(j); refused != nil {
		return
	}
	fields, err := b.eval.fields(j)
	if err != nil {
		return ready, open, &refusal{ci.InitDynamicEval, err.Error()}
	}
	bound := contexts.NamesOf(j.Environments, fields.contexts)
	ready.proto = Job{
		Kind: ci.KindStandard, BaseName: j.Name, Pick: pick(j), TimeoutMs: j.TimeoutMs, GraceMs: int64(j.GracePeriodSeconds * 1000),
		Contexts: bound.Resolved, ContextDisplay: bound.Display, Concurrency: fields.concurrencyGroup(j), Approval: j.Approval,
	}
	ready.env = fields.environment(j)
	if id := b.pins[j.Name]; id != "" {
		ready.proto.Selector.Pin = id
	} else if ready.proto.Selector, err = label.Select(j.RunsOn, j.ExcludeLabels); err != nil {
		return ready, open, &refusal{ci.InitEnvironmentRules, fmt.Sprintf("job '%s': %v", j.Name, err)}
	}
	if open = needsAgent(j, bound); open.matrix {
		return ready, open, nil
	}
	if ready.children, err = b.fanOut(j); err != nil {
		return ready, open, &refusal{ci.InitMatrixExpansion, err.Error()}
	}
	return ready, open, nil
}

// materialise adds the children of a job.
func (b *builder) materialise(j lockfile.Job, ready prepared) error {
	ready.proto.Contexts = secretsOf(b.in.Workflow).bind(ready.proto.Contexts)
	shared, err := newConfig(b.in, b.asWritten(j), ready.proto.Contexts, ready.env)
	if err != nil {
		return err
	}
	waves := wavePlan(ready.children, j.MaxParallel, j.FailFast != nil && *j.FailFast)
	for i, c := range ready.children {
		p := ready.proto
		p.Name = c.Name
		if c.VariantKind != "" {
			p.Name = b.unique(c.Name)
		}
		p.MatrixValues, p.VariantKind, p.VariantLabel = c.Values, c.VariantKind, c.Label
		p.FanoutIndex, p.FanoutTotal = c.Index, c.Total
		p.WaveGated, p.MaxParallel, p.FailFast = waves[i].gated, waves[i].maxParallel, waves[i].failFast
		if c.Host != nil {
			p.Selector.Pin, p.Host = c.Host.AgentID, c.Host
		}
		if c.Failure != "" {
			p.InitFailure = &ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitNoAgent, Message: ci.CutText(c.Failure), JobName: ci.CutName(p.Name)}
		} else if p.Config, err = shared.child(p); err != nil {
			return err
		}
		if c.BringUp {
			if err := b.bringUp(p.Name, *c.Host); err != nil {
				return err
			}
		}
		b.push(p, j)
	}
	return nil
}

// refusal is why a job is born failed.
type refusal struct{ category, message string }

// baseNames are the names that children may not take.
func baseNames(w lockfile.Workflow) map[string]int {
	taken := map[string]int{}
	for i, j := range w.Jobs {
		switch j.Kind() {
		case lockfile.KindStatic:
			taken[j.Name] = 1
		case lockfile.KindDynamic:
			taken[generatorName(w.Name, i)] = 1
		case lockfile.KindUnknown:
		}
	}
	return taken
}

func pick(j lockfile.Job) string {
	if j.RunsOnPick == "any" {
		return "any"
	}
	return "deterministic"
}

// unable names what the job asks for and cannot have.
func (b *builder) unable(j lockfile.Job) *refusal {
	if _, err := lockfile.ParseResources(j.Resources); err != nil {
		return &refusal{ci.InitEnvironmentRules, fmt.Sprintf("job '%s': %v", j.Name, err)}
	}
	return nil
}

// tooMany refuses a plan that passed the limit at the i-th entry. The count includes what the later entries add.
func (b *builder) tooMany(i int) *ci.InitFailure {
	count := b.count
	for _, j := range b.in.Workflow.Jobs[i+1:] {
		children, err := b.fanOut(j)
		switch {
		case j.Kind() == lockfile.KindUnknown:
		case err != nil:
			count++ // one job that is born failed
		default:
			count += b.arriving(children)
		}
	}
	return &ci.InitFailure{Scope: ci.ScopeRun, Category: ci.InitMatrixExpansion, Message: ci.CutText(
		fmt.Sprintf("workflow '%s' expands to %d jobs (max %d)", b.in.Workflow.Name, count, b.in.MaxJobs))}
}

// markRoots finds the jobs that wait for no other and for no group.
func markRoots(jobs []Job, dependants []dependant, edges []Edge) {
	waiting := map[string]bool{}
	for _, e := range edges {
		waiting[e.Job] = true
	}
	for i := range jobs {
		jobs[i].Root = !waiting[jobs[i].Name] && len(dependants[i].groups) == 0
	}
}
