package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
)

// The roles that agents need for jobs which work for others.
const (
	roleInitRunner = "kici:role:init-runner"
	roleBuilder    = "kici:role:builder"
)

// Wall clock of the jobs which work for others, milliseconds.
const (
	initTimeoutMs      = 60_000
	generatorTimeoutMs = 120_000
	buildTimeoutMs     = 600_000
)

// initConfig is the jobConfig of an init job. The source is a plain path there.
type initConfig struct {
	InitOnly                bool     `json:"initOnly"`
	TargetJobName           string   `json:"targetJobName"`
	WorkflowName            string   `json:"workflowName"`
	Source                  string   `json:"source"`
	DynamicEnvironment      bool     `json:"dynamicEnvironment"`
	DynamicEnv              bool     `json:"dynamicEnv"`
	DynamicConcurrencyGroup bool     `json:"dynamicConcurrencyGroup"`
	DynamicMatrix           bool     `json:"dynamicMatrix"`
	TimeoutMs               int64    `json:"timeoutMs"`
	ContentHash             string   `json:"contentHash,omitempty"`
	ResolvedHashFiles       []string `json:"resolvedHashFiles,omitempty"`
}

// deferred plans the place of a job of which an agent has to compute a part, and the init job that does it.
func (b *builder) deferred(j lockfile.Job, ready prepared, open unresolved) error {
	if b.generated != nil {
		b.born(j, refusal{ci.InitDynamicEval, fmt.Sprintf("generated job '%s' leaves %s to a function", j.Name, open.words())})
		return nil
	}
	w := b.in.Workflow
	config, err := json.Marshal(initConfig{
		InitOnly: true, TargetJobName: b.asWritten(j).Name, WorkflowName: w.Name, Source: sourceFile(w),
		DynamicEnvironment: hasDynamic(j.Environments), DynamicEnv: j.DynamicEnv,
		DynamicConcurrencyGroup: j.DynamicConcurrencyGroup, DynamicMatrix: open.matrix,
		TimeoutMs: initTimeoutMs, ContentHash: b.contentHash(), ResolvedHashFiles: w.ResolvedHashFiles,
	})
	if err != nil {
		return fmt.Errorf("marshal configuration of the init job of %s: %w", j.Name, err)
	}
	b.grows = true
	place := ready.proto
	place.Name, place.Deferred = j.Name, true
	b.helper(ci.KindInit, b.unique(ci.InitJobName(w.Name, j.Name)), roleInitRunner, config, initTimeoutMs, lockfile.Job{})
	b.jobs[len(b.jobs)-1].Target = j.Name
	b.push(place, j)
	return nil
}

// helper adds a job that works for others. Its needs are those of the entry that it stands for.
func (b *builder) helper(kind ci.JobKind, name, role string, config json.RawMessage, timeoutMs int64, entry lockfile.Job) {
	entry.Name = name
	b.push(Job{
		Kind: kind, Name: name, BaseName: name, Pick: pick(entry), Selector: b.helperSelector(role),
		Config: config, TimeoutMs: timeoutMs, Group: entry.Group,
	}, entry)
}

func (b *builder) helperSelector(role string) label.Selector {
	labels := []string{role}
	if b.in.Platform != "" && b.in.Arch != "" {
		labels = append(labels, label.Kind(b.in.Platform, b.in.Arch)...)
	}
	return label.Selector{Labels: labels}
}

func (b *builder) contentHash() string {
	if b.in.ContentHashOmitted {
		return ""
	}
	return b.in.Workflow.ContentHash
}

func sourceFile(w lockfile.Workflow) string {
	if w.Source == nil {
		return ""
	}
	return w.Source.File
}

func hasDynamic(elements []lockfile.ContextRef) bool {
	for _, e := range elements {
		if e.Dynamic {
			return true
		}
	}
	return false
}

