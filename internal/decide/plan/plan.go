// Package plan turns a matched workflow and its event into the jobs of a run: their names and positions, what each demands
// of an agent, what each is configured with, and which waits for which. It is pure but for the sandboxed expressions of
// the author, which see the event and nothing else.
package plan

import (
	"encoding/json"
	"fmt"
	"strings"

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
	// NewID gives the id of the job of that name. Ids that follow from the run and the name make a plan that is made
	// twice the same plan.
	NewID func(name string) string

	ContentHashOmitted bool            // of test runs, whose source is an uploaded overlay that no hash was made of
	CacheShared        bool            // the contributor is trusted: caches may be shared with other refs
	DispatchInputs     json.RawMessage // an object, or nil
	CheckMode          string          // "", apply, check or check-fail-on-drift
	MaxJobs            int             // 0: ci.MaxJobsPerRun
	// Approvals says that the caller holds runs and jobs until people approve them. Without it whatever asks for an
	// approval is refused: running it unasked would be the worst answer.
	Approvals bool
}

// Plan is what to register. With an InitFailure the whole run fails and there are no jobs.
type Plan struct {
	Workflow    string
	TimeoutMs   int64 // wall clock of the whole run; 0: none
	Jobs        []Job // in the order of dispatch; names are unique
	Edges       []Edge
	Approval    *lockfile.Approval // holds the run before any job
	InitFailure *ci.InitFailure
}

// Job is one expanded job. With an InitFailure it is born failed, so that what depends on it resolves, and has no Config.
type Job struct {
	ID             string
	Name           string // BaseName, or BaseName (VariantLabel)
	BaseName       string // the name in the source
	MatrixValues   lockfile.Pairs
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
	WaveGated      bool // waits for a place in its fan-out
	MaxParallel    int  // width of the fan-out's wave; 0: none
	FailFast       bool // acts only with MaxParallel
	InitFailure    *ci.InitFailure
}

// The kinds of fan-out children.
const (
	VariantMatrix = "matrix"
	VariantHost   = "host"
)

// Edge says that Job waits for Upstream to end in one of RunOn. Both are names of jobs of the plan.
type Edge struct {
	Job, Upstream string
	RunOn         []ci.JobStatus
}

// Build plans a run. The error is a defect of the caller or of the sandbox; whatever is wrong with the workflow is an
// init failure of the plan or of a job.
func Build(in Input) (Plan, error) {
	if in.NewID == nil {
		return Plan{}, fmt.Errorf("plan workflow %s: no source of ids", in.Workflow.Name)
	}
	event, err := json.Marshal(in.Event)
	if err != nil {
		return Plan{}, fmt.Errorf("plan workflow %s: marshal event: %w", in.Workflow.Name, err)
	}
	if in.MaxJobs == 0 {
		in.MaxJobs = ci.MaxJobsPerRun
	}
	p := Plan{Workflow: in.Workflow.Name, TimeoutMs: in.Workflow.TimeoutMs, Approval: in.Workflow.Approval}
	if p.InitFailure = refuse(in); p.InitFailure != nil {
		return p, nil
	}
	b := builder{in: in, eval: evaluator{event: event}, expansion: map[string][]string{}, taken: baseNames(in.Workflow)}
	for i, j := range in.Workflow.Jobs {
		if err := b.add(i, j); err != nil {
			return Plan{}, fmt.Errorf("plan workflow %s: %w", in.Workflow.Name, err)
		}
		if b.count > in.MaxJobs {
			p.InitFailure = b.tooMany(i)
			return p, nil
		}
	}
	p.Jobs = b.jobs
	p.Edges = edges(b.needs, b.expansion)
	markRoots(p.Jobs, b.needs, p.Edges)
	return p, nil
}

// refuse tells why the workflow cannot be planned at all.
func refuse(in Input) *ci.InitFailure {
	w := in.Workflow
	fail := func(category, format string, args ...any) *ci.InitFailure {
		return &ci.InitFailure{Scope: ci.ScopeRun, Category: category, Message: ci.CutText(fmt.Sprintf(format, args...))}
	}
	if len(w.Problems) > 0 {
		return fail(ci.InitLockResolution, "workflow '%s' of the lock file cannot be used: %s", w.Name, strings.Join(w.Problems, "; "))
	}
	if w.Approval != nil && !in.Approvals {
		return fail(ci.InitEnvironmentRules, "workflow '%s' asks for an approval, and this server cannot hold runs yet", w.Name)
	}
	if message := checkNeeds(w); message != "" {
		return fail(ci.InitLockResolution, "%s", message)
	}
	return nil
}

// builder collects the jobs of a plan.
type builder struct {
	in        Input
	eval      evaluator
	jobs      []Job
	count     int                 // of jobs, also of those left out because the plan is refused anyway
	needs     []dependant         // one for each job, in the same order
	expansion map[string][]string // base name or group → names of its jobs
	taken     map[string]int      // names in use, with the number of children that asked for each
}

// add plans one entry of the workflow's jobs, the i-th.
func (b *builder) add(i int, j lockfile.Job) error {
	switch j.Kind() {
	case lockfile.KindStatic:
		return b.static(j)
	case lockfile.KindDynamic:
		b.generator(i, j)
	case lockfile.KindUnknown:
		// An entry of a later schema; readers skip it.
	}
	return nil
}

