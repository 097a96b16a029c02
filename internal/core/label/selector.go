package label

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Selector is what one job demands of its agent. The zero Selector fits every agent that is not reserved.
type Selector struct {
	Labels          []string  // the agent has each of them; these alone satisfy an agent's mandatory labels
	Exclude         []string  // the agent has none of them
	Patterns        []Matcher // of kind Regex; each finds something in some label
	ExcludePatterns []Matcher // of kind Regex; none finds anything in any label
	Pin             string    // id of the only agent that may take the job, or ""
}

// Agent is what a selector is compared with.
type Agent struct {
	ID        string
	Labels    []string
	Mandatory []string // the gate: the agent takes only jobs that ask for each of them by exact text; see GateOpen
}

// Select makes a selector of a job's matchers, as the lock file has them.
func Select(runsOn, exclude []Matcher) (s Selector, err error) {
	if s.Labels, s.Patterns, err = Partition(runsOn); err != nil {
		return Selector{}, fmt.Errorf("runsOn: %w", err)
	}
	if s.Exclude, s.ExcludePatterns, err = Partition(exclude); err != nil {
		return Selector{}, fmt.Errorf("excludeLabels: %w", err)
	}
	return s, nil
}

// selectorJSON is the canonical text's shape.
type selectorJSON struct {
	Labels          []string  `json:"labels,omitempty"`
	Exclude         []string  `json:"exclude,omitempty"`
	Patterns        []Matcher `json:"patterns,omitempty"`
	ExcludePatterns []Matcher `json:"excludePatterns,omitempty"`
	Pin             string    `json:"pin,omitempty"`
}

// Canonical is the selector as JSON text, sorted and without repetition: two jobs that demand the same, in any order,
// have the same text. The queue interns selectors by it.
func (s Selector) Canonical() string {
	raw, err := json.Marshal(selectorJSON{
		sorted(s.Labels), sorted(s.Exclude), sortedMatchers(s.Patterns), sortedMatchers(s.ExcludePatterns), s.Pin,
	})
	if err != nil {
		panic("marshal selector: " + err.Error()) // texts only: cannot fail
	}
	return string(raw)
}

// ParseSelector reads what Canonical wrote.
func ParseSelector(text string) (Selector, error) {
	var v selectorJSON
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return Selector{}, fmt.Errorf("parse selector: %w", err)
	}
	for _, m := range slices.Concat(v.Patterns, v.ExcludePatterns) {
		if m.Kind != Regex {
			return Selector{}, fmt.Errorf("parse selector: pattern of kind %q", m.Kind)
		}
	}
	return Selector(v), nil
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

func sortedMatchers(list []Matcher) []Matcher {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Matcher) int {
		if c := strings.Compare(a.Source, b.Source); c != 0 {
			return c
		}
		return strings.Compare(a.Flags, b.Flags)
	})
	return slices.Compact(list)
}

// Matches tells whether the agent may take the job. Exact labels are compared in any case. An expression that cannot be
// evaluated keeps the agent from it, on either side: an agent chosen by mistake cannot be taken back.
func (s Selector) Matches(a Agent) bool {
	if s.Pin != "" {
		return s.Pin == a.ID && s.patternsFit(a.Labels)
	}
	return HasAll(a.Labels, s.Labels) && !HasAny(a.Labels, s.Exclude) && GateOpen(a.Mandatory, s.Labels) && s.patternsFit(a.Labels)
}

func (s Selector) patternsFit(labels []string) bool {
	for _, m := range s.Patterns {
		if _, ok, err := m.SatisfiedBy(labels); !ok || err != nil {
			return false
		}
	}
	for _, m := range s.ExcludePatterns {
		if _, ok, err := m.SatisfiedBy(labels); ok || err != nil {
			return false
		}
	}
	return true
}

// Explain says what keeps the agent from the job, one sentence part each, as in "lacks label gpu". It is empty exactly
// when Matches.
func (s Selector) Explain(a Agent) []string {
	var why []string
	if s.Pin != "" {
		if s.Pin != a.ID {
			why = append(why, "job is pinned to host "+s.Pin)
		}
		return append(why, s.explainPatterns(a.Labels)...)
	}
	for _, l := range sorted(s.Labels) {
		if !Has(a.Labels, l) {
			why = append(why, "lacks label "+l)
		}
	}
	for _, l := range sorted(s.Exclude) {
		if Has(a.Labels, l) {
			why = append(why, "has the excluded label "+l)
		}
	}
	for _, l := range sorted(missing(a.Mandatory, s.Labels)) {
		why = append(why, "agent is reserved for jobs that ask for "+l)
	}
	return append(why, s.explainPatterns(a.Labels)...)
}

func (s Selector) explainPatterns(labels []string) (why []string) {
	for _, m := range sortedMatchers(s.Patterns) {
		if _, ok, err := m.SatisfiedBy(labels); err != nil {
			why = append(why, err.Error())
		} else if !ok {
			why = append(why, "has no label matching "+m.String())
		}
	}
	for _, m := range sortedMatchers(s.ExcludePatterns) {
		if l, ok, err := m.SatisfiedBy(labels); err != nil {
			why = append(why, err.Error())
		} else if ok {
			why = append(why, fmt.Sprintf("label %s matches the excluded %s", l, m))
		}
	}
	return why
}

// Distance counts what keeps the agent from the job: 0 exactly when Matches. Agents sorted by it show the nearest first.
func (s Selector) Distance(a Agent) int { return len(s.Explain(a)) }
