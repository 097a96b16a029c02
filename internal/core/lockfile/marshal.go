package lockfile

import (
	"encoding/json"
	"fmt"

	"kici/internal/core/label"
	"kici/internal/kit/jsontree"
)

// Marshal writes the document as the compiler does: fixed key order, two spaces, no newline at the end, members without
// a value left out.
func Marshal(f *File) ([]byte, error) {
	raw, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("marshal lock file: %w", err)
	}
	n, err := jsontree.Parse(string(raw))
	if err != nil {
		return nil, fmt.Errorf("marshal lock file: %w", err)
	}
	return n.Append(nil, "  "), nil
}

// MarshalJSON writes a static job or a generator, each with its own members. An entry of unknown kind keeps its type only.
func (j Job) MarshalJSON() ([]byte, error) {
	if j.Kind() != KindStatic {
		return json.Marshal(struct {
			Type        string           `json:"_type"`
			Source      *GeneratorSource `json:"source,omitempty"`
			Group       string           `json:"group,omitempty"`
			Needs       []NeedsEntry     `json:"needs,omitempty"`
			ResultAware bool             `json:"resultAware,omitempty"`
		}{j.Type, j.Generator, j.Group, j.Needs, j.ResultAware})
	}
	out := staticJSON{
		Type: j.Type, Name: j.Name, ExcludeLabels: j.ExcludeLabels, RunsOnPick: j.RunsOnPick, RunsOnAll: j.RunsOnAll,
		OnUnreachable: j.OnUnreachable, IncludeUninitialized: j.IncludeUninitialized, MaxParallel: j.MaxParallel,
		FailFast: j.FailFast, Needs: orEmpty(j.Needs), DependsOnGroups: j.DependsOnGroups, Steps: orEmpty(j.Steps),
		Matrix: j.Matrix, Include: j.Include, Exclude: j.Exclude, Rules: j.Rules, Description: j.Description,
		Checkout: j.Checkout, Cache: j.Cache, Container: j.Container, Environments: j.Environments,
		DynamicEnv: j.DynamicEnv, Env: j.Env, DynamicConcurrencyGroup: j.DynamicConcurrencyGroup,
		ConcurrencyGroup: j.ConcurrencyGroup, HasOnCancel: j.Hooks.OnCancel, HasCleanup: j.Hooks.Cleanup,
		HasOnSuccess: j.Hooks.OnSuccess, HasOnFailure: j.Hooks.OnFailure, HasBeforeStep: j.Hooks.BeforeStep,
		HasAfterStep: j.Hooks.AfterStep, GracePeriodSeconds: j.GracePeriodSeconds, TimeoutMs: j.TimeoutMs,
		Resources: j.Resources, Init: j.Init, Approval: j.Approval,
	}
	if j.RunsOnAll == nil {
		runsOn := orEmpty(j.RunsOn) // exactly one of the two is written, also when no label is asked for
		out.RunsOn = &runsOn
	}
	return json.Marshal(out)
}

// staticJSON has the members in the order in which compilers write them.
type staticJSON struct {
	Type                    string           `json:"_type"`
	Name                    string           `json:"name"`
	RunsOn                  *[]label.Matcher `json:"runsOn,omitempty"`
	ExcludeLabels           []label.Matcher  `json:"excludeLabels,omitempty"`
	RunsOnPick              string           `json:"runsOnPick,omitempty"`
	RunsOnAll               *HostSelector    `json:"runsOnAll,omitempty"`
	OnUnreachable           string           `json:"onUnreachable,omitempty"`
	IncludeUninitialized    bool             `json:"includeUninitialized,omitempty"`
	MaxParallel             int              `json:"maxParallel,omitempty"`
	FailFast                *bool            `json:"failFast,omitempty"`
	Needs                   []NeedsEntry     `json:"needs"`
	DependsOnGroups         []string         `json:"dependsOnGroups,omitempty"`
	Steps                   []Step           `json:"steps"`
	Matrix                  *Matrix          `json:"matrix,omitempty"`
	Include                 []Pairs          `json:"include,omitempty"`
	Exclude                 []Pairs          `json:"exclude,omitempty"`
	Rules                   []Rule           `json:"rules,omitempty"`
	Description             string           `json:"description,omitempty"`
	Checkout                *bool            `json:"checkout,omitempty"`
	Cache                   []CacheSpec      `json:"cache,omitempty"`
	Container               *Container       `json:"container,omitempty"`
	Environments            []ContextRef     `json:"environments,omitempty"`
	DynamicEnv              bool             `json:"dynamicEnv,omitempty"`
	Env                     *Env             `json:"env,omitempty"`
	DynamicConcurrencyGroup bool             `json:"dynamicConcurrencyGroup,omitempty"`
	ConcurrencyGroup        *Text            `json:"concurrencyGroup,omitempty"`
	HasOnCancel             bool             `json:"hasOnCancel,omitempty"`
	HasCleanup              bool             `json:"hasCleanup,omitempty"`
	HasOnSuccess            bool             `json:"hasOnSuccess,omitempty"`
	HasOnFailure            bool             `json:"hasOnFailure,omitempty"`
	HasBeforeStep           bool             `json:"hasBeforeStep,omitempty"`
	HasAfterStep            bool             `json:"hasAfterStep,omitempty"`
	GracePeriodSeconds      float64          `json:"gracePeriod,omitempty"`
	TimeoutMs               int64            `json:"timeout,omitempty"`
	Resources               json.RawMessage  `json:"resources,omitempty"`
	Init                    json.RawMessage  `json:"init,omitempty"`
	Approval                *Approval        `json:"approval,omitempty"`
}

