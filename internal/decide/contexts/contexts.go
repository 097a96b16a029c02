// Package contexts decides whatever has to do with named contexts, the deployment targets that own variables, select
// secrets and guard jobs: which context a name means, which secrets and variables a job gets, what keeps it waiting and
// who may let it go. Everything here is a function of its arguments; time comes in as milliseconds, or goes out as a
// duration from now.
package contexts

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
)

// Type tells a context that is one name from one that is all names of a pattern.
type Type string

// The types of contexts.
const (
	Fixed Type = "fixed"
	Glob  Type = "glob"
)

// Strategy says what a job that finds no free slot does to those that wait already.
type Strategy string

// The strategies.
const (
	Queue         Strategy = "queue"          // all wait, oldest first
	CancelPending Strategy = "cancel-pending" // only the newest waits
)

// Defaults of a new context, and what stands in for a number that a stored one lacks.
const (
	DefaultHoldExpirySeconds    = 86_400
	FallbackHoldExpirySeconds   = 3_600
	DefaultConcurrencyTimeoutMs = 1_800_000
)

// Context is a context as decisions see it. The zero value of each rule demands nothing, but of Enabled.
type Context struct {
	ID                   string
	Name                 string
	Type                 Type
	GlobPattern          string // of names; Glob only
	Enabled              bool
	BranchRestrictions   []string // globs over the event's target branch; empty: any
	TriggerTypeFilters   []string // globs over the event type; empty: any
	RepoPatterns         []string // globs over the repository identifier; empty: any
	ConcurrencyLimit     *int64   // jobs at a time; nil: no limit, 0: none may run
	ConcurrencyStrategy  Strategy // "": Queue
	ConcurrencyTimeoutMs int64    // how long a job waits for a slot; 0: the default
	RequiredReviewers    []string // user ids, all of whom must approve
	ReviewersUnreadable  bool     // there is a list, but nobody can tell what it says: hold rather than ask nobody
	WaitTimerSeconds     *int64   // nil: none; 0 is a timer that is due at once
	HoldExpirySeconds    int64    // 0: FallbackHoldExpirySeconds
	MinimumTrust         ci.Tier  // "": any
	AllowLocalExecution  bool     // test runs may use it
}

// Bound is a name that a job binds, with the context that it means: nil when there is none. Lists of them are in the
// job's order.
type Bound struct {
	Name    string
	Context *Context
}

// Bind finds the context of each name of a job. Its error is that of Match.
func Bind(all []Context, names []string) ([]Bound, error) {
	bound := make([]Bound, len(names))
	for i, name := range names {
		c, err := Match(all, name)
		if err != nil {
			return nil, err
		}
		bound[i] = Bound{name, c}
	}
	return bound, nil
}

func names(bound []Bound) []string {
	all := make([]string, len(bound))
	for i, b := range bound {
		all[i] = b.Name
	}
	return all
}

// Match finds the context that a name means among those of an organisation, nil when there is none: the one that is
// called so, else of those whose pattern matches the one with the most literal characters, then the fewest wildcards,
// then the first by name. A disabled context matches as any other: it is for the gate to refuse it. The error is a
// pattern that cannot be decided: a context that is passed over might have guarded the job.
func Match(all []Context, name string) (*Context, error) {
	var best *Context
	for i := range all {
		c := &all[i]
		if c.Name == name {
			return c, nil
		}
		matches, err := c.covers(name)
		if err != nil {
			return nil, err
		}
		if matches && (best == nil || compareSpecificity(c, best) < 0) {
			best = c
		}
	}
	return best, nil
}

// covers tells whether the context's pattern matches the name. A pattern that was never written covers nothing.
func (c *Context) covers(name string) (bool, error) {
	if c.Type != Glob || c.GlobPattern == "" {
		return false, nil
	}
	matches, err := glob.Match(c.GlobPattern, name)
	if err != nil {
		return false, fmt.Errorf("match context %q: pattern %q: %w", c.Name, c.GlobPattern, err)
	}
	return matches, nil
}

