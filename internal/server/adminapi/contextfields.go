package adminapi

import (
	"errors"
	"fmt"
	"net/http"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	decide "kici/internal/decide/contexts"
	"kici/internal/server/contexts"
)

// policyFields are the members of a body that change the rules of a context.
var policyFields = []string{"enabled", "branchRestrictions", "triggerTypeFilters", "repoPatterns", "concurrencyLimit",
	"concurrencyStrategy", "concurrencyTimeoutMs", "requiredReviewers", "waitTimerSeconds", "holdExpirySeconds", "minimumTrust",
	"allowLocalExecution"}

func (m members) anyPolicy() bool {
	for _, name := range policyFields {
		if _, given := m[name]; given {
			return true
		}
	}
	return false
}

// apply puts the members of a body into a context. What is absent changes nothing, null clears.
func (m members) apply(c *decide.Context, _ bool) error {
	f := fields{members: m}
	set(&f, "type", &c.Type, decide.Fixed)
	set(&f, "globPattern", &c.GlobPattern, "")
	return f.policy(c)
}

// templateType is what a template may be called; it is stored as a fixed context.
const templateType decide.Type = "template"

// applyTemplate is apply for a template, which is a fixed context unless it says glob, and leaves a type that is there.
func (m members) applyTemplate(c *decide.Context, isNew bool) error {
	f := fields{members: m}
	kind := c.Type
	set(&f, "type", &kind, decide.Fixed)
	if kind != decide.Fixed && kind != decide.Glob && kind != templateType {
		f.problems = append(f.problems, problem("type", "invalid_enum_value", "must be template, fixed or glob"))
	}
	if isNew && kind == decide.Glob {
		c.Type = decide.Glob
	}
	set(&f, "globPattern", &c.GlobPattern, c.GlobPattern)
	return f.policy(c)
}

// applyPolicy is apply without what a context is.
func (m members) applyPolicy(c *decide.Context, _ bool) error {
	f := fields{members: m}
	return f.policy(c)
}

func (f *fields) policy(c *decide.Context) error {
	set(f, "enabled", &c.Enabled, true)
	set(f, "branchRestrictions", &c.BranchRestrictions, nil)
	set(f, "triggerTypeFilters", &c.TriggerTypeFilters, nil)
	set(f, "repoPatterns", &c.RepoPatterns, nil)
	set(f, "concurrencyLimit", &c.ConcurrencyLimit, nil)
	set(f, "concurrencyStrategy", &c.ConcurrencyStrategy, decide.Queue)
	set(f, "concurrencyTimeoutMs", &c.ConcurrencyTimeoutMs, decide.DefaultConcurrencyTimeoutMs)
	if _, given := f.members["requiredReviewers"]; given {
		c.ReviewersUnreadable = false
	}
	set(f, "requiredReviewers", &c.RequiredReviewers, nil)
	set(f, "waitTimerSeconds", &c.WaitTimerSeconds, nil)
	set(f, "holdExpirySeconds", &c.HoldExpirySeconds, decide.DefaultHoldExpirySeconds)
	set(f, "minimumTrust", &c.MinimumTrust, ci.Tier(""))
	set(f, "allowLocalExecution", &c.AllowLocalExecution, false)
	if len(f.problems) > 0 {
		return invalid(f.problems...)
	}
	return nil
}

// unknownContext words the errors of contexts for callers.
func (a *API) unknownContext(org, name string, err error) error {
	held, isHeld := errors.AsType[*contexts.HeldError](err)
	switch {
	case isHeld:
		return &refusal{http.StatusConflict, adminwire.Error{Error: held.Error(), ErrorCode: "pending_held_runs"}}
	case errors.Is(err, contexts.ErrNotFound):
		return gone(fmt.Sprintf("context not found (org=%s, name=%s)", org, name))
	}
	return err
}

// contextRow is a context in the API's form.
func contextRow(c contexts.Context) adminwire.Context {
	return adminwire.Context{ID: c.ID, OrgID: c.OrgID, Name: c.Name, Type: string(c.Type), GlobPattern: orNull(c.GlobPattern), Enabled: c.Enabled,
		BranchRestrictions: append([]string{}, c.BranchRestrictions...), TriggerTypeFilters: append([]string{}, c.TriggerTypeFilters...),
		RepoPatterns: append([]string{}, c.RepoPatterns...), ConcurrencyLimit: c.ConcurrencyLimit,
		ConcurrencyStrategy: string(c.ConcurrencyStrategy), ConcurrencyTimeoutMs: c.ConcurrencyTimeoutMs,
		RequiredReviewers: append([]string{}, c.RequiredReviewers...), WaitTimerSeconds: c.WaitTimerSeconds,
		HoldExpirySeconds: c.HoldExpirySeconds, MinimumTrust: orNull(string(c.MinimumTrust)), AllowLocalExecution: c.AllowLocalExecution,
		CreatedAt: adminwire.At(c.CreatedAt), UpdatedAt: adminwire.At(c.UpdatedAt), CreatedBy: c.CreatedBy}
}