// MarshalJSON writes a static matrix with its values, a dynamic one with its source.
func (m Matrix) MarshalJSON() ([]byte, error) {
	out := struct {
		Type   string        `json:"_type"`
		Values any           `json:"values,omitempty"`
		Source *MatrixSource `json:"source,omitempty"`
	}{Type: m.Type, Source: m.Source}
	switch {
	case len(m.Dimensions) > 0:
		out.Values = dimensions(m.Dimensions)
	case m.HasValues:
		out.Values = orEmpty(m.List)
	}
	return json.Marshal(out)
}

type dimensions []Dimension

func (d dimensions) MarshalJSON() ([]byte, error) {
	return marshalMembers(len(d), func(i int) (string, any) { return d[i].Name, orEmpty(d[i].Values) })
}

// optional values of the trigger table below are left out when empty; the other lists are written always.
type triggerMember struct {
	key      string
	optional bool
	value    func(*Trigger) (value any, empty bool)
}

func texts(key string, field func(*Trigger) []string) triggerMember {
	return triggerMember{key, false, func(t *Trigger) (any, bool) { v := field(t); return orEmpty(v), len(v) == 0 }}
}

func patterns(key string, field func(*Trigger) []BranchPattern) triggerMember {
	return triggerMember{key, false, func(t *Trigger) (any, bool) { v := field(t); return orEmpty(v), len(v) == 0 }}
}

func text(key string, field func(*Trigger) string) triggerMember {
	return triggerMember{key, false, func(t *Trigger) (any, bool) { v := field(t); return v, v == "" }}
}

func ordered(key string, field func(*Trigger) Ordered) triggerMember {
	return triggerMember{key, true, func(t *Trigger) (any, bool) { v := field(t); return v, len(v) == 0 }}
}

func (m triggerMember) maybe() triggerMember {
	m.optional = true
	return m
}

var (
	eventsMember   = texts("events", func(t *Trigger) []string { return t.Events })
	actionsMember  = texts("actions", func(t *Trigger) []string { return t.Actions })
	statesMember   = texts("states", func(t *Trigger) []string { return t.States })
	pathsMember    = texts("paths", func(t *Trigger) []string { return t.Paths })
	statusMember   = texts("status", func(t *Trigger) []string { return t.Status }).maybe()
	patternsMember = patterns("patterns", func(t *Trigger) []BranchPattern { return t.Patterns })
	reposMember    = patterns("repos", func(t *Trigger) []BranchPattern { return t.Repos }).maybe()
	sourceMember   = text("source", func(t *Trigger) string { return t.Source })
	matchMember    = ordered("match", func(t *Trigger) Ordered { return t.Match })
	notMember      = ordered("not", func(t *Trigger) Ordered { return t.Not })
	describeMember = text("description", func(t *Trigger) string { return t.Description }).maybe()
	inputsMember   = triggerMember{"inputs", true, func(t *Trigger) (any, bool) { return t.Inputs, len(t.Inputs) == 0 }}
	bodyMember     = triggerMember{"bodyMatch", true, func(t *Trigger) (any, bool) { return t.BodyMatch, t.BodyMatch == nil }}
	authMember     = triggerMember{"auth", true, func(t *Trigger) (any, bool) { return t.Auth, t.Auth == nil }}
	refsMembers    = []triggerMember{texts("refTypes", func(t *Trigger) []string { return t.RefTypes }), patternsMember, reposMember}
	actionMembers  = []triggerMember{actionsMember, reposMember}
)

// triggerMembers gives the members of each trigger type in the order in which compilers write them.
var triggerMembers = map[string][]triggerMember{
	"pr": {
		eventsMember,
		patterns("targetBranches", func(t *Trigger) []BranchPattern { return t.TargetBranches }),
		patterns("sourceBranches", func(t *Trigger) []BranchPattern { return t.SourceBranches }),
		pathsMember, reposMember,
	},
	"push":           {patterns("branches", func(t *Trigger) []BranchPattern { return t.Branches }), pathsMember, reposMember},
	"tag":            {patternsMember, reposMember},
	"comment":        {actionsMember, sourceMember.maybe(), bodyMember, reposMember},
	"review":         {actionsMember, statesMember, reposMember},
	"review_comment": actionMembers,
	"release":        actionMembers,
	"star":           actionMembers,
	"watch":          actionMembers,
	"dispatch":       {texts("types", func(t *Trigger) []string { return t.Types }), inputsMember, reposMember},
	"create":         refsMembers,
	"delete":         refsMembers,
	"status":         {texts("contexts", func(t *Trigger) []string { return t.Contexts }), statesMember, reposMember},
	"workflow_run": {
		actionsMember,
		texts("workflows", func(t *Trigger) []string { return t.Workflows }),
		texts("conclusions", func(t *Trigger) []string { return t.Conclusions }), reposMember,
	},
	"fork":              {reposMember},
	"webhook":           {eventsMember, actionsMember, reposMember},
	"kici_event":        {text("eventName", func(t *Trigger) string { return t.EventName }), matchMember, notMember, sourceMember.maybe()},
	"workflow_complete": {text("name", func(t *Trigger) string { return t.Name }).maybe(), statusMember, sourceMember.maybe()},
	"job_complete": {
		text("workflow", func(t *Trigger) string { return t.Workflow }).maybe(),
		text("job", func(t *Trigger) string { return t.Job }).maybe(), statusMember, sourceMember.maybe(),
	},
	"generic_webhook": {
		sourceMember, eventsMember.maybe(), matchMember, notMember,
		text("path", func(t *Trigger) string { return t.Path }).maybe(), authMember,
	},
	"schedule": {
		text("cronExpression", func(t *Trigger) string { return t.CronExpression }),
		text("timezone", func(t *Trigger) string { return t.Timezone }), describeMember, inputsMember,
	},
	"lifecycle": {eventsMember, texts("sources", func(t *Trigger) []string { return t.Sources }).maybe(), describeMember},
}

// MarshalJSON writes the members of the trigger's type; the zero Trigger is null.
func (t Trigger) MarshalJSON() ([]byte, error) {
	if t.Type == "" {
		return []byte("null"), nil
	}
	keys, values := []string{"_type"}, []any{t.Type}
	for _, m := range triggerMembers[t.Type] {
		if v, empty := m.value(&t); !empty || !m.optional {
			keys, values = append(keys, m.key), append(values, v)
		}
	}
	return marshalMembers(len(keys), func(i int) (string, any) { return keys[i], values[i] })
}

// MarshalJSON writes the map of declared inputs in order.
func (in Inputs) MarshalJSON() ([]byte, error) {
	return marshalMembers(len(in), func(i int) (string, any) { return in[i].Name, in[i].json() })
}

func (in Input) json() any {
	var pattern *string
	if in.HasPattern {
		pattern = &in.Pattern
	}
	return struct {
		Type        string          `json:"type"`
		Optional    bool            `json:"optional"`
		Nullable    bool            `json:"nullable"`
		Default     json.RawMessage `json:"default,omitempty"`
		Values      []string        `json:"values,omitempty"`
		Literal     json.RawMessage `json:"literal,omitempty"`
		Min         *float64        `json:"min,omitempty"`
		Max         *float64        `json:"max,omitempty"`
		Pattern     *string         `json:"pattern,omitempty"`
		Description string          `json:"description,omitempty"`
	}{in.Type, in.Optional, in.Nullable, in.Default, in.Values, in.Literal, in.Min, in.Max, pattern, in.Description}
}
