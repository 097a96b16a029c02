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
// Generator, Group, Needs and ResultAware. The fields of a static job stand in the order in which compilers write them.
type Job struct {
	Type                    string          `json:"_type"`
	Name                    string          `json:"name"` // unique in the workflow
	RunsOn                  []label.Matcher `json:"runsOn,omitzero"`
	ExcludeLabels           []label.Matcher `json:"excludeLabels,omitempty"`
	RunsOnPick              string          `json:"runsOnPick,omitempty"` // "deterministic", "any" or "" (deterministic)
	RunsOnAll               *HostSelector   `json:"runsOnAll,omitempty"`
	OnUnreachable           string          `json:"onUnreachable,omitempty"` // "skip", "fail", "hold" or "" (hold); host fan-out only
	IncludeUninitialized    bool            `json:"includeUninitialized,omitempty"`
	MaxParallel             int             `json:"maxParallel,omitempty"` // 0: no bound
	FailFast                *bool           `json:"failFast,omitempty"`    // absent: false; acts only together with MaxParallel
	Needs                   []NeedsEntry    `json:"needs"`
	DependsOnGroups         []string        `json:"dependsOnGroups,omitempty"`
	Steps                   []Step          `json:"steps"`
	Matrix                  *Matrix         `json:"matrix,omitempty"`
	Include                 []Pairs         `json:"include,omitempty"`
	Exclude                 []Pairs         `json:"exclude,omitempty"`
	Rules                   []Rule          `json:"rules,omitempty"`
	Description             string          `json:"description,omitempty"`
	Checkout                *bool           `json:"checkout,omitempty"` // absent: true
	Cache                   []CacheSpec     `json:"cache,omitempty"`
	Container               *Container      `json:"container,omitempty"`
	Environments            []ContextRef    `json:"environments,omitempty"` // bound contexts in merge order
	DynamicEnv              bool            `json:"dynamicEnv,omitempty"`   // env was written as a function
	Env                     *Env            `json:"env,omitempty"`
	DynamicConcurrencyGroup bool            `json:"dynamicConcurrencyGroup,omitempty"` // the group was written as a function
	ConcurrencyGroup        *Text           `json:"concurrencyGroup,omitempty"`
	HasOnCancel             bool            `json:"hasOnCancel,omitempty"` // this and the next five are informational
	HasCleanup              bool            `json:"hasCleanup,omitempty"`
	HasOnSuccess            bool            `json:"hasOnSuccess,omitempty"`
	HasOnFailure            bool            `json:"hasOnFailure,omitempty"`
	HasBeforeStep           bool            `json:"hasBeforeStep,omitempty"`
	HasAfterStep            bool            `json:"hasAfterStep,omitempty"`
	GracePeriodSeconds      float64         `json:"gracePeriod,omitempty"` // 0: the default
	TimeoutMs               int64           `json:"timeout,omitempty"`     // 0: none
	Resources               json.RawMessage `json:"resources,omitempty"`
	Init                    json.RawMessage `json:"init,omitempty"` // opaque to the server
	Approval                *Approval       `json:"approval,omitempty"`

	Generator   *GeneratorSource `json:"-"` // KindDynamic only
	Group       string           `json:"-"` // KindDynamic only: the group that the generated jobs belong to
	ResultAware bool             `json:"-"` // KindDynamic only
}

// generatorForm is a generator as the document writes it.
type generatorForm struct {
	Type        string           `json:"_type"`
	Source      *GeneratorSource `json:"source,omitempty"`
	Group       string           `json:"group,omitempty"`
	Needs       []NeedsEntry     `json:"needs,omitempty"`
	ResultAware bool             `json:"resultAware,omitempty"`
}

// MarshalJSON writes a static job or a generator, each with its own members. An entry of unknown kind keeps its type only.
func (j Job) MarshalJSON() ([]byte, error) {
	if j.Kind() != KindStatic {
		return json.Marshal(generatorForm{j.Type, j.Generator, j.Group, j.Needs, j.ResultAware})
	}
	type plain Job
	if j.RunsOn = orEmpty(j.RunsOn); j.RunsOnAll != nil {
		j.RunsOn = nil // exactly one of the two is written, also when no label is asked for
	}
	j.Needs, j.Steps = orEmpty(j.Needs), orEmpty(j.Steps)
	return json.Marshal(plain(j))
}

// Kind is the variant of the entry.
func (j Job) Kind() Kind {
	switch Kind(j.Type) {
	case KindStatic, KindDynamic:
		return Kind(j.Type)
	}
	return KindUnknown
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
	Name  string   `json:"name,omitempty"`
	Group string   `json:"group,omitempty"`
	RunOn []string `json:"runOn,omitempty"` // nil: success only
	Bare  bool     `json:"-"`               // written as a plain text
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
	type plain NeedsEntry
	return json.Marshal(plain(n))
}

// Matrix multiplies a job. A static one has a List or Dimensions; a dynamic one has a Source, evaluated at an agent.
type Matrix struct {
	Type       string        `json:"_type"` // "static" or "dynamic"
	HasValues  bool          `json:"-"`     // values was written, perhaps empty
	List       []string      `json:"-"`
	Dimensions []Dimension   `json:"-"` // in written order, array-index-like names first
	Source     *MatrixSource `json:"source,omitempty"`
}

// MarshalJSON writes a static matrix with its values, a dynamic one with its source.
func (x Matrix) MarshalJSON() ([]byte, error) {
	out := struct {
		Type   string        `json:"_type"`
		Values any           `json:"values,omitempty"`
		Source *MatrixSource `json:"source,omitempty"`
	}{Type: x.Type, Source: x.Source}
	switch {
	case len(x.Dimensions) > 0:
		out.Values = dimensions(x.Dimensions)
	case x.HasValues:
		out.Values = orEmpty(x.List)
	}
	return json.Marshal(out)
}

// Dimension is one named list of a matrix.
type Dimension struct {
	Name   string
	Values []string
}

type dimensions []Dimension

func (d dimensions) MarshalJSON() ([]byte, error) {
	return marshalMembers(len(d), func(i int) (string, any) { return d[i].Name, orEmpty(d[i].Values) })
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
	Image string `json:"image"`
	Env   Pairs  `json:"env,omitempty"`
	Bare  bool   `json:"-"`
}

// MarshalJSON writes the container in the form in which it was read.
func (c Container) MarshalJSON() ([]byte, error) {
	if c.Bare {
		return json.Marshal(c.Image)
	}
	type plain Container
	return json.Marshal(plain(c))
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
