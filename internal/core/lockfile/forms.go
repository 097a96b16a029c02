package lockfile

import (
	"reflect"
	"slices"

	"kici/internal/core/ci"
	"kici/internal/kit/jsontree"
)

// What follows reads the types that the document writes in forms of their own.

func (f *File) read(d *decoder, n *jsontree.Node) bool {
	taken := d.fill(f, n)
	f.Workflows = orEmpty(f.Workflows)
	for i := range f.Workflows {
		if f.Workflows[i].Source == nil {
			f.Workflows[i].Source = &f.Source
		}
	}
	return taken
}

// read keeps notes of the workflow's own.
func (w *Workflow) read(_ *decoder, n *jsontree.Node) bool {
	var own decoder
	taken := own.fill(w, n)
	w.Triggers, w.Jobs = orEmpty(w.Triggers), orEmpty(w.Jobs)
	w.Raw, w.Problems = n.Raw, own.problems
	return taken
}

func (a *Approval) read(d *decoder, n *jsontree.Node) bool {
	a.When = "always"
	taken := d.fill(a, n)
	a.Clauses = orEmpty(a.Clauses)
	return taken
}

// read notes anything but exactly one non-empty approver: a clause read as empty would be one that nobody or anybody meets.
func (c *Clause) read(d *decoder, n *jsontree.Node) bool {
	taken := d.fill(c, n)
	if n.Kind == jsontree.Null || taken && (len(n.Items) != 1 || *c == Clause{}) {
		d.wrong(n, "exactly one of team and user")
	}
	return taken
}

// read leaves the zero Trigger for null, which keeps its place.
func (t *Trigger) read(d *decoder, n *jsontree.Node) bool {
	d.enter(step{"trigger", nameOf(n, "_type", "")})
	defer d.leave()
	return d.fill(t, n)
}

func (p *BranchPattern) read(d *decoder, n *jsontree.Node) bool {
	if n.Kind == jsontree.Null {
		d.wrong(n, jsontree.Object.String())
	}
	return d.fill(p, n)
}

func (in *Inputs) read(d *decoder, n *jsontree.Node) bool {
	if !d.is(n, jsontree.Object) {
		return false
	}
	*in = make(Inputs, len(n.Items))
	for i := range n.Items {
		m := &n.Items[i]
		(*in)[i].Name = ci.CleanText(m.Key)
		d.member(reflect.ValueOf(&(*in)[i]).Elem(), m)
		if value := m.Member("default"); value != nil {
			(*in)[i].Default = []byte(value.Raw) // null is a value here
		}
	}
	return true
}

// read takes the members of the entry's kind; of a kind that a later release knows, only its name.
func (j *Job) read(d *decoder, n *jsontree.Node) bool {
	if n.Kind != jsontree.Object {
		return false // Load refuses null; anything else is an entry of unknown kind
	}
	if name := nameOf(n, "name", ""); name != "" {
		d.enter(step{"job", name})
		defer d.leave()
	}
	if kind := n.Member("_type"); kind != nil {
		d.member(reflect.ValueOf(&j.Type).Elem(), kind)
	}
	switch j.Kind() {
	case KindStatic:
		return d.fill(j, withContexts(n))
	case KindDynamic:
		var g generatorForm
		d.fill(&g, n)
		j.Generator, j.Group, j.Needs, j.ResultAware = g.Source, g.Group, g.Needs, g.ResultAware
	}
	return true
}

// withContexts is the job with `contexts`, as later releases spell it, in place of `environments`.
func withContexts(n *jsontree.Node) *jsontree.Node {
	if contexts := n.Member("contexts"); contexts == nil || contexts.Kind == jsontree.Null {
		return n
	}
	renamed := *n
	renamed.Items = slices.DeleteFunc(slices.Clone(n.Items), func(m jsontree.Node) bool { return m.Key == "environments" })
	renamed.Member("contexts").Key = "environments"
	return &renamed
}

func (e *NeedsEntry) read(d *decoder, n *jsontree.Node) bool {
	if n.Kind == jsontree.Text {
		*e = NeedsEntry{Name: clean(n), Bare: true}
		return true
	}
	taken := d.fill(e, n)
	if e.Name == "" && e.Group == "" {
		d.wrong(n, "the name of a job or group")
	}
	return taken
}