// NeedsFleet tells whether planning the workflow depends on which agents there are.
func NeedsFleet(w lockfile.Workflow) bool {
	for _, j := range w.Jobs {
		if j.Kind() == lockfile.KindDynamic || j.RunsOnAll != nil || j.DynamicEnv || j.DynamicConcurrencyGroup ||
			hasDynamic(j.Environments) || j.Matrix != nil && j.Matrix.Type == "dynamic" {
			return true
		}
	}
	return false
}

// FirstSelector is what the first job of the workflow demands of an agent; nothing when it cannot be read.
func FirstSelector(w lockfile.Workflow) label.Selector {
	for _, j := range w.Jobs {
		if j.Kind() == lockfile.KindStatic {
			s, err := label.Select(j.RunsOn, j.ExcludeLabels)
			if err != nil {
				return label.Selector{}
			}
			return s
		}
	}
	return label.Selector{}
}

// BuilderRole is the label of agents that pack source and dependencies.
const BuilderRole = roleBuilder

// Packing says what must be packed before the jobs of a run.
type Packing struct {
	SourceNeeded, DepsNeeded bool
}

// buildConfig is the jobConfig of a build job.
type buildConfig struct {
	BuildOnly         bool        `json:"buildOnly"`
	TargetPlatform    string      `json:"targetPlatform"`
	TargetArch        string      `json:"targetArch"`
	Source            buildSource `json:"source"`
	ContentHash       string      `json:"contentHash,omitempty"`
	LockfileHash      string      `json:"lockfileHash,omitempty"`
	WorkflowName      string      `json:"workflowName"`
	BuildSourceNeeded bool        `json:"buildSourceNeeded"`
	BuildDepsNeeded   bool        `json:"buildDepsNeeded"`
	ResolvedHashFiles []string    `json:"resolvedHashFiles,omitempty"`
	CacheOrgID        string      `json:"cacheOrgId,omitempty"`
	CacheRepoID       string      `json:"cacheRepoId,omitempty"`
	CacheRefScope     string      `json:"cacheRefScope"`
}

type buildSource struct {
	File string `json:"file"`
}

// buildJob is the job that packs source and dependencies.
func (b *builder) buildJob() (Job, error) {
	w, need := b.in.Workflow, *b.in.Packing
	config, err := json.Marshal(buildConfig{
		BuildOnly: true, TargetPlatform: b.in.Platform, TargetArch: b.in.Arch, Source: buildSource{sourceFile(w)},
		ContentHash: b.contentHash(), LockfileHash: b.in.LockfileHash, WorkflowName: w.Name,
		BuildSourceNeeded: need.SourceNeeded, BuildDepsNeeded: need.DepsNeeded, ResolvedHashFiles: w.ResolvedHashFiles,
		CacheOrgID: b.in.Org, CacheRepoID: b.in.Source.Repo, CacheRefScope: b.in.cacheScope(),
	})
	if err != nil {
		return Job{}, fmt.Errorf("marshal configuration of the build job: %w", err)
	}
	name := b.unique(ci.BuildJobName(w.Name))
	return Job{
		ID: JobID(b.in.RunID, name), Kind: ci.KindBuild, Name: name, BaseName: name, Pick: pick(lockfile.Job{}),
		Selector: b.helperSelector(roleBuilder), Config: config, TimeoutMs: buildTimeoutMs, Root: true,
	}, nil
}

// Known is what a run has already when jobs join it.
type Known struct {
	Bases  map[string][]string // base name → names of its jobs
	Groups map[string][]string // group → its jobs, or the generators that have not made them yet
	Edges  []Edge
}

func (k Known) count() (n int) {
	for _, names := range k.Bases {
		n += len(names)
	}
	return n
}

// Expansion is what a job of a run gives.
type Expansion struct {
	Jobs  []Job // in the order of dispatch; one that keeps the id of its place takes its row
	Edges []Edge
	// Failed are jobs that the run had already and that can no longer run, by name.
	Failed map[string]ci.InitFailure
}

