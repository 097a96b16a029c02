package lockfile

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"kici/internal/core/label"
	"kici/internal/kit/ecma"
	"kici/internal/kit/jsontree"
	"kici/internal/kit/regex"
)

// MaxBytes is the largest document that Load reads.
const MaxBytes = 5 << 20

// The kinds of a ParseError.
const (
	InvalidJSON      = "invalid_json"
	BadSchemaVersion = "bad_schema_version" // missing, or not a number
	SchemaMismatch   = "schema_mismatch"    // compiled for another version
	Malformed        = "malformed"          // a null workflow or job, or no list where one belongs
	InvalidMatcher   = "invalid_matcher"
	InvalidRegex     = "invalid_regex"
	ReDoS            = "redos" // a label expression that could take exponential time
	TooLarge         = "too_large"
	TooDeep          = "too_deep"
)

// ParseError says why a document that is present cannot be used. A missing document is never a ParseError.
type ParseError struct {
	Repo    string // repository identifier
	Ref     string
	Kind    string
	Message string // a sentence for the author
	Offset  int    // for malformed JSON: bytes from the start; Line and Column count from 1, columns in characters
	Line    int
	Column  int
}

// Error is the message.
func (e *ParseError) Error() string { return e.Message }

// Load reads and checks a document. The checks run over the whole document in a fixed order and the first failure wins:
// JSON, schema version, shape of every label matcher, every regular expression among them. Content hashes are not
// verified, trigger patterns are left to the evaluation of their trigger, and needs are left to planning.
func Load(raw []byte, repo, ref string) (*File, *ParseError) {
	fail := func(kind, message string) (*File, *ParseError) {
		return nil, &ParseError{Repo: repo, Ref: ref, Kind: kind, Message: message}
	}
	at := fmt.Sprintf("at %s ref=%s", repo, ref)
	if len(raw) == 0 {
		return fail(InvalidJSON, "Lock file "+at+" has no content")
	}
	if len(raw) > MaxBytes {
		return fail(TooLarge, fmt.Sprintf("Lock file %s has %d bytes, more than the limit of %d", at, len(raw), MaxBytes))
	}
	text := string(raw)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	root, err := jsontree.Parse(text)
	if err != nil {
		return nil, notJSON(text, at, repo, ref, err)
	}
	version := root.Member("schemaVersion")
	if version == nil || version.Kind != jsontree.Number {
		return fail(BadSchemaVersion, "Invalid lock file "+at+": missing or invalid schemaVersion")
	}
	if !supported(version.Number()) {
		return fail(SchemaMismatch, fmt.Sprintf("Lock file schemaVersion %s is incompatible with this orchestrator "+
			"(engine SCHEMA_VERSION %d). Recompile the lock with `kici compile` and push again.",
			ecma.FormatNumber(version.Number()), SchemaVersion))
	}
	if f := checkFile(root); f != nil {
		return fail(f.kind, f.message)
	}
	f := &File{}
	f.read(&decoder{}, root) // what is wrong with a workflow stands in the workflow
	return f, nil
}

// supported is the version policy: exact equality today.
func supported(version float64) bool { return version == SchemaVersion }

func notJSON(text, at, repo, ref string, err error) *ParseError {
	e := &ParseError{Repo: repo, Ref: ref, Kind: InvalidJSON}
	cause := err.Error()
	var syntax *jsontree.SyntaxError
	if errors.As(err, &syntax) {
		before := text[:syntax.Offset]
		e.Offset = syntax.Offset
		e.Line = strings.Count(before, "\n") + 1
		e.Column = utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
		cause = fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, cause)
		if syntax.Deep {
			e.Kind = TooDeep
		}
	}
	e.Message = fmt.Sprintf("Lock file %s is not valid JSON: %s", at, cause)
	return e
}

// DecodeJob reads one job that an agent made at run time, with the checks that Load makes. Its members must have the right
// types, since no author can be told to recompile it.
func DecodeJob(raw []byte, workflow string) (Job, error) {
	n, err := jsontree.Parse(string(raw))
	if err != nil {
		return Job{}, fmt.Errorf("decode job of workflow '%s': %w", workflow, err)
	}
	var c checker
	c.job(n, workflow)
	if f := c.result(); f != nil {
		return Job{}, errors.New(f.message)
	}
	var d decoder
	var j Job
	j.read(&d, n)
	if err := d.err(); err != nil {
		return Job{}, fmt.Errorf("decode job of workflow '%s': %w", workflow, err)
	}
	if j.Kind() != KindStatic {
		return Job{}, fmt.Errorf("decode job of workflow '%s': expected a job of type %q, found %s", workflow, KindStatic, n.Kind)
	}
	return j, nil
}

// finding is what a check objects to.
type finding struct{ kind, message string }

// checker walks static jobs. Shapes are judged on the way and the expressions afterwards, since a wrong shape anywhere is
// reported before a bad expression anywhere.
type checker struct {
	shape   *finding
	regexes []checkedRegex
	seen    map[checkedKey]bool // real documents repeat the same few expressions
}

type checkedKey struct{ source, flags string }

type checkedRegex struct {
	checkedKey
	where place
}

// place is the list of matchers being checked. It becomes text only for a message.
type place struct{ workflow, job, field string }

func (p place) String() string {
	return fmt.Sprintf("lock workflow '%s' job '%s' %s", p.workflow, p.job, p.field)
}