// generator plans the place of a job generator. Its group consists of it alone, so that what depends on the group
// resolves as for a failed job.
func (b *builder) generator(i int, j lockfile.Job) {
	name := generatorName(b.in.Workflow.Name, i)
	if j.Group != "" {
		b.expansion[group(j.Group)] = append(b.expansion[group(j.Group)], name)
	}
	b.born(lockfile.Job{Name: name}, ci.InitDynamicEval,
		fmt.Sprintf("entry %d of the jobs of workflow '%s' generates jobs at run time, which this server cannot do yet", i+1, b.in.Workflow.Name))
}

func generatorName(workflow string, index int) string {
	return fmt.Sprintf("__dynamic__%s__%d", workflow, index)
}

// born adds a job that fails at birth.
func (b *builder) born(j lockfile.Job, category, message string) {
	b.push(Job{
		Name: j.Name, BaseName: j.Name, Pick: pick(j),
		InitFailure: &ci.InitFailure{Scope: ci.ScopeJob, Category: category, Message: ci.CutText(message), JobName: ci.CutName(j.Name)},
	}, j)
}

func (b *builder) push(p Job, j lockfile.Job) {
	p.ID = b.in.NewID(p.Name)
	b.jobs = append(b.jobs, p)
	b.count++
	b.needs = append(b.needs, dependant{name: p.Name, needs: allNeeds(j), groups: j.DependsOnGroups})
	b.expansion[j.Name] = append(b.expansion[j.Name], p.Name)
}

// static plans a job and its fan-out.
func (b *builder) static(j lockfile.Job) error {
	proto, children, env, refused := b.prepare(j)
	if refused != nil {
		b.born(j, refused.category, refused.message)
		return nil
	}
	if b.count += len(children); b.count > b.in.MaxJobs {
		return nil // the plan is refused; only the number matters
	}
	b.count -= len(children)
	shared, err := newConfig(b.in, j, proto.Contexts, env)
	if err != nil {
		return err
	}
	waves := wavePlan(children, j.MaxParallel, j.FailFast != nil && *j.FailFast)
	for i, c := range children {
		p := proto
		p.Name = c.Name
		if c.VariantKind != "" {
			p.Name = b.unique(c.Name)
		}
		p.MatrixValues, p.VariantKind, p.VariantLabel = c.Values, c.VariantKind, c.Label
		p.FanoutIndex, p.FanoutTotal = c.Index, c.Total
		p.WaveGated, p.MaxParallel, p.FailFast = waves[i].gated, waves[i].maxParallel, waves[i].failFast
		if p.Config, err = shared.child(p); err != nil {
			return err
		}
		b.push(p, j)
	}
	return nil
}

// refusal is why a job is born failed.
type refusal struct{ category, message string }

// prepare decides what the children of a job have in common, and how many there are.
func (b *builder) prepare(j lockfile.Job) (proto Job, children []Child, env lockfile.Pairs, refused *refusal) {
	if refused = b.unable(j); refused != nil {
		return
	}
	fields, err := b.eval.fields(j)
	if err != nil {
		return proto, nil, nil, &refusal{ci.InitDynamicEval, err.Error()}
	}
	bound := contexts.NamesOf(j.Environments, fields.contexts)
	if what := needsAgent(j, bound); what != "" {
		return proto, nil, nil, onlyAgent(j, what)
	}
	selector, err := label.Select(j.RunsOn, j.ExcludeLabels)
	if err != nil {
		return proto, nil, nil, &refusal{ci.InitEnvironmentRules, fmt.Sprintf("job '%s': %v", j.Name, err)}
	}
	if children, err = FanOut(j); err != nil {
		return proto, nil, nil, &refusal{ci.InitMatrixExpansion, err.Error()}
	}
	proto = Job{
		BaseName: j.Name, Selector: selector, Pick: pick(j), TimeoutMs: j.TimeoutMs, GraceMs: int64(j.GracePeriodSeconds * 1000),
		Contexts: bound.Resolved, ContextDisplay: bound.Display, Concurrency: fields.concurrencyGroup(j), Approval: j.Approval,
	}
	return proto, children, fields.environment(j), nil
}

func onlyAgent(j lockfile.Job, what string) *refusal {
	return &refusal{ci.InitDynamicEval, fmt.Sprintf(
		"job '%s' computes %s in a function that only an agent can run, which this server cannot do yet", j.Name, what)}
}

// unique gives a child's name a number when another job has it already: a list may hold a value twice, and two lists of
// values may read the same when joined.
func (b *builder) unique(name string) string {
	free := name
	for b.taken[free] > 0 {
		b.taken[name]++ // so that the next of this name starts its search here
		free = fmt.Sprintf("%s #%d", name, b.taken[name])
	}
	b.taken[free] = 1
	return free
}

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
	switch {
	case j.Approval != nil && !b.in.Approvals:
		return &refusal{ci.InitEnvironmentRules, fmt.Sprintf("job '%s' asks for an approval, and this server cannot hold jobs yet", j.Name)}
	case j.RunsOnAll != nil:
		return &refusal{ci.InitMatrixExpansion, fmt.Sprintf("job '%s' runs on all hosts that fit, which this server cannot do yet", j.Name)}
	case j.Matrix != nil && j.Matrix.Type == "dynamic":
		return onlyAgent(j, "its matrix")
	}
	return nil
}

// tooMany refuses a plan that passed the limit at the i-th entry. The count includes what the later entries add.
func (b *builder) tooMany(i int) *ci.InitFailure {
	count := b.count
	for _, j := range b.in.Workflow.Jobs[i+1:] {
		children, err := FanOut(j)
		switch {
		case j.Kind() == lockfile.KindUnknown:
		case err != nil:
			count++ // one job that is born failed
		default:
			count += len(children)
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
