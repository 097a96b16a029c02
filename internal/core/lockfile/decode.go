package lockfile

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/label"
)

// decoder turns the tree into typed values. null counts as absent everywhere. A member of the wrong JSON type is read as
// absent too and noted, so that whoever wants to run the workflow can refuse it and say why.
type decoder struct {
	where    []string // "job 'test'", "steps[2]": the way to the present object
	problems []string
}

// maxProblems bounds what one workflow notes; the first few tell all that a person needs.
const maxProblems = 20

func (d *decoder) wrong(n *node, field, wanted string) {
	if len(d.problems) < maxProblems {
		path := strings.TrimPrefix(strings.Join(d.where, " ")+" "+field, " ")
		d.problems = append(d.problems, fmt.Sprintf("%s: expected %s, found %s", path, wanted, n.kind))
	}
}

func (d *decoder) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	return errors.New(d.problems[0])
}

// within runs read with one more element of the way noted.
func (d *decoder) within(step string, read func()) {
	d.where = append(d.where, step)
	read()
	d.where = d.where[:len(d.where)-1]
}

// is tells whether the value has the wanted type; null has none and is no problem.
func (d *decoder) is(n *node, kind nodeKind, field string) bool {
	if n.kind != kind && n.kind != kindNull {
		d.wrong(n, field, kind.String())
	}
	return n.kind == kind
}

func (d *decoder) text(n *node, field string) string {
	if !d.is(n, kindText, field) {
		return ""
	}
	return clean(n)
}

// clean is the text without lone surrogates and NUL, which UTF-8 and the databases refuse.
func clean(n *node) string {
	if n.dirty {
		return ci.CleanText(n.text())
	}
	return n.text()
}

func cleanKey(n *node) string { return ci.CleanText(n.key) }

func (d *decoder) truth(n *node, field string) bool {
	return d.is(n, kindBool, field) && n.truth
}

func (d *decoder) optionalTruth(n *node, field string) *bool {
	if !d.is(n, kindBool, field) {
		return nil
	}
	return &n.truth
}

func (d *decoder) number(n *node, field string) float64 {
	if !d.is(n, kindNumber, field) {
		return 0
	}
	return number(n)
}

func (d *decoder) whole(n *node, field string) int64 {
	f := d.number(n, field)
	if math.Abs(f) > 1<<53 { // beyond this a double is not exact, and the value is a mistake anyway
		d.wrong(n, field, "a number within ±2^53")
		return 0
	}
	return int64(f)
}

func (d *decoder) raw(n *node) []byte {
	if n.kind == kindNull {
		return nil
	}
	return []byte(n.raw)
}

// scalar is a text, or the text of a number or truth value: authors of hand-written documents write 18 for "18".
func (d *decoder) scalar(n *node, field string) string {
	switch n.kind {
	case kindText:
		return clean(n)
	case kindNumber:
		return formatNumber(number(n))
	case kindBool:
		return fmt.Sprint(n.truth)
	}
	d.wrong(n, field, kindText.String())
	return ""
}

func list[T any](d *decoder, n *node, field string, read func(*node, string) T) []T {
	if !d.is(n, kindList, field) {
		return nil
	}
	out := make([]T, len(n.items))
	for i := range n.items {
		out[i] = read(&n.items[i], field)
	}
	return out
}

func (d *decoder) texts(n *node, field string) []string    { return list(d, n, field, d.scalar) }
func (d *decoder) pairsList(n *node, field string) []Pairs { return list(d, n, field, d.pairs) }

func (d *decoder) pairs(n *node, field string) Pairs {
	if !d.is(n, kindObject, field) {
		return nil
	}
	out := make(Pairs, len(n.items))
	for i := range n.items {
		m := &n.items[i]
		out[i] = Pair{cleanKey(m), d.scalar(m, field+"."+m.key)}
	}
	return out
}

func (d *decoder) ordered(n *node, field string) Ordered {
	if !d.is(n, kindObject, field) {
		return nil
	}
	out := make(Ordered, len(n.items))
	for i := range n.items {
		out[i] = Member{cleanKey(&n.items[i]), []byte(n.items[i].raw)}
	}
	return out
}

// matchers reads a list that the checks of Load have already accepted.
func (d *decoder) matchers(n *node, field string) []label.Matcher {
	if falsy(n) {
		return nil
	}
	return list(d, n, field, func(m *node, _ string) label.Matcher {
		out, _ := matcher(m)
		return out
	})
}

func (d *decoder) textOrInline(n *node, field string) Text {
	if in := d.inline(n); in != nil {
		return Text{Inline: in}
	}
	return Text{Value: d.text(n, field)}
}

func (d *decoder) inline(n *node) *Inline {
	t := n.member("_type")
	if t == nil || t.text() != "inline" {
		return nil
	}
	in := Inline{}
	if e := n.member("expression"); e != nil {
		in.Expression = d.text(e, "expression")
	}
	return &in
}

// members calls read for each member of an object, and notes anything else.
func (d *decoder) members(n *node, field string, read func(key string, m *node)) {
	if !d.is(n, kindObject, field) {
		return
	}
	for i := range n.items {
		read(n.items[i].key, &n.items[i])
	}
}

func (d *decoder) source(n *node, field string) Source {
	var s Source
	d.members(n, field, func(key string, m *node) {
		switch key {
		case "file":
			s.File = d.text(m, "source.file")
		case "export":
			s.Export = d.text(m, "source.export")
		}
	})
	return s
}

