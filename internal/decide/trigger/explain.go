package trigger

import (
	"strings"
)

// Explain tells the trace of a decision in sentences, one per check, the summary last. A trigger's failed check is its
// last one, so the sentence that says what kept it from matching stands where the next trigger begins.
func Explain(d Decision) []string {
	lines := make([]string, 0, len(d.Checks)+1)
	for _, c := range d.Checks {
		lines = append(lines, c.explain())
	}
	return append(lines, d.Summary)
}

func (c Check) explain() string {
	var s string
	switch {
	case c.Value == nil:
		s = "the event has no " + c.Check + ", expected " + c.expected()
	case c.Check == "paths" || c.Check == "repo":
		s = c.filter()
	case strings.HasPrefix(c.Check, "jsonpath"):
		s = c.payload()
	default:
		s = c.Check + " " + quote(*c.Value) + " " + c.verdict()
	}
	if c.Reason != "" {
		s += " (" + c.Reason + ")"
	}
	return s
}

func (c Check) verdict() string {
	many := len(c.members()) > 1
	switch {
	case c.Passed && many:
		return "matches one of " + c.expected()
	case c.Passed:
		return "matches " + c.expected()
	case many:
		return "matches none of " + c.expected()
	}
	return "does not match " + c.expected()
}

// members are the patterns one by one. A stored decision has only the joined text, where an expression with | in it looks
// like two.
func (c Check) members() []string {
	if c.patterns != nil {
		return c.patterns
	}
	return strings.Split(c.Pattern, "|")
}

func (c Check) expected() string {
	members := c.members()
	quoted := make([]string, len(members))
	for i, m := range members {
		quoted[i] = quote(m)
	}
	if len(quoted) == 0 {
		return "nothing"
	}
	return strings.Join(quoted, ", ")
}

// filter words the two checks that include and exclude.
func (c Check) filter() string {
	what := "repository " + quote(*c.Value)
	if c.Check == "paths" && c.Reason == filesUnknown {
		return "no list of changed files to hold against " + c.Pattern + ", so it passes"
	}
	if c.Check == "paths" {
		what = "of the changed files " + *c.Value + " "
		if c.Passed {
			return what + "some match " + c.Pattern
		}
		return what + "none matches " + c.Pattern
	}
	switch {
	case c.Pattern == "required":
		return "the event names no repository, and the trigger asks for one"
	case c.Passed:
		return what + " matches " + c.Pattern
	}
	return what + " does not match " + c.Pattern
}

func (c Check) payload() string {
	switch {
	case c.Check == "jsonpath match" && c.Passed:
		return "the payload holds " + c.Pattern
	case c.Check == "jsonpath match":
		return "the payload does not hold " + c.Pattern
	case c.Passed:
		return "the payload holds nothing of " + c.Pattern
	}
	return "the payload holds something of " + c.Pattern + ", which the trigger rules out"
}

func quote(s string) string { return "`" + s + "`" }
