// Package inputs makes typed values of the texts that a run is started with, as the trigger declares them.
package inputs

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"kici/internal/core/lockfile"
	"kici/internal/kit/ecma"
	"kici/internal/kit/jsontree"
	"kici/internal/kit/regex"
)

// Given is one input as given: text under a name.
type Given struct{ Key, Value string }

// Issue is what is wrong with one input.
type Issue struct {
	Key  string `json:"key"`
	Code string `json:"code"` // one of the Issue constants
	Text string `json:"text"` // for people
}

// The codes of issues.
const (
	IssueType         = "invalid_type"
	IssueTooSmall     = "too_small"
	IssueTooBig       = "too_big"
	IssueFormat       = "invalid_format"
	IssueValue        = "invalid_value"
	IssueUnrecognized = "unrecognized_keys"
	IssueMalformed    = "malformed"
)

// Error makes one error of the issues.
type Error struct{ Issues []Issue }

func (e *Error) Error() string {
	texts := make([]string, len(e.Issues))
	for i, issue := range e.Issues {
		texts[i] = issue.Key + ": " + issue.Text
	}
	return "Invalid dispatch inputs: " + strings.Join(texts, "; ")
}

// maxSafe is the greatest integer that JavaScript counts exactly to.
const maxSafe = 1<<53 - 1

// ParsePairs reads key=value texts, each split at its first =. Of several values for a key the last counts, in the place
// of the first. Nothing is trimmed.
func ParsePairs(texts []string) ([]Given, []Issue) {
	var pairs []Given
	var issues []Issue
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			issues = append(issues, Issue{text, IssueMalformed, "expected key=value"})
			continue
		}
		if i := slices.IndexFunc(pairs, func(p Given) bool { return p.Key == key }); i >= 0 {
			pairs[i].Value = value
		} else {
			pairs = append(pairs, Given{key, value})
		}
	}
	return pairs, issues
}

// Coerce makes values of the declared types from texts. Values come in the order of declaration and hold JSON; issues
// come in that order too, followed by those of names that nobody declared. With issues the values are nil.
func Coerce(descriptors lockfile.Inputs, raw []Given) (lockfile.Ordered, []Issue) {
	values := lockfile.Ordered{}
	var issues []Issue
	for i := range descriptors {
		d := &descriptors[i]
		at := slices.IndexFunc(raw, func(p Given) bool { return p.Key == d.Name })
		switch {
		case at >= 0:
			value, wrong := coerce(d, raw[at].Value)
			issues = append(issues, wrong...)
			values = append(values, lockfile.Member{Key: d.Name, Value: value})
		case d.Default != nil:
			values = append(values, lockfile.Member{Key: d.Name, Value: d.Default})
		case !d.Optional:
			issues = append(issues, Issue{d.Name, IssueType, "required"})
		}
	}
	for _, p := range raw {
		if !slices.ContainsFunc(descriptors, func(d lockfile.Input) bool { return d.Name == p.Key }) {
			issues = append(issues, Issue{p.Key, IssueUnrecognized, "no such input"})
		}
	}
	if len(issues) > 0 {
		return nil, issues
	}
	return values, nil
}

func coerce(d *lockfile.Input, text string) (json.RawMessage, []Issue) {
	switch d.Type {
	case "string":
		return json.RawMessage(jsontree.Quote(text)), checkText(d, text)
	case "number", "integer":
		return coerceNumber(d, text)
	case "boolean":
		return coerceBoolean(d, text)
	case "enum":
		if !slices.Contains(d.Values, text) {
			return nil, []Issue{{d.Name, IssueValue, "expected one of " + strings.Join(d.Values, ", ")}}
		}
	case "literal":
		var want string
		if json.Unmarshal(d.Literal, &want) != nil || text != want {
			return nil, []Issue{{d.Name, IssueValue, "expected " + string(d.Literal)}}
		}
	default:
		return nil, []Issue{{d.Name, IssueType, fmt.Sprintf("type %q is unknown", d.Type)}}
	}
	return json.RawMessage(jsontree.Quote(text)), nil
}

