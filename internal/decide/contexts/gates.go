package contexts

import (
	"fmt"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
)

// Dispatch is what the gates of a context look at: what started the run.
type Dispatch struct {
	Branch     string // the event's target branch, "" for none
	EventType  string
	Repository string
	Tier       ci.Tier // of the contributor; "": no statement, which passes
}

// Rejection says why a context refuses a job.
type Rejection struct {
	Context string // name, as the job binds it
	Code    string // one of the ci.Reason… of gates
	Detail  string // what was compared, as in: branch 'main' not allowed
}

func (r Rejection) String() string {
	return fmt.Sprintf("multi-environment gate: '%s' rejected (%s: %s)", r.Context, r.Code, r.Detail)
}

// Rejections asks every context of a job whether the job may ever run with it. Each that refuses gives its first reason; the
// list is in the order of the job's contexts.
func Rejections(bound []Bound, d Dispatch) []Rejection {
	var all []Rejection
	for _, b := range bound {
		if code, detail := b.refuses(d); code != "" {
			all = append(all, Rejection{b.Name, code, detail})
		}
	}
	return all
}

// refuses gives the first rule of a context that a job breaks, "" when it keeps them all.
func (b Bound) refuses(d Dispatch) (code, detail string) {
	switch {
	case b.Context == nil:
		return ci.ReasonContextNotFound, "no such context"
	case !b.Context.Enabled:
		return ci.ReasonContextDisabled, "the context is disabled"
	}
	rules := []struct {
		code, what, value string
		patterns          []string
	}{
		{ci.ReasonBranchRestricted, "branch", d.Branch, b.Context.BranchRestrictions},
		{ci.ReasonTriggerFiltered, "trigger type", d.EventType, b.Context.TriggerTypeFilters},
		{ci.ReasonRepoUnmatched, "repository", d.Repository, b.Context.RepoPatterns},
	}
	for _, r := range rules {
		if len(r.patterns) == 0 {
			continue
		}
		if admitted, trouble := admits(r.patterns, r.value); !admitted {
			return r.code, notAllowed(r.what, r.value, trouble)
		}
	}
	return "", ""
}

// admits tells whether a pattern matches the value. A pattern that cannot be decided admits nothing, and is trouble.
func admits(patterns []string, value string) (admitted bool, trouble error) {
	for _, p := range patterns {
		matches, err := glob.Match(p, value)
		if matches {
			return true, nil
		}
		if err != nil && trouble == nil {
			trouble = fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	return false, trouble
}

func notAllowed(what, value string, trouble error) string {
	detail := fmt.Sprintf("%s '%s' not allowed", what, value)
	if value == "" {
		detail = fmt.Sprintf("the run has no %s", what)
	}
	if trouble != nil {
		detail += fmt.Sprintf(" (%v)", trouble)
	}
	return detail
}

// messages joins rejections to one text.
func messages(rejections []Rejection) string {
	texts := make([]string, len(rejections))
	for i, r := range rejections {
		texts[i] = r.String()
	}
	return strings.Join(texts, "; ")
}
