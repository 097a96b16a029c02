package trigger

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
	"kici/internal/core/lockfile"
	"kici/internal/kit/regex"
)

// trace evaluates one trigger. Each check appends its entry and tells whether it passed, so that a trigger is an && of
// checks. After an error every check fails without an entry.
type trace struct {
	matcher *Matcher
	checks  []Check
	pattern string // under evaluation, for the error
	err     error
}

func (t *trace) failure(workflow string) error {
	if t.pattern == "" && !errors.Is(t.err, glob.ErrEmpty) {
		return t.err
	}
	return &PatternError{Workflow: workflow, Pattern: t.pattern, Err: t.err}
}

// subject is the event's side of a check; missing leaves the value out of the entry.
type subject struct {
	text    string
	missing bool
	clean   bool // cut to the size of a trace already
}

func said(s string) subject { return subject{text: s} }

// missing is the value of checks that must have one, as traces write it.
const missing = "(missing)"

// field reads text from the payload. Anything that is not text is shown as JSON and equals nothing that an author wrote.
func (t *trace) field(path ...string) subject {
	v, ok, err := t.matcher.lookup(path...)
	if err != nil {
		t.err = err
		return subject{missing: true}
	}
	if !ok {
		return subject{missing: true}
	}
	if s, isText := v.(string); isText {
		return said(s)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.err = err
	}
	return said(string(raw))
}

// or gives other when the payload lacks the field or has null there.
func (s subject) or(other string) subject {
	if s.missing || s.text == "null" {
		return said(other)
	}
	return s
}

// record appends an entry and passes the verdict on. Values come from strangers and are stored: they are cut.
func (t *trace) record(check string, patterns []string, s subject, passed bool) bool {
	c := Check{Check: check, Pattern: strings.Join(patterns, "|"), Passed: passed, patterns: patterns}
	if !s.missing {
		text := s.text
		if !s.clean {
			text = ci.CutText(text)
		}
		c.Value = &text
	}
	t.checks = append(t.checks, c)
	return passed
}

// event compares the type of the event.
func (t *trace) event(types ...string) bool {
	return t.record("event type", types, said(t.matcher.event.Type), slices.Contains(types, t.matcher.event.Type))
}

// oneOf compares exactly. An empty list is no filter.
func (t *trace) oneOf(check string, list []string, s subject) bool {
	if t.err != nil || len(list) == 0 {
		return t.err == nil
	}
	return t.record(check, list, s, !s.missing && slices.Contains(list, s.text))
}

// equal compares with one text; "" is no filter.
func (t *trace) equal(check, want string, s subject) bool {
	if want == "" {
		return t.err == nil
	}
	return t.oneOf(check, []string{want}, s)
}

func (t *trace) action(list []string) bool {
	return t.oneOf("action", list, said(t.matcher.event.Action))
}

// names checks a list of branch patterns, of which any may match; one that begins with ! matches all it does not cover.
func (t *trace) names(check string, patterns []lockfile.BranchPattern, s subject) bool {
	if t.err != nil || len(patterns) == 0 {
		return t.err == nil
	}
	texts := make([]string, len(patterns))
	for i, p := range patterns {
		texts[i] = p.Pattern
	}
	passed := false
	if !s.missing {
		passed = slices.ContainsFunc(patterns, func(p lockfile.BranchPattern) bool { return t.name(p, s.text) })
	}
	return t.err == nil && t.record(check, texts, s, passed)
}

// name matches one pattern. Any type but glob is a regular expression.
func (t *trace) name(p lockfile.BranchPattern, s string) bool {
	if t.err != nil {
		return false
	}
	var ok bool
	t.pattern = p.Pattern
	if p.Type == "glob" {
		ok, t.err = t.glob(p.Pattern, s)
	} else {
		ok, t.err = t.search(p.Pattern, p.Flags, []string{s})
	}
	return ok && t.err == nil
}

func (t *trace) glob(pattern, s string) (bool, error) {
	p, err := glob.Compile(pattern)
	if err != nil {
		return false, err
	}
	return p.TestWithin(s, &t.matcher.globs)
}

// search tells whether the expression finds something in one of the texts.
func (t *trace) search(source, flags string, texts []string) (bool, error) {
	r, err := regex.Compile(source, flags)
	if err != nil {
		return false, err
	}
	return r.MatchAny(texts, t.matcher.globs.Searches)
}

// repos checks the repository that the event happened in. Patterns that begin with ! exclude, whatever their order; with
// nothing but exclusions everything else is in.
func (t *trace) repos(patterns []lockfile.BranchPattern) bool {
	if t.err != nil || len(patterns) == 0 {
		return t.err == nil
	}
	repo := t.matcher.event.SourceRepo
	if repo == "" {
		return t.record("repo", []string{"required"}, said(missing), false)
	}
	in, out := splitRepos(patterns)
	passed := !slices.ContainsFunc(out, func(p lockfile.BranchPattern) bool { return t.name(p, repo) })
	if passed && len(in) > 0 {
		passed = slices.ContainsFunc(in, func(p lockfile.BranchPattern) bool { return t.name(p, repo) })
	}
	if t.err != nil {
		return false
	}
	t.record("repo", []string{"include:[" + joinPatterns(in) + "] exclude:[" + joinPatterns(out) + "]"}, said(repo), passed)
	return passed
}

func splitRepos(patterns []lockfile.BranchPattern) (in, out []lockfile.BranchPattern) {
	for _, p := range patterns {
		if rest, excluded := strings.CutPrefix(p.Pattern, "!"); excluded {
			p.Pattern = rest
			out = append(out, p)
		} else {
			in = append(in, p)
		}
	}
	return in, out
}

func joinPatterns(patterns []lockfile.BranchPattern) string {
	texts := make([]string, len(patterns))
	for i, p := range patterns {
		texts[i] = p.Pattern
	}
	return strings.Join(texts, ", ")
}

// jsonMap checks a map of JSON paths against a document: all must hold, or with not none may.
func (t *trace) jsonMap(check string, m lockfile.Ordered, not bool, document any) bool {
	if t.err != nil || len(m) == 0 {
		return t.err == nil
	}
	passed := true
	for _, entry := range m {
		holds, err := t.entryHolds(entry, document)
		if err != nil {
			t.pattern, t.err = entry.Key, err
			return false
		}
		if holds == not {
			passed = false
			break
		}
	}
	return t.record(check, []string{compactMap(m)}, said("(payload)"), passed)
}
