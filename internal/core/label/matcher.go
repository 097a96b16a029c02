// Package label decides which agents a job may run on: label sets, matchers, selectors with their gates and pins, and the
// labels that agents carry by themselves.
package label

import (
	"encoding/json"
	"fmt"
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