// joining is a builder for jobs that join a run.
func joining(in Input, known Known) *builder {
	if in.MaxJobs == 0 {
		in.MaxJobs = ci.MaxJobsPerRun
	}
	b := newBuilder(in)
	b.count = known.count()
	for base, names := range known.Bases {
		b.expansion[base] = names
		for _, name := range names {
			b.taken[name] = 1
		}
	}
	for name, members := range known.Groups {
		b.expansion[group(name)] = members
	}
	return b
}

// initResult is what an init job gives. An absent part was not asked for.
type initResult struct {
	EnvironmentNames []string         `json:"environmentNames"`
	Env              *lockfile.Pairs  `json:"env"`
	ConcurrencyGroup *string          `json:"concurrencyGroup"`
	MatrixValues     []lockfile.Pairs `json:"matrixValues"`
}

// Resolve completes the place of a job with what its init job gave. Without a matrix the one job has the id of its place.
// The needs of the place are not among the edges: they are the same, and so are those of whoever needs it; only the jobs
// that start agents for its children are. A failure is of the job, for people; the error is a defect.
func Resolve(in Input, known Known, base string, raw json.RawMessage) (Expansion, *ci.InitFailure, error) {
	fail := func(category, message string) (Expansion, *ci.InitFailure, error) {
		return Expansion{}, &ci.InitFailure{Scope: ci.ScopeJob, Category: category, Message: ci.CutText(message), JobName: ci.CutName(base)}, nil
	}
	var result initResult
	if err := json.Unmarshal(raw, &result); err != nil {
		return fail(ci.InitDynamicEval, fmt.Sprintf("the agent's result for job '%s' cannot be read: %v", base, err))
	}
	b := joining(in, known)
	i := indexOf(b.in.Workflow, base)
	if i < 0 {
		return Expansion{}, nil, fmt.Errorf("resolve job %s: no such job in workflow %s", base, in.Workflow.Name)
	}
	j := b.in.Workflow.Jobs[i]
	ready, open, refused := b.prepare(j)
	if refused != nil {
		return fail(refused.category, refused.message)
	}
	if err := ready.complete(j, open, result); err != nil {
		return fail(categoryOf(err), err.Error())
	}
	if n := b.count - 1 + b.arriving(ready.children); n > b.in.MaxJobs {
		return fail(ci.InitMatrixExpansion, fmt.Sprintf("workflow '%s' expands to %d jobs (max %d)", in.Workflow.Name, n, b.in.MaxJobs))
	}
	if err := b.materialise(j, ready); err != nil {
		return Expansion{}, nil, err
	}
	return Expansion{Jobs: b.jobs, Edges: b.bringUps}, nil, nil
}

func categoryOf(err error) string {
	var fanout *FanoutError
	if errors.As(err, &fanout) {
		return ci.InitMatrixExpansion
	}
	return ci.InitDynamicEval
}

func indexOf(w lockfile.Workflow, base string) int {
	for i, j := range w.Jobs {
		if j.Kind() == lockfile.KindStatic && j.Name == base {
			return i
		}
	}
	return -1
}

// complete puts the agent's values in the place of what was open.
func (p *prepared) complete(j lockfile.Job, open unresolved, r initResult) (err error) {
	if open.contexts {
		if len(r.EnvironmentNames) == 0 {
			return fmt.Errorf("the agent named no context for job '%s'", j.Name)
		}
		p.proto.Contexts, p.proto.ContextDisplay = r.EnvironmentNames, r.EnvironmentNames
	}
	if open.env {
		if r.Env == nil {
			return fmt.Errorf("the agent gave no env for job '%s'", j.Name)
		}
		p.env = *r.Env
	}
	if open.group && r.ConcurrencyGroup != nil {
		p.proto.Concurrency = *r.ConcurrencyGroup
	}
	if open.matrix {
		p.children, err = FanOutResolved(j.Name, r.MatrixValues)
	}
	return err
}
