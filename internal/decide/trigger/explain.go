package trigger

import (
	"strconv"
	"strings"
	"unicode"
)

// Explain tells the trace of a decision in sentences, one per check, the summary last. A trigger's failed check is its
// last one, so the sentence that says what kept it from matching stands where the next trigger begins. What strangers
// wrote is shown without the signs that could move a terminal.
func Explain(d Decision) []string {
	lines := make([]string, 0, len(d.Checks)+1)
	for _, c := range d.Checks {
		lines = append(lines, c.explain())
	}
	return append(lines, d.Summary)
}

func (c Check) explain() string {
	switch {
	case c.Value == nil:
		return "the event has no " + c.subject() + ", expected " + c.expected()
	case *c.Value == missing && c.Check == "repo":
		return "the event names no repository, and the trigger asks for one"
	case *c.Value == missing:
		return "the event names no " + c.subject() + ", expected " + c.expected()
	case *c.Value == "" && !c.Passed:
		return c.subject() + " of the event is empty, expected " + c.expected()
	case c.Check == "paths":
		return c.paths()
	case c.Check == "repo":
		return "repository " + quote(*c.Value) + c.verb(" is ", " is not ") + c.area()
	case strings.HasPrefix(c.Check, "jsonpath"):
		return c.payload()
	}
	return c.subject() + " " + quote(*c.Value) + " " + c.verdict()
}

// subject is what was compared, in an author's words.
func (c Check) subject() string {
	if strings.HasPrefix(c.Check, "bodyMatch") {
		return "comment"
	}
	return c.Check
}

func (c Check) verb(passed, failed string) string {
	if c.Passed {
		return passed
	}
	return failed
}

func (c Check) verdict() string {
	if len(c.members()) > 1 {
		return c.verb("matches one of ", "matches none of ") + c.expected()
	}
	return c.verb("matches ", "does not match ") + c.expected()
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

func (c Check) paths() string {
	files := visible(*c.Value)
	switch {
	case c.Reason == filesUnknown:
		return "which files changed is not known, so a filter for files " + c.area() + " passes"
	case files == "[]":
		return "no file changed, and the filter asks for one " + c.area()
	}
	return c.verb("some", "none") + " of the changed files " + files + c.verb(" are ", " is ") + c.area()
}

// area words the two lists of a check that includes and excludes, as the trace joins them.
func (c Check) area() string {
	rest := strings.TrimPrefix(strings.ReplaceAll(c.Pattern, ": [", ":["), "include:[")
	in, out, _ := strings.Cut(strings.TrimSuffix(rest, "]"), "] exclude:[")
	switch {
	case out == "":
		return "within [" + visible(in) + "]"
	case in == "":
		return "outside of [" + visible(out) + "]"
	}
	return "within [" + visible(in) + "] and outside of [" + visible(out) + "]"
}

func (c Check) payload() string {
	pattern := visible(c.Pattern)
	switch {
	case c.Check == "jsonpath match":
		return "the payload " + c.verb("holds ", "does not hold ") + pattern
	case c.Passed:
		return "the payload holds nothing of " + pattern
	}
	return "the payload holds something of " + pattern + ", which the trigger rules out"
}

func quote(s string) string { return "`" + visible(s) + "`" }

// visible writes signs that do not print as escapes, as \n and \x1b.
func visible(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }
