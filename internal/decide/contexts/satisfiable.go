package contexts

import (
	"fmt"
	"slices"
	"strings"
)

// Rule is a rule of contexts that a job can be found to break before anything has started it.
type Rule string

// The rules, in the order in which they are looked at.
const (
	RuleExistence Rule = "existence"
	RuleEnabled   Rule = "enabled"
	RuleBranch    Rule = "branch"
	RuleTrigger   Rule = "trigger"
	RuleRepo      Rule = "repo"
)

// UnsatisfiableError says that a job can never run with the contexts that it binds.
type UnsatisfiableError struct {
	Rule Rule
	Text string // what is wrong, for people
}

func (e *UnsatisfiableError) Error() string { return "unsatisfiable environment binding: " + e.Text }

// CheckBindings looks for a proof that a job can never run with its contexts: one is missing or disabled, or each admits
// something else. Names that only a run can tell are left out by the caller. The error is a *UnsatisfiableError. Where a
// list holds a pattern nothing is proved; the gates decide when the job runs.
func CheckBindings(job string, bound []Bound) error {
	for _, b := range bound {
		if b.Context == nil {
			return &UnsatisfiableError{RuleExistence, fmt.Sprintf("job '%s' binds environment '%s' which does not exist", job, b.Name)}
		}
	}
	for _, b := range bound {
		if !b.Context.Enabled {
			return &UnsatisfiableError{RuleEnabled, fmt.Sprintf("job '%s' binds disabled environment '%s'", job, b.Name)}
		}
	}
	lists := []struct {
		rule Rule
		what string
		of   func(*Context) []string
	}{
		{RuleBranch, "branch restrictions", func(c *Context) []string { return c.BranchRestrictions }},
		{RuleTrigger, "trigger type filters", func(c *Context) []string { return c.TriggerTypeFilters }},
		{RuleRepo, "repository patterns", func(c *Context) []string { return c.RepoPatterns }},
	}
	for _, l := range lists {
		if by := exclusive(bound, l.of); len(by) > 0 {
			return &UnsatisfiableError{l.rule, fmt.Sprintf("job '%s' binds environments [%s] with mutually exclusive %s (no value satisfies all bound environments)",
				job, strings.Join(by, ", "), l.what)}
		}
	}
	return nil
}

// exclusive names the contexts whose lists have no text in common, none when they have or when it cannot be told. A list
// that is empty admits everything.
func exclusive(bound []Bound, list func(*Context) []string) (by []string) {
	var common []string
	for _, b := range bound {
		texts := list(b.Context)
		if len(texts) == 0 {
			continue
		}
		if slices.ContainsFunc(texts, func(text string) bool { return strings.ContainsAny(text, wildcards) }) {
			return nil
		}
		if by = append(by, b.Name); len(by) == 1 {
			common = slices.Clone(texts)
			continue
		}
		common = slices.DeleteFunc(common, func(text string) bool { return !slices.Contains(texts, text) })
	}
	if len(common) > 0 {
		return nil
	}
	return by
}
