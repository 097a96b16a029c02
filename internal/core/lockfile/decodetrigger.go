package lockfile

import "kici/internal/kit/jsontree"

func (d *decoder) trigger(n *jsontree.Node, field string) (t Trigger) {
	if n.Kind != jsontree.Object {
		d.is(n, jsontree.Object, field)
		return t // null keeps its place
	}
	if m := n.Member("_type"); m != nil {
		t.Type = d.text(m, field+"._type")
	}
	d.within("trigger '"+t.Type+"'", func() {
		for i := range n.Items {
			m := &n.Items[i]
			d.triggerList(&t, m.Key, m)
			d.triggerScalar(&t, m.Key, m)
		}
	})
	return t
}

func (d *decoder) triggerList(t *Trigger, key string, m *jsontree.Node) {
	switch key {
	case "events":
		t.Events = d.texts(m, key)
	case "actions":
		t.Actions = d.texts(m, key)
	case "types":
		t.Types = d.texts(m, key)
	case "states":
		t.States = d.texts(m, key)
	case "contexts":
		t.Contexts = d.texts(m, key)
	case "workflows":
		t.Workflows = d.texts(m, key)
	case "conclusions":
		t.Conclusions = d.texts(m, key)
	case "refTypes":
		t.RefTypes = d.texts(m, key)
	case "paths":
		t.Paths = d.texts(m, key)
	case "status":
		t.Status = d.texts(m, key)
	case "sources":
		t.Sources = d.texts(m, key)
	case "branches":
		t.Branches = list(d, m, key, d.branchPattern)
	case "targetBranches":
		t.TargetBranches = list(d, m, key, d.branchPattern)
	case "sourceBranches":
		t.SourceBranches = list(d, m, key, d.branchPattern)
	case "patterns":
		t.Patterns = list(d, m, key, d.branchPattern)
	case "repos":
		t.Repos = list(d, m, key, d.branchPattern)
	}
}

func (d *decoder) triggerScalar(t *Trigger, key string, m *jsontree.Node) {
	switch key {
	case "source":
		t.Source = d.text(m, key)
	case "bodyMatch":
		if d.is(m, jsontree.Object, key) {
			p := BodyMatch(d.branchPattern(m, key))
			t.BodyMatch = &p
		}
	case "inputs":
		t.Inputs = d.inputs(m)
	case "eventName":
		t.EventName = d.text(m, key)
	case "match":
		t.Match = d.ordered(m, key)
	case "not":
		t.Not = d.ordered(m, key)
	case "name":
		t.Name = d.text(m, key)
	case "workflow":
		t.Workflow = d.text(m, key)
	case "job":
		t.Job = d.text(m, key)
	case "path":
		t.Path = d.text(m, key)
	case "auth":
		t.Auth = d.raw(m)
	case "cronExpression":
		t.CronExpression = d.text(m, key)
	case "timezone":
		t.Timezone = d.text(m, key)
	case "description":
		t.Description = d.text(m, key)
	}
}

func (d *decoder) branchPattern(n *jsontree.Node, field string) BranchPattern {
	var p BranchPattern
	d.members(n, field, func(key string, m *jsontree.Node) {
		switch key {
		case "type":
			p.Type = d.text(m, field+".type")
		case "pattern":
			p.Pattern = d.text(m, field+".pattern")
		case "flags":
			p.Flags = d.text(m, field+".flags")
		}
	})
	if n.Kind == jsontree.Null {
		d.wrong(n, field, jsontree.Object.String())
	}
	return p
}

func (d *decoder) inputs(n *jsontree.Node) Inputs {
	var out Inputs
	d.members(n, "inputs", func(name string, m *jsontree.Node) {
		in := Input{Name: cleanKey(m)}
		d.members(m, "inputs."+name, func(key string, m *jsontree.Node) { d.inputMember(&in, key, m) })
		out = append(out, in)
	})
	return out
}

func (d *decoder) inputMember(in *Input, key string, m *jsontree.Node) {
	field := "inputs." + in.Name + "." + key
	switch key {
	case "type":
		in.Type = d.text(m, field)
	case "optional":
		in.Optional = d.truth(m, field)
	case "nullable":
		in.Nullable = d.truth(m, field)
	case "default":
		in.Default = []byte(m.Raw) // null is a value here
	case "values":
		in.Values = d.texts(m, field)
	case "literal":
		in.Literal = []byte(m.Raw)
	case "min":
		in.Min = d.bound(m, field)
	case "max":
		in.Max = d.bound(m, field)
	case "pattern":
		in.HasPattern = m.Kind == jsontree.Text
		in.Pattern = d.text(m, field)
	case "description":
		in.Description = d.text(m, field)
	}
}

func (d *decoder) bound(n *jsontree.Node, field string) *float64 {
	if !d.is(n, jsontree.Number, field) {
		return nil
	}
	f := n.Number()
	return &f
}

// UnmarshalJSON reads the map of declared inputs in order.
func (in *Inputs) UnmarshalJSON(raw []byte) error {
	n, err := jsontree.Parse(string(raw))
	if err != nil {
		return err
	}
	var d decoder
	*in = d.inputs(n)
	return d.err()
}

// UnmarshalJSON reads one trigger.
func (t *Trigger) UnmarshalJSON(raw []byte) error {
	n, err := jsontree.Parse(string(raw))
	if err != nil {
		return err
	}
	var d decoder
	*t = d.trigger(n, "trigger")
	return d.err()
}