func checkFile(root *jsontree.Node) *finding {
	workflows := root.Member("workflows")
	if workflows == nil || workflows.Falsy() {
		return nil
	}
	var c checker
	if workflows.Kind != jsontree.List {
		return &finding{Malformed, "Invalid lock file: workflows is not a list but " + workflows.Kind.String()}
	}
	for i := range workflows.Items {
		c.workflow(&workflows.Items[i], i)
	}
	return c.result()
}

func (c *checker) result() *finding {
	if c.shape != nil {
		return c.shape
	}
	for _, r := range c.regexes {
		if _, err := regex.Compile(r.source, r.flags); err != nil {
			return &finding{InvalidRegex, fmt.Sprintf("%s: invalid regex /%s/%s: %v", r.where, r.source, r.flags, err)}
		}
		if err := regex.Guard(r.source, r.flags); err != nil {
			return &finding{ReDoS, fmt.Sprintf("%s: regex /%s/%s is ReDoS-prone — rejected", r.where, r.source, r.flags)}
		}
	}
	return nil
}

func (c *checker) fail(kind, format string, args ...any) {
	if c.shape == nil {
		c.shape = &finding{kind, fmt.Sprintf(format, args...)}
	}
}

func (c *checker) workflow(n *jsontree.Node, i int) {
	if n.Kind != jsontree.Object {
		c.fail(Malformed, "Invalid lock file: workflows[%d] is %s, not an object", i, n.Kind)
		return
	}
	name := nameOf(n, "name", "?")
	jobs := n.Member("jobs")
	if jobs == nil || jobs.Kind == jsontree.Null {
		return // a workflow without jobs never runs anything, which planning says
	}
	if jobs.Kind != jsontree.List {
		c.fail(Malformed, "lock workflow '%s' jobs: expected a list, found %s", name, jobs.Kind)
		return
	}
	for i := range jobs.Items {
		if jobs.Items[i].Kind == jsontree.Null {
			c.fail(Malformed, "lock workflow '%s' jobs[%d]: expected an object, found null", name, i)
			return
		}
		c.job(&jobs.Items[i], name)
	}
}

func (c *checker) job(n *jsontree.Node, workflow string) {
	if t := n.Member("_type"); t == nil || t.Kind != jsontree.Text || t.Text() != string(KindStatic) {
		return
	}
	at := place{workflow: workflow, job: nameOf(n, "name", "?")}
	in := func(field string) place { at.field = field; return at }
	c.matchers(n.Member("runsOn"), in("runsOn"))
	c.matchers(n.Member("excludeLabels"), in("excludeLabels"))
	all := n.Member("runsOnAll")
	if all == nil || all.Kind != jsontree.Object {
		return
	}
	if groups := all.Member("include"); groups != nil && !groups.Falsy() {
		if c.isList(groups, in("runsOnAll.include")) {
			for i := range groups.Items {
				c.group(&groups.Items[i], in("runsOnAll.include"))
			}
		}
	}
	c.matchers(all.Member("exclude"), in("runsOnAll.exclude"))
}

func (c *checker) group(n *jsontree.Node, where place) {
	if n.Kind == jsontree.Null {
		c.fail(Malformed, "%s: expected a list, found null", where)
		return
	}
	c.matchers(n, where)
}

// isList also tells the older form of a document, a plain text, apart: its author has to recompile.
func (c *checker) isList(n *jsontree.Node, where place) bool {
	switch n.Kind {
	case jsontree.List:
		return true
	case jsontree.Text:
		c.invalid(n, where)
	default:
		c.fail(Malformed, "%s: expected a list, found %s", where, n.Kind)
	}
	return false
}

func (c *checker) invalid(n *jsontree.Node, where place) {
	c.fail(InvalidMatcher, "%s: invalid label matcher %s — expected %s. Recompile the lock with `kici compile`.",
		where, shorten(n.Raw), label.MatcherShapes)
}

func (c *checker) matchers(n *jsontree.Node, where place) {
	if n == nil || n.Falsy() || !c.isList(n, where) {
		return
	}
	for i := range n.Items {
		m, ok := matcher(&n.Items[i])
		if !ok {
			c.invalid(&n.Items[i], where)
			return
		}
		if m.Kind == label.Regex {
			c.note(m, where)
		}
	}
}

func (c *checker) note(m label.Matcher, where place) {
	key := checkedKey{m.Source, m.Flags}
	if c.seen[key] {
		return
	}
	if c.seen == nil {
		c.seen = map[checkedKey]bool{}
	}
	c.seen[key] = true
	c.regexes = append(c.regexes, checkedRegex{key, where})
}

// matcher reads one of the two shapes; further members are fine.
func matcher(n *jsontree.Node) (m label.Matcher, ok bool) {
	text := func(key string) (string, bool) {
		v := n.Member(key)
		if v == nil || v.Kind != jsontree.Text {
			return "", false
		}
		return clean(v), true
	}
	kind, _ := text("kind")
	switch kind {
	case label.Exact:
		value, ok := text("value")
		return label.Matcher{Kind: kind, Value: value}, ok
	case label.Regex:
		source, ok1 := text("source")
		flags, ok2 := text("flags")
		return label.Matcher{Kind: kind, Source: source, Flags: flags}, ok1 && ok2
	}
	return m, false
}

// nameOf is a member that is a text, cleaned.
func nameOf(n *jsontree.Node, key, otherwise string) string {
	if m := n.Member(key); m != nil && m.Kind == jsontree.Text {
		return clean(m)
	}
	return otherwise
}

// shorten keeps a quoted part of the document from filling the message.
func shorten(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
