// Package trigger decides whether an event starts a workflow, and says why.
package trigger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
	"kici/internal/core/lockfile"
	"kici/internal/kit/regex"
)

// Options carries what the payload must not be trusted for.
type Options struct {
	// Source names the configured source that took a generic delivery in. Nil makes the payload's own words count, which
	// its sender controls: only simulated events leave it out.
	Source *GenericSource
}

// GenericSource is the identity of a generic delivery as the ingress knows it.
type GenericSource struct {
	Name      string // of the configured source
	EventType string // "" leaves the event's action to be compared
}

// Decision says whether a workflow starts and keeps the trace of how that was found.
type Decision struct {
	Matched        bool    `json:"matched"`
	MatchedTrigger *int    `json:"matchedTrigger,omitempty"` // index in the workflow's triggers
	Checks         []Check `json:"checks"`                   // of the trigger that matched, or of all when none did
	Summary        string  `json:"summary"`
}

// Check is one comparison. A failed one ends its trigger.
type Check struct {
	Check   string  `json:"check"`           // what was compared, such as "branch"
	Pattern string  `json:"pattern"`         // the trigger's side; lists are joined with |
	Value   *string `json:"value,omitempty"` // the event's side; nil when the payload lacks it
	Passed  bool    `json:"passed"`
	Reason  string  `json:"reason,omitempty"`

	patterns []string // the members of Pattern, for Explain; a stored trace has lost them
}

// PatternError says that a workflow could not be matched, since one of its patterns means nothing or took too long. It
// concerns that workflow only.
type PatternError struct {
	Workflow string
	Pattern  string
	Err      error
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("match workflow %q: pattern %q: %v", e.Workflow, e.Pattern, e.Err)
}

// Unwrap gives the error of the pattern: glob.ErrEmpty, *regex.SyntaxError, regex.ErrTimeout, …
func (e *PatternError) Unwrap() error { return e.Err }

// Match decides about one workflow. See Matcher.Match.
func Match(w lockfile.Workflow, ev ci.Event, opts Options) (Decision, error) {
	return NewMatcher(ev, opts).Match(w)
}

// Matcher matches many workflows against one event: it reads the payload once and remembers which changed files a
// pattern covers. It serves one goroutine at a time.
type Matcher struct {
	event ci.Event
	opts  Options

	payload any // decoded on first use
	decoded bool

	files *files

	// What is left of the work that the event may make. Patterns are the repository's and names and payloads a stranger's;
	// once it is done, workflows that ask for more fail with an error.
	globs  glob.Budget
	visits int // of JSON paths
}

// What all workflows together may take for one event: some seconds at the very most, and far more than a large repository
// with thousands of changed files needs.
const (
	maxGlobSteps  = 1 << 30
	maxPathVisits = 10_000_000
	maxSearchTime = 5 * time.Second
)

// NewMatcher prepares the event.
func NewMatcher(ev ci.Event, opts Options) *Matcher {
	return &Matcher{
		event: ev, opts: opts, files: newFiles(ev.ChangedFiles),
		globs:  glob.Budget{Steps: maxGlobSteps, Searches: regex.NewAllowance(maxSearchTime)},
		visits: maxPathVisits,
	}
}

// Match takes the workflow's triggers in order; the first that matches decides. Its error is a *PatternError, an
// unreadable payload, or a workflow whose lock file entry has members of wrong types: what was read as absent there
// might have been the filter that keeps the workflow from starting.
func (m *Matcher) Match(w lockfile.Workflow) (Decision, error) {
	if len(w.Problems) > 0 {
		return Decision{}, fmt.Errorf("match workflow %q: %s", w.Name, strings.Join(w.Problems, "; "))
	}
	if len(w.Triggers) == 0 {
		return Decision{Checks: []Check{}, Summary: "No triggers defined"}, nil
	}
	all := []Check{}
	for i := range w.Triggers {
		t := &trace{matcher: m}
		matched := t.trigger(&w.Triggers[i])
		if t.err != nil {
			return Decision{}, t.failure(w.Name)
		}
		if matched {
			return Decision{
				Matched: true, MatchedTrigger: &i, Checks: t.checks,
				Summary: fmt.Sprintf("Matched trigger %d (%s)", i+1, w.Triggers[i].Type),
			}, nil
		}
		all = append(all, t.checks...)
	}
	return Decision{Checks: all, Summary: "No triggers matched"}, nil
}

// lookup gives the payload's value at the path of member names.
func (m *Matcher) lookup(path ...string) (any, bool, error) {
	if !m.decoded {
		if len(bytes.TrimSpace(m.event.Payload)) > 0 {
			if err := json.Unmarshal(m.event.Payload, &m.payload); err != nil {
				return nil, false, fmt.Errorf("read payload: %w", err)
			}
		}
		m.decoded = true
	}
	v := m.payload
	for _, name := range path {
		object, _ := v.(map[string]any)
		member, ok := object[name]
		if !ok {
			return nil, false, nil
		}
		v = member
	}
	return v, true, nil
}

// WantsChangedFiles tells whether matching these workflows needs the list of changed files, which costs a request to the
// forge: some push or pull request trigger has path filters.
func WantsChangedFiles(workflows []lockfile.Workflow) bool {
	for i := range workflows {
		for j := range workflows[i].Triggers {
			t := &workflows[i].Triggers[j]
			if (t.Type == "push" || t.Type == "pr") && len(t.Paths) > 0 {
				return true
			}
		}
	}
	return false
}