// compareSpecificity is negative when a is to be taken before b.
func compareSpecificity(a, b *Context) int {
	literalA, wildA := countSigns(a.GlobPattern)
	literalB, wildB := countSigns(b.GlobPattern)
	return cmp.Or(cmp.Compare(literalB, literalA), cmp.Compare(wildA, wildB), cmp.Compare(a.Name, b.Name))
}

// wildcards are the signs that make a text a pattern.
const wildcards = `*?[]{}!()@+|`

// countSigns counts the literal characters and the wildcards of a pattern. A character behind a backslash is literal.
func countSigns(pattern string) (literal, wild int) {
	escaped := false
	for _, r := range pattern {
		switch {
		case escaped:
			literal++
			escaped = false
		case r == '\\':
			escaped = true
		case strings.ContainsRune(wildcards, r):
			wild++
		default:
			literal++
		}
	}
	return literal, wild
}

// localRefusal is what a test run hears when none of its contexts is for it.
const localRefusal = "all bound environments disallow test runs; running with no environment variables"

// ForTestRun keeps the contexts that test runs may use, and the names that mean none, which are refused later. The
// warning is set when contexts were bound and none is left.
func ForTestRun(bound []Bound) (kept []Bound, warning string) {
	kept = slices.DeleteFunc(slices.Clone(bound), func(b Bound) bool { return b.Context != nil && !b.Context.AllowLocalExecution })
	if len(bound) > 0 && len(kept) == 0 {
		warning = localRefusal
	}
	return kept, warning
}

// maxSeconds bounds waits, so that no sum of times overflows: some 68 years.
const maxSeconds = 1<<31 - 1

// Check tells what of a context that somebody wants to store is not allowed. Every message names the field.
func (c *Context) Check() error {
	return errors.Join(
		c.checkName(), c.checkEnums(),
		checkPatterns("branchRestrictions", c.BranchRestrictions), checkPatterns("triggerTypeFilters", c.TriggerTypeFilters),
		checkPatterns("repoPatterns", c.RepoPatterns), checkReviewers(c.RequiredReviewers),
		checkNumber("concurrencyLimit", c.ConcurrencyLimit, maxSeconds), checkNumber("waitTimerSeconds", c.WaitTimerSeconds, maxSeconds),
		checkNumber("holdExpirySeconds", &c.HoldExpirySeconds, maxSeconds),
		checkNumber("concurrencyTimeoutMs", &c.ConcurrencyTimeoutMs, 1000*maxSeconds),
	)
}

func (c *Context) checkName() error {
	switch {
	case c.Name == "":
		return errors.New("name must have at least one character")
	case c.Name == "." || c.Name == ".." || c.Name == "/":
		return errors.New("name must not be ., .. or /: paths of URLs cannot say them")
	case c.Name != ci.CutName(c.Name):
		return fmt.Errorf("name must be UTF-8 text of at most %d characters without NUL", ci.MaxName)
	case c.Type == Glob && c.GlobPattern == "":
		return errors.New("globPattern is required for type glob")
	case c.Type == Glob:
		return checkPatterns("globPattern", []string{c.GlobPattern})
	}
	return nil
}

func (c *Context) checkEnums() error {
	var errs []error
	if c.Type != Fixed && c.Type != Glob {
		errs = append(errs, fmt.Errorf("type must be fixed or glob, not %q", c.Type))
	}
	if c.ConcurrencyStrategy != "" && c.ConcurrencyStrategy != Queue && c.ConcurrencyStrategy != CancelPending {
		errs = append(errs, fmt.Errorf("concurrencyStrategy must be queue or cancel-pending, not %q", c.ConcurrencyStrategy))
	}
	if c.MinimumTrust != "" && c.MinimumTrust != ci.TierKnown && c.MinimumTrust != ci.TierTrusted {
		errs = append(errs, fmt.Errorf("minimumTrust must be known or trusted, not %q", c.MinimumTrust))
	}
	return errors.Join(errs...)
}