// checkText bounds the length in UTF-16 units and searches for the pattern.
func checkText(d *lockfile.Input, text string) (issues []Issue) {
	length := float64(ecma.Length(text))
	if d.Min != nil && length < *d.Min {
		issues = append(issues, Issue{d.Name, IssueTooSmall, "shorter than " + ecma.FormatNumber(*d.Min) + " characters"})
	}
	if d.Max != nil && length > *d.Max {
		issues = append(issues, Issue{d.Name, IssueTooBig, "longer than " + ecma.FormatNumber(*d.Max) + " characters"})
	}
	if d.Pattern == nil {
		return issues
	}
	// A pattern that cannot be tried refuses the value: it was declared to keep something out.
	if found, err := regex.Search(*d.Pattern, "", text); err != nil {
		issues = append(issues, Issue{d.Name, IssueFormat, err.Error()})
	} else if !found {
		issues = append(issues, Issue{d.Name, IssueFormat, "does not match /" + *d.Pattern + "/"})
	}
	return issues
}

func coerceNumber(d *lockfile.Input, text string) (json.RawMessage, []Issue) {
	n, ok := ecma.ParseNumber(text)
	switch {
	case !ok:
		return nil, []Issue{{d.Name, IssueType, "expected a number"}}
	case d.Type == "integer" && n != math.Trunc(n):
		return nil, []Issue{{d.Name, IssueType, "expected a whole number"}}
	case d.Type == "integer" && n > maxSafe:
		return nil, []Issue{{d.Name, IssueTooBig, "beyond " + strconv.Itoa(maxSafe)}}
	case d.Type == "integer" && n < -maxSafe:
		return nil, []Issue{{d.Name, IssueTooSmall, "beyond -" + strconv.Itoa(maxSafe)}}
	}
	var issues []Issue
	if d.Min != nil && n < *d.Min {
		issues = append(issues, Issue{d.Name, IssueTooSmall, "less than " + ecma.FormatNumber(*d.Min)})
	}
	if d.Max != nil && n > *d.Max {
		issues = append(issues, Issue{d.Name, IssueTooBig, "more than " + ecma.FormatNumber(*d.Max)})
	}
	return json.RawMessage(ecma.FormatNumber(n)), issues
}

func coerceBoolean(d *lockfile.Input, text string) (json.RawMessage, []Issue) {
	switch strings.ToLower(text) {
	case "true", "1", "yes", "on", "y", "enabled":
		return json.RawMessage("true"), nil
	case "false", "0", "no", "off", "n", "disabled":
		return json.RawMessage("false"), nil
	}
	return nil, []Issue{{d.Name, IssueValue, "expected true or false"}}
}

// OfDispatch merges what the workflow's dispatch triggers declare; of two declarations of a name the later counts, in
// the place of the earlier.
func OfDispatch(w lockfile.Workflow) lockfile.Inputs {
	var all lockfile.Inputs
	for i := range w.Triggers {
		if w.Triggers[i].Type != "dispatch" {
			continue
		}
		for _, d := range w.Triggers[i].Inputs {
			if at := slices.IndexFunc(all, func(o lockfile.Input) bool { return o.Name == d.Name }); at >= 0 {
				all[at] = d
			} else {
				all = append(all, d)
			}
		}
	}
	return all
}

// OfSchedule gives the values that a schedule starts with: its defaults. No values at all is nil.
func OfSchedule(descriptors lockfile.Inputs) (lockfile.Ordered, []Issue) {
	values, issues := Coerce(descriptors, nil)
	if len(values) == 0 {
		return nil, issues
	}
	return values, issues
}

// CheckSchedule tells whether a schedule can start without anybody giving values; the error's text is for the
// author.
func CheckSchedule(descriptors lockfile.Inputs) error {
	for _, d := range descriptors {
		if d.Default == nil && !d.Optional {
			return fmt.Errorf("schedule input %q must declare a .default() or be .optional()"+
				" — schedule triggers fire with no operator input", d.Name)
		}
	}
	return nil
}
