package lockfile

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/kit/ecma"
	"kici/internal/kit/jsontree"
)

// decoder turns the tree into typed values. null counts as absent everywhere. A member of the wrong JSON type is read as
// absent too and noted, so that whoever wants to run the workflow can refuse it and say why.
type decoder struct {
	where    []string // "job 'test'", "steps[2]": the way to the present object
	problems []string
}

// maxProblems bounds what one workflow notes; the first few tell all that a person needs.
const maxProblems = 20

func (d *decoder) wrong(n *jsontree.Node, field, wanted string) {
	if len(d.problems) < maxProblems {
		path := strings.TrimPrefix(strings.Join(d.where, " ")+" "+field, " ")
		d.problems = append(d.problems, fmt.Sprintf("%s: expected %s, found %s", path, wanted, n.Kind))
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
func (d *decoder) is(n *jsontree.Node, kind jsontree.Kind, field string) bool {
	if n.Kind != kind && n.Kind != jsontree.Null {
		d.wrong(n, field, kind.String())
	}
	return n.Kind == kind
}

func (d *decoder) text(n *jsontree.Node, field string) string {
	if !d.is(n, jsontree.Text, field) {
		return ""
	}
	return clean(n)
}

// clean is the text without lone surrogates and NUL, which UTF-8 and the databases refuse.
func clean(n *jsontree.Node) string {
	if n.Dirty {
		return ci.CleanText(n.Text())
	}
	return n.Text()
}

func cleanKey(n *jsontree.Node) string { return ci.CleanText(n.Key) }

func (d *decoder) truth(n *jsontree.Node, field string) bool {
	return d.is(n, jsontree.Bool, field) && n.Truth
}

func (d *decoder) optionalTruth(n *jsontree.Node, field string) *bool {
	if !d.is(n, jsontree.Bool, field) {
		return nil
	}
	return &n.Truth
}

func (d *decoder) number(n *jsontree.Node, field string) float64 {
	if !d.is(n, jsontree.Number, field) {
		return 0
	}
	return n.Number()
}

func (d *decoder) whole(n *jsontree.Node, field string) int64 {
	f := d.number(n, field)
	if math.Abs(f) > 1<<53 { // beyond this a double is not exact, and the value is a mistake anyway
		d.wrong(n, field, "a number within ±2^53")
		return 0
	}
	return int64(f)
}

func (d *decoder) raw(n *jsontree.Node) []byte {
	if n.Kind == jsontree.Null {
		return nil
	}
	return []byte(n.Raw)
}

// scalar is a text, or the text of a number or truth value: authors of hand-written documents write 18 for "18".
func (d *decoder) scalar(n *jsontree.Node, field string) string {
	switch n.Kind {
	case jsontree.Text:
		return clean(n)
	case jsontree.Number:
		return ecma.FormatNumber(n.Number())
	case jsontree.Bool:
		return fmt.Sprint(n.Truth)
	}
	d.wrong(n, field, jsontree.Text.String())
	return ""
}

func list[T any](d *decoder, n *jsontree.Node, field string, read func(*jsontree.Node, string) T) []T {
	if !d.is(n, jsontree.List, field) {
		return nil
	}
	out := make([]T, len(n.Items))
	for i := range n.Items {
		out[i] = read(&n.Items[i], field)
	}
	return out
}

func (d *decoder) texts(n *jsontree.Node, field string) []string { return list(d, n, field, d.scalar) }
func (d *decoder) pairsList(n *jsontree.Node, field string) []Pairs {
	return list(d, n, field, d.pairs)
}

func (d *decoder) pairs(n *jsontree.Node, field string) Pairs {
	if !d.is(n, jsontree.Object, field) {
		return nil
	}
	out := make(Pairs, len(n.Items))
	for i := range n.Items {
		m := &n.Items[i]
		out[i] = Pair{cleanKey(m), d.scalar(m, field+"."+m.Key)}
	}
	return out
}

func (d *decoder) ordered(n *jsontree.Node, field string) Ordered {
	if !d.is(n, jsontree.Object, field) {
		return nil
	}
	out := make(Ordered, len(n.Items))
	for i := range n.Items {
		out[i] = Member{cleanKey(&n.Items[i]), []byte(n.Items[i].Raw)}
	}
	return out
}

// matchers reads a list that the checks of Load have already accepted.
func (d *decoder) matchers(n *jsontree.Node, field string) []label.Matcher {
	if n.Falsy() {
		return nil
	}
	return list(d, n, field, func(m *jsontree.Node, _ string) label.Matcher {
		out, _ := matcher(m)
		return out
	})
}

func (d *decoder) textOrInline(n *jsontree.Node, field string) Text {
	if in := d.inline(n); in != nil {
		return Text{Inline: in}
	}
	return Text{Value: d.text(n, field)}
}

func (d *decoder) inline(n *jsontree.Node) *Inline {
	t := n.Member("_type")
	if t == nil || t.Text() != "inline" {
		return nil
	}
	in := Inline{}
	if e := n.Member("expression"); e != nil {
		in.Expression = d.text(e, "expression")
	}
	return &in
}

// members calls read for each member of an object, and notes anything else.
func (d *decoder) members(n *jsontree.Node, field string, read func(key string, m *jsontree.Node)) {
	if !d.is(n, jsontree.Object, field) {
		return
	}
	for i := range n.Items {
		read(n.Items[i].Key, &n.Items[i])
	}
}

func (d *decoder) source(n *jsontree.Node, field string) Source {
	var s Source
	d.members(n, field, func(key string, m *jsontree.Node) {
		switch key {
		case "file":
			s.File = d.text(m, "source.file")
		case "export":
			s.Export = d.text(m, "source.export")
		}
	})
	return s
}

func (d *decoder) file(n *jsontree.Node) *File {
	f := &File{SchemaVersion: SchemaVersion, Workflows: []Workflow{}}
	d.members(n, "", func(key string, m *jsontree.Node) {
		switch key {
		case "source":
			f.Source = d.source(m, key)
		case "contentHash":
			f.ContentHash = d.text(m, key)
		case "lockfileHash":
			f.LockfileHash = d.text(m, key)
		case "workflows":
			if !m.Falsy() {
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
func (d *decoder) workflow(n *jsontree.Node, _ string) Workflow {
	var own decoder
	w := Workflow{Raw: n.Raw, Triggers: []Trigger{}, Jobs: []Job{}}
	own.members(n, "workflow", func(key string, m *jsontree.Node) { own.workflowMember(&w, key, m) })
	w.Problems = own.problems
	return w
}

func (d *decoder) workflowMember(w *Workflow, key string, m *jsontree.Node) {
	switch key {
	case "name":
		w.Name = d.text(m, key)
	case "source":
		if m.Kind != jsontree.Null {
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

func (d *decoder) registry(n *jsontree.Node, field string) Registry {
	var r Registry
	d.members(n, field, func(key string, m *jsontree.Node) {
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

func (d *decoder) concurrency(n *jsontree.Node) *Concurrency {
	if !d.is(n, jsontree.Object, "concurrency") {
		return nil
	}
	var c Concurrency
	d.members(n, "concurrency", func(key string, m *jsontree.Node) {
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

func (d *decoder) approval(n *jsontree.Node, field string) *Approval {
	if !d.is(n, jsontree.Object, field) {
		return nil
	}
	a := Approval{Clauses: []Clause{}, When: "always"}
	d.members(n, field, func(key string, m *jsontree.Node) {
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
func (d *decoder) clause(n *jsontree.Node, field string) Clause {
	var c Clause
	d.members(n, field, func(key string, m *jsontree.Node) {
		switch key {
		case "team":
			c.Team = d.text(m, field+".team")
		case "user":
			c.User = d.text(m, field+".user")
		}
	})
	if n.Kind == jsontree.Object && (len(n.Items) != 1 || c == Clause{}) || n.Kind == jsontree.Null {
		d.wrong(n, field, "exactly one of team and user")
	}
	return c
}

func (d *decoder) rule(n *jsontree.Node, field string) Rule {
	var r Rule
	d.members(n, field, func(key string, m *jsontree.Node) {
		switch key {
		case "_type":
			r.Type = d.text(m, "rules._type")
		case "label":
			r.Label = d.text(m, "rules.label")
		case "source":
			d.members(m, "rules.source", func(key string, m *jsontree.Node) {
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