func (d *decoder) file(n *node) *File {
	f := &File{SchemaVersion: SchemaVersion, Workflows: []Workflow{}}
	d.members(n, "", func(key string, m *node) {
		switch key {
		case "source":
			f.Source = d.source(m, key)
		case "contentHash":
			f.ContentHash = d.text(m, key)
		case "lockfileHash":
			f.LockfileHash = d.text(m, key)
		case "workflows":
			if !falsy(m) {
				f.Workflows = list(d, m, key, d.workflow)
			}
		}
	})
	for i := range f.Workflows {
		if f.Workflows[i].Source == nil {
			f.Workflows[i].Source = &f.Source
		}
	}
	return f
}

// workflow reads one workflow with notes of its own.
func (d *decoder) workflow(n *node, _ string) Workflow {
	var own decoder
	w := Workflow{Raw: n.raw, Triggers: []Trigger{}, Jobs: []Job{}}
	own.members(n, "workflow", func(key string, m *node) { own.workflowMember(&w, key, m) })
	w.Problems = own.problems
	return w
}

func (d *decoder) workflowMember(w *Workflow, key string, m *node) {
	switch key {
	case "name":
		w.Name = d.text(m, key)
	case "source":
		if m.kind != kindNull {
			s := d.source(m, key)
			w.Source = &s
		}
	case "contentHash":
		w.ContentHash = d.text(m, key)
	case "compileSchemaVersion":
		w.CompileSchemaVersion = int(d.whole(m, key))
	case "triggers":
		w.Triggers = orEmpty(list(d, m, key, d.trigger))
	case "jobs":
		w.Jobs = orEmpty(list(d, m, key, d.job))
	case "rules":
		w.Rules = list(d, m, key, d.rule)
	case "description":
		w.Description = d.text(m, key)
	case "hashFiles":
		w.HashFiles = d.texts(m, key)
	case "resolvedHashFiles":
		w.ResolvedHashFiles = d.texts(m, key)
	case "registries":
		w.Registries = list(d, m, key, d.registry)
	case "installEnv":
		w.InstallEnv = d.texts(m, key)
	case "hasOnCancel":
		w.HasOnCancel = d.truth(m, key)
	case "hasCleanup":
		w.HasCleanup = d.truth(m, key)
	case "hasOnSuccess":
		w.HasOnSuccess = d.truth(m, key)
	case "hasOnFailure":
		w.HasOnFailure = d.truth(m, key)
	case "concurrency":
		w.Concurrency = d.concurrency(m)
	case "timeout":
		w.TimeoutMs = d.whole(m, key)
	case "approval":
		w.Approval = d.approval(m, key)
	case "contexts":
		w.Contexts = d.texts(m, key)
	}
}

func (d *decoder) registry(n *node, field string) Registry {
	var r Registry
	d.members(n, field, func(key string, m *node) {
		switch key {
		case "url":
			r.URL = d.text(m, "registries.url")
		case "scope":
			r.Scope = d.text(m, "registries.scope")
		case "tokenSecret":
			r.TokenSecret = d.text(m, "registries.tokenSecret")
		case "alwaysAuth":
			r.AlwaysAuth = d.optionalTruth(m, "registries.alwaysAuth")
		}
	})
	return r
}

func (d *decoder) concurrency(n *node) *Concurrency {
	if !d.is(n, kindObject, "concurrency") {
		return nil
	}
	var c Concurrency
	d.members(n, "concurrency", func(key string, m *node) {
		switch key {
		case "hasGroup":
			c.HasGroup = d.truth(m, "concurrency.hasGroup")
		case "cancelInProgress":
			c.CancelInProgress = d.optionalTruth(m, "concurrency.cancelInProgress")
		case "max":
			c.Max = int(d.whole(m, "concurrency.max"))
		}
	})
	return &c
}

func (d *decoder) approval(n *node, field string) *Approval {
	if !d.is(n, kindObject, field) {
		return nil
	}
	a := Approval{Clauses: []Clause{}, When: "always"}
	d.members(n, field, func(key string, m *node) {
		switch key {
		case "clauses":
			a.Clauses = orEmpty(list(d, m, field+".clauses", d.clause))
		case "reason":
			a.Reason = d.text(m, field+".reason")
		case "timeoutSeconds":
			a.TimeoutSeconds = d.number(m, field+".timeoutSeconds")
		case "when":
			a.When = d.text(m, field+".when")
		}
	})
	return &a
}

// clause notes anything but exactly one non-empty approver: a clause read as empty would be one that nobody or anybody
// meets.
func (d *decoder) clause(n *node, field string) Clause {
	var c Clause
	d.members(n, field, func(key string, m *node) {
		switch key {
		case "team":
			c.Team = d.text(m, field+".team")
		case "user":
			c.User = d.text(m, field+".user")
		}
	})
	if n.kind == kindObject && (len(n.items) != 1 || c == Clause{}) || n.kind == kindNull {
		d.wrong(n, field, "exactly one of team and user")
	}
	return c
}

func (d *decoder) rule(n *node, field string) Rule {
	var r Rule
	d.members(n, field, func(key string, m *node) {
		switch key {
		case "_type":
			r.Type = d.text(m, "rules._type")
		case "label":
			r.Label = d.text(m, "rules.label")
		case "source":
			d.members(m, "rules.source", func(key string, m *node) {
				switch key {
				case "file":
					r.Source.File = d.text(m, "rules.source.file")
				case "index":
					r.Source.Index = int(d.whole(m, "rules.source.index"))
				}
			})
		}
	})
	return r
}
