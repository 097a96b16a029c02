package label

import (
	"fmt"
	"strings"

	"kici/internal/core/glob"
	"kici/internal/kit/regex"
)

// Hosts chooses hosts for a fan-out: some group of Include has all its matchers satisfied, and no matcher of Exclude is.
// Without a group it chooses none.
func Hosts(include [][]Matcher, exclude []Matcher, labels []string) (bool, error) {
	for _, group := range include {
		fits, err := Target{Include: group, Exclude: exclude}.Matches(labels)
		if fits || err != nil {
			return fits, err
		}
	}
	return false, nil
}

// Target narrows a fan-out at run time: all of Include are satisfied and none of Exclude is.
type Target struct {
	Include []Matcher `json:"include"`
	Exclude []Matcher `json:"exclude"`
}

// Matches tells whether a host with these labels belongs to the target. The error is an expression that cannot be
// evaluated.
func (t Target) Matches(labels []string) (bool, error) {
	for _, m := range t.Include {
		if _, ok, err := m.SatisfiedBy(labels); !ok || err != nil {
			return false, err
		}
	}
	for _, m := range t.Exclude {
		if _, ok, err := m.SatisfiedBy(labels); ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// HostPattern is how people name hosts to an admin command: everything (“ or `**`), /expression/flags, a glob, or the
// exact agent id, host name or label.
type HostPattern struct {
	text string
	re   *regex.Regexp
	glob *glob.Pattern
}

// ParseHostPattern reads a pattern. A single slash, or one that is never closed, is exact text.
func ParseHostPattern(text string) (p HostPattern, err error) {
	p.text = text
	if source, flags, ok := splitExpression(text); ok {
		if p.re, err = regex.Compile(source, flags); err != nil {
			return p, fmt.Errorf("host pattern: %w", err)
		}
		return p, nil
	}
	if p.matchesAll() || !isGlob(text) {
		return p, nil
	}
	if p.glob, err = glob.Compile(text); err != nil {
		return p, fmt.Errorf("host pattern: %w", err)
	}
	return p, nil
}

func splitExpression(text string) (source, flags string, ok bool) {
	end := strings.LastIndexByte(text, '/')
	if end <= 0 || text[0] != '/' {
		return "", "", false
	}
	return text[1:end], text[end+1:], true
}

func (p HostPattern) matchesAll() bool { return p.text == "" || p.text == "**" }

// Matches tells whether the pattern names the host by its agent id, its name or one of its labels.
func (p HostPattern) Matches(agentID, host string, labels []string) (bool, error) {
	if p.matchesAll() {
		return true, nil
	}
	for _, s := range append([]string{agentID, host}, labels...) {
		if hit, err := p.hits(s); hit || err != nil {
			return hit, err
		}
	}
	return false, nil
}

func (p HostPattern) hits(s string) (bool, error) {
	switch {
	case p.re != nil:
		return p.re.Match(s)
	case p.glob != nil:
		return p.glob.Match(s), nil
	}
	return s == p.text, nil
}

// Specificity orders patterns: 0 names every host, 1 is a glob or expression, 2 is exact. The more specific one wins.
func (p HostPattern) Specificity() int {
	switch {
	case p.matchesAll():
		return 0
	case p.re != nil || p.glob != nil:
		return 1
	}
	return 2
}
