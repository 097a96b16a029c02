package lockfile

import (
	"encoding/json"

	"kici/internal/core/label"
)

// Kind tells the variants of an entry of Workflow.Jobs apart.
type Kind string

// The variants. An entry of any other type is kept in its place, since generators are named by position, and skipped.
const (
	KindStatic  Kind = "static"
	KindDynamic Kind = "dynamic"
	KindUnknown Kind = "unknown"
)

// Job is one entry of a workflow's jobs: a static job, or a generator of jobs (KindDynamic), which has only Type,
// Generator, Group, Needs and ResultAware.
type Job struct {
	Type                    string
	Name                    string // unique in the workflow
	RunsOn                  []label.Matcher
	ExcludeLabels           []label.Matcher
	RunsOnPick              string // "deterministic", "any" or "" (deterministic)
	RunsOnAll               *HostSelector
	OnUnreachable           string // "skip", "fail", "hold" or "" (hold); host fan-out only
	IncludeUninitialized    bool
	MaxParallel             int   // 0: no bound
	FailFast                *bool // absent: false; acts only together with MaxParallel
	Needs                   []NeedsEntry
	DependsOnGroups         []string
	Steps                   []Step
	Matrix                  *Matrix
	Include                 []Pairs
	Exclude                 []Pairs
	Rules                   []Rule
	Description             string
	Checkout                *bool // absent: true
	Cache                   []CacheSpec
	Container               *Container
	Environments            []ContextRef // bound contexts in merge order
	Env                     *Env
	DynamicEnv              bool // env was written as a function
	ConcurrencyGroup        *Text
	DynamicConcurrencyGroup bool // the group was written as a function
	Hooks                   Hooks
	GracePeriodSeconds      float64 // 0: the default
	TimeoutMs               int64   // 0: none
	Resources               json.RawMessage
	Init                    json.RawMessage // opaque to the server
	Approval                *Approval

	Generator   *GeneratorSource // KindDynamic only
	Group       string           // KindDynamic only: the group that the generated jobs belong to
	ResultAware bool             // KindDynamic only
}

// Kind is the variant of the entry.
func (j Job) Kind() Kind {
	switch Kind(j.Type) {
	case KindStatic, KindDynamic:
		return Kind(j.Type)
	}
	return KindUnknown
}

// Hooks says which hooks the author wrote. Informational: the agent takes them from the source.
type Hooks struct {
	OnCancel, Cleanup, OnSuccess, OnFailure, BeforeStep, AfterStep bool
}

// HostSelector chooses hosts for a fan-out: some include group has all its matchers satisfied, and no exclude matcher is.
// Without an include group it selects no host.
type HostSelector struct {
	Include [][]label.Matcher `json:"include"`
	Exclude []label.Matcher   `json:"exclude"`
}

// GeneratorSource is the place of a generator: its file and its position in the workflow's jobs.
type GeneratorSource struct {
	File  string `json:"file"`
	Index int    `json:"index"`
}

// NeedsEntry is one dependency: on the job Name or on the group Group.
type NeedsEntry struct {
	Name  string
	Group string
	RunOn []string // nil: success only
	Bare  bool     // written as a plain text
}

// Statuses are the terminal statuses of the upstream job that let the dependant run.
func (n NeedsEntry) Statuses() []string {
	if len(n.RunOn) == 0 {
		return []string{"success"}
	}
	return n.RunOn
}

// MarshalJSON writes the entry in the form in which it was read.
func (n NeedsEntry) MarshalJSON() ([]byte, error) {
	if n.Bare {
		return json.Marshal(n.Name)
	}
	return json.Marshal(struct {
		Name  string   `json:"name,omitempty"`
		Group string   `json:"group,omitempty"`
		RunOn []string `json:"runOn,omitempty"`
	}{n.Name, n.Group, n.RunOn})
}

// Matrix multiplies a job. A static one has a List or Dimensions; a dynamic one has a Source, evaluated at an agent.
type Matrix struct {
	Type       string // "static" or "dynamic"
	HasValues  bool   // values was written, perhaps empty
	List       []string
	Dimensions []Dimension // in written order, array-index-like names first
	Source     *MatrixSource
}

// Dimension is one named list of a matrix.
type Dimension struct {
	Name   string
	Values []string
}

// MatrixSource is the place of a matrix function.
type MatrixSource struct {
	File    string `json:"file"`
	JobName string `json:"jobName"`
}

// CacheSpec is a declarative cache entry, executed by the agent.
type CacheSpec struct {
	Key         string   `json:"key"`
	Paths       []string `json:"paths"`
	RestoreKeys []string `json:"restoreKeys,omitempty"`
}

// Container is the image in which the agent runs the steps. Bare says that only the image was written, as a text.
type Container struct {
	Image string
	Env   Pairs
	Bare  bool
}

// MarshalJSON writes the container in the form in which it was read.
func (c Container) MarshalJSON() ([]byte, error) {
	if c.Bare {
		return json.Marshal(c.Image)
	}
	return json.Marshal(struct {
		Image string `json:"image"`
		Env   Pairs  `json:"env,omitempty"`
	}{c.Image, c.Env})
}

// ContextRef binds one context. Dynamic with a constant value means that only an agent can evaluate it.
type ContextRef struct {
	Value   Text `json:"value"`
	Dynamic bool `json:"dynamic"`
}

// Env is the job's extra variables: constants, or an inline expression.
type Env struct {
	Values Pairs
	Inline *Inline
}

// MarshalJSON writes a map or the tagged object.
func (e Env) MarshalJSON() ([]byte, error) {
	if e.Inline != nil {
		return json.Marshal(e.Inline)
	}
	return json.Marshal(e.Values)
}
