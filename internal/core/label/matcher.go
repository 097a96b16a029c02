// Package label decides which agents a job may run on: label sets, matchers, selectors with their gates and pins, and the
// labels that agents carry by themselves.
package label

import (
	"encoding/json"
	"fmt"
	"slices"

	"kici/internal/kit/regex"
)

// The kinds of a Matcher.
const (
	Exact = "exact" // a label equals Value, case-sensitively
	Regex = "regex" // the JavaScript expression Source with Flags finds something in a label
)

// Matcher is one demand on a set of labels, as the lock file writes it.
type Matcher struct {
	Kind   string // Exact or Regex
	Value  string // Exact only
	Source string // Regex only
	Flags  string // Regex only; may be empty
}

// MarshalJSON writes the members of the matcher's kind, in the order of the lock file.
func (m Matcher) MarshalJSON() ([]byte, error) {
	if m.Kind == Exact {
		return json.Marshal(struct {
			Kind  string `json:"kind"`
			Value string `json:"value"`
		}{m.Kind, m.Value})
	}
	return json.Marshal(struct {
		Kind   string `json:"kind"`
		Source string `json:"source"`
		Flags  string `json:"flags"`
	}{m.Kind, m.Source, m.Flags})
}

// UnmarshalJSON reads a matcher; anything but the two shapes is an error that says `invalid label matcher`. Further
// members are ignored.
func (m *Matcher) UnmarshalJSON(raw []byte) error {
	var v struct{ Kind, Value, Source, Flags *string }
	if err := json.Unmarshal(raw, &v); err != nil || v.Kind == nil {
		return invalidMatcher(raw)
	}
	switch {
	case *v.Kind == Exact && v.Value != nil:
		*m = Matcher{Kind: Exact, Value: *v.Value}
	case *v.Kind == Regex && v.Source != nil && v.Flags != nil:
		*m = Matcher{Kind: Regex, Source: *v.Source, Flags: *v.Flags}
	default:
		return invalidMatcher(raw)
	}
	return nil
}

// MatcherShapes describes, for error messages, what a matcher looks like.
const MatcherShapes = `{"kind":"exact","value":"…"} or {"kind":"regex","source":"…","flags":"…"}`

func invalidMatcher(raw []byte) error {
	return fmt.Errorf("invalid label matcher %s — expected %s", raw, MatcherShapes)
}

// String is the matcher as people write it: the label, or /source/flags.
func (m Matcher) String() string {
	if m.Kind == Exact {
		return m.Value
	}
	return "/" + m.Source + "/" + m.Flags
}

// SatisfiedBy tells whether some label meets the demand, and which is the first that does. The error is an expression
// that does not compile or that ran out of time; it says nothing about the labels.
func (m Matcher) SatisfiedBy(labels []string) (by string, ok bool, err error) {
	if m.Kind == Exact {
		return m.Value, slices.Contains(labels, m.Value), nil
	}
	re, err := regex.Compile(m.Source, m.Flags) // which keeps, in a bounded cache, what it compiled before
	if err != nil {
		return "", false, fmt.Errorf("match label: %w", err)
	}
	for _, l := range labels {
		found, err := re.Match(l)
		if err != nil {
			return "", false, fmt.Errorf("match label %q against %s: %w", l, m, err)
		}
		if found {
			return l, true, nil
		}
	}
	return "", false, nil
}

// Partition splits a list of matchers into exact texts and expressions. Anything that is neither is an error that says
// `invalid label matcher`: dropped silently, it would widen the demand.
func Partition(matchers []Matcher) (exact []string, patterns []Matcher, err error) {
	for _, m := range matchers {
		switch m.Kind {
		case Exact:
			exact = append(exact, m.Value)
		case Regex:
			patterns = append(patterns, m)
		default:
			return nil, nil, fmt.Errorf("invalid label matcher of kind %q — expected %s", m.Kind, MatcherShapes)
		}
	}
	return exact, patterns, nil
}