func (s *HostSelector) read(d *decoder, n *jsontree.Node) bool {
	if n.Falsy() || !d.is(n, jsontree.Object) {
		return false
	}
	for i := range n.Items {
		switch m := &n.Items[i]; {
		case m.Key == "include" && !m.Falsy():
			d.member(reflect.ValueOf(&s.Include).Elem(), m)
		case m.Key == "exclude":
			d.member(reflect.ValueOf(&s.Exclude).Elem(), m)
		}
	}
	s.Include, s.Exclude = orEmpty(s.Include), orEmpty(s.Exclude)
	return true
}

func (x *Matrix) read(d *decoder, n *jsontree.Node) bool {
	taken := d.fill(x, n)
	values := n.Member("values")
	if values == nil {
		return taken
	}
	d.enter(step{name: "values"})
	defer d.leave()
	switch values.Kind {
	case jsontree.Null:
	case jsontree.List:
		x.HasValues = d.value(reflect.ValueOf(&x.List).Elem(), values)
	default:
		x.HasValues = d.is(values, jsontree.Object)
		x.Dimensions = d.dimensions(values)
	}
	return taken
}

func (d *decoder) dimensions(n *jsontree.Node) []Dimension {
	var out []Dimension
	for i := range n.Items {
		m := &n.Items[i]
		dimension := Dimension{Name: ci.CleanText(m.Key)}
		d.enter(step{name: m.Key})
		if m.Kind == jsontree.Null {
			d.wrong(m, jsontree.List.String())
		}
		d.value(reflect.ValueOf(&dimension.Values).Elem(), m)
		d.leave()
		out = append(out, dimension)
	}
	return out
}

func (c *Container) read(d *decoder, n *jsontree.Node) bool {
	if n.Kind == jsontree.Text {
		*c = Container{Image: clean(n), Bare: true}
		return true
	}
	return d.fill(c, n)
}

// read also takes any object as the value of a dynamic element: compilers differ in what they write for a function that
// only an agent can run.
func (c *ContextRef) read(d *decoder, n *jsontree.Node) bool {
	if !d.is(n, jsontree.Object) {
		return false
	}
	for i := range n.Items {
		m := &n.Items[i]
		switch {
		case m.Key == "dynamic":
			d.member(reflect.ValueOf(&c.Dynamic).Elem(), m)
		case m.Key == "value" && (m.Kind != jsontree.Object || isInline(m) || !isTrue(n.Member("dynamic"))):
			d.member(reflect.ValueOf(&c.Value).Elem(), m)
		}
	}
	return true
}

func isTrue(n *jsontree.Node) bool { return n != nil && n.Kind == jsontree.Bool && n.Truth }

func isInline(n *jsontree.Node) bool { return nameOf(n, "_type", "") == "inline" }

func (t *Text) read(d *decoder, n *jsontree.Node) bool {
	if isInline(n) {
		t.Inline = &Inline{}
		return d.fill(t.Inline, n)
	}
	return d.value(reflect.ValueOf(&t.Value).Elem(), n)
}

func (e *Env) read(d *decoder, n *jsontree.Node) bool {
	if isInline(n) {
		e.Inline = &Inline{}
		return d.fill(e.Inline, n)
	}
	return e.Values.read(d, n)
}

func (p *Pairs) read(d *decoder, n *jsontree.Node) bool {
	if !d.is(n, jsontree.Object) {
		return false
	}
	*p = make(Pairs, len(n.Items))
	for i := range n.Items {
		m := &n.Items[i]
		d.enter(step{name: m.Key})
		(*p)[i] = Pair{ci.CleanText(m.Key), d.text(m)}
		d.leave()
	}
	return true
}

func (o *Ordered) read(d *decoder, n *jsontree.Node) bool {
	if !d.is(n, jsontree.Object) {
		return false
	}
	*o = make(Ordered, len(n.Items))
	for i := range n.Items {
		(*o)[i] = Member{ci.CleanText(n.Items[i].Key), []byte(n.Items[i].Raw)}
	}
	return true
}
