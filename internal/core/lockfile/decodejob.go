package lockfile

import (
	"kici/internal/core/label"
	"kici/internal/kit/jsontree"
)

func (d *decoder) job(n *jsontree.Node, field string) (j Job) {
	if n.Kind != jsontree.Object {
		return j // Load refuses null; anything else is an entry of unknown kind
	}
	if t := n.Member("_type"); t != nil {
		j.Type = d.text(t, "_type")
	}
	name := field
	if m := n.Member("name"); m != nil && m.Kind == jsontree.Text {
		name = "job '" + clean(m) + "'"
	}
	d.within(name, func() {
		switch j.Kind() {
		case KindStatic:
			contexts := n.Member("contexts")
			for i := range n.Items {
				m := &n.Items[i]
				if m.Key == "environments" && contexts != nil && contexts.Kind != jsontree.Null {
					continue // later releases spell the list "contexts", and that spelling wins
				}
				d.jobMember(&j, m.Key, m)
			}
		case KindDynamic:
			d.generator(&j, n)
		}
	})
	return j
}

func (d *decoder) jobMember(j *Job, key string, m *jsontree.Node) {
	switch key {
	case "name":
		j.Name = d.text(m, key)
	case "needs":
		j.Needs = list(d, m, key, d.need)
	case "dependsOnGroups":
		j.DependsOnGroups = d.texts(m, key)
	case "steps":
		j.Steps = list(d, m, key, d.step)
	case "rules":
		j.Rules = list(d, m, key, d.rule)
	case "description":
		j.Description = d.text(m, key)
	case "checkout":
		j.Checkout = d.optionalTruth(m, key)
	case "cache":
		j.Cache = list(d, m, key, d.cacheSpec)
	case "container":
		j.Container = d.container(m)
	case "gracePeriod":
		j.GracePeriodSeconds = d.number(m, key)
	case "timeout":
		j.TimeoutMs = d.whole(m, key)
	case "resources":
		j.Resources = d.raw(m)
	case "init":
		j.Init = d.raw(m)
	case "approval":
		j.Approval = d.approval(m, key)
	default:
		d.placement(j, key, m)
		d.dynamicField(j, key, m)
		d.hook(&j.Hooks, key, m)
	}
}

// placement reads the members that say where the job runs and how often.
func (d *decoder) placement(j *Job, key string, m *jsontree.Node) {
	switch key {
	case "runsOn":
		j.RunsOn = d.matchers(m, key)
	case "excludeLabels":
		j.ExcludeLabels = d.matchers(m, key)
	case "runsOnPick":
		j.RunsOnPick = d.text(m, key)
	case "runsOnAll":
		j.RunsOnAll = d.hostSelector(m)
	case "onUnreachable":
		j.OnUnreachable = d.text(m, key)
	case "includeUninitialized":
		j.IncludeUninitialized = d.truth(m, key)
	case "maxParallel":
		j.MaxParallel = int(d.whole(m, key))
	case "failFast":
		j.FailFast = d.optionalTruth(m, key)
	case "matrix":
		j.Matrix = d.matrix(m)
	case "include":
		j.Include = d.pairsList(m, key)
	case "exclude":
		j.Exclude = d.pairsList(m, key)
	}
}

// dynamicField reads the members that may be functions of the event.
func (d *decoder) dynamicField(j *Job, key string, m *jsontree.Node) {
	switch key {
	case "environments", "contexts":
		if m.Kind != jsontree.Null {
			j.Environments = list(d, m, key, d.contextRef)
		}
	case "env":
		j.Env = d.env(m)
	case "dynamicEnv":
		j.DynamicEnv = d.truth(m, key)
	case "concurrencyGroup":
		if m.Kind != jsontree.Null {
			t := d.textOrInline(m, key)
			j.ConcurrencyGroup = &t
		}
	case "dynamicConcurrencyGroup":
		j.DynamicConcurrencyGroup = d.truth(m, key)
	}
}

func (d *decoder) hook(h *Hooks, key string, m *jsontree.Node) {
	switch key {
	case "hasOnCancel":
		h.OnCancel = d.truth(m, key)
	case "hasCleanup":
		h.Cleanup = d.truth(m, key)
	case "hasOnSuccess":
		h.OnSuccess = d.truth(m, key)
	case "hasOnFailure":
		h.OnFailure = d.truth(m, key)
	case "hasBeforeStep":
		h.BeforeStep = d.truth(m, key)
	case "hasAfterStep":
		h.AfterStep = d.truth(m, key)
	}
}

func (d *decoder) generator(j *Job, n *jsontree.Node) {
	for i := range n.Items {
		switch m := &n.Items[i]; m.Key {
		case "source":
			j.Generator = &GeneratorSource{}
			d.members(m, "source", func(key string, m *jsontree.Node) {
				switch key {
				case "file":
					j.Generator.File = d.text(m, "source.file")
				case "index":
					j.Generator.Index = int(d.whole(m, "source.index"))
				}
			})
		case "group":
			j.Group = d.text(m, "group")
		case "needs":
			j.Needs = list(d, m, "needs", d.need)
		case "resultAware":
			j.ResultAware = d.truth(m, "resultAware")
		}
	}
}

func (d *decoder) need(n *jsontree.Node, field string) NeedsEntry {
	if n.Kind == jsontree.Text {
		return NeedsEntry{Name: clean(n), Bare: true}
	}
	var e NeedsEntry
	d.members(n, field, func(key string, m *jsontree.Node) {
		switch key {
		case "name":
			e.Name = d.text(m, "needs.name")
		case "group":
			e.Group = d.text(m, "needs.group")
		case "runOn":
			e.RunOn = d.texts(m, "needs.runOn")
		}
	})
	if e.Name == "" && e.Group == "" {
		d.wrong(n, field, "the name of a job or group")
	}
	return e
}

func (d *decoder) hostSelector(n *jsontree.Node) *HostSelector {
	if n.Falsy() || !d.is(n, jsontree.Object, "runsOnAll") {
		return nil
	}
	s := HostSelector{Include: [][]label.Matcher{}, Exclude: []label.Matcher{}}
	if m := n.Member("include"); m != nil && !m.Falsy() {
		s.Include = orEmpty(list(d, m, "runsOnAll.include", d.matchers))
	}
	if m := n.Member("exclude"); m != nil {
		s.Exclude = orEmpty(d.matchers(m, "runsOnAll.exclude"))
	}
	return &s
}

func (d *decoder) matrix(n *jsontree.Node) *Matrix {
	if !d.is(n, jsontree.Object, "matrix") {
		return nil
	}
	var x Matrix
	d.members(n, "matrix", func(key string, m *jsontree.Node) {
		switch key {
		case "_type":
			x.Type = d.text(m, "matrix._type")
		case "values":
			d.matrixValues(&x, m)
		case "source":
			x.Source = &MatrixSource{}
			d.members(m, "matrix.source", func(key string, m *jsontree.Node) {
				switch key {
				case "file":
					x.Source.File = d.text(m, "matrix.source.file")
				case "jobName":
					x.Source.JobName = d.text(m, "matrix.source.jobName")
				}
			})
		}
	})
	return &x
}

func (d *decoder) matrixValues(x *Matrix, n *jsontree.Node) {
	switch n.Kind {
	case jsontree.Null:
	case jsontree.List:
		x.HasValues = true
		x.List = d.texts(n, "matrix.values")
	default:
		d.members(n, "matrix.values", func(key string, m *jsontree.Node) {
			if m.Kind == jsontree.Null {
				d.wrong(m, "matrix.values."+key, jsontree.List.String())
			}
			x.Dimensions = append(x.Dimensions, Dimension{cleanKey(m), d.texts(m, "matrix.values."+key)})
		})
		x.HasValues = n.Kind == jsontree.Object
	}
}

func (d *decoder) cacheSpec(n *jsontree.Node, field string) CacheSpec {
	var c CacheSpec
	d.members(n, field, func(key string, m *jsontree.Node) {
		switch key {
		case "key":
			c.Key = d.text(m, "cache.key")
		case "paths":
			c.Paths = d.texts(m, "cache.paths")
		case "restoreKeys":
			c.RestoreKeys = d.texts(m, "cache.restoreKeys")
		}
	})
	return c
}

func (d *decoder) container(n *jsontree.Node) *Container {
	if n.Kind == jsontree.Text {
		return &Container{Image: clean(n), Bare: true}
	}
	if !d.is(n, jsontree.Object, "container") {
		return nil
	}
	var c Container
	d.members(n, "container", func(key string, m *jsontree.Node) {
		switch key {
		case "image":
			c.Image = d.text(m, "container.image")
		case "env":
			c.Env = d.pairs(m, "container.env")
		}
	})
	return &c
}

// contextRef also takes any object as the value of a dynamic element: compilers differ in what they write for a function
// that only an agent can run.
func (d *decoder) contextRef(n *jsontree.Node, field string) ContextRef {
	var c ContextRef
	if m := n.Member("dynamic"); m != nil {
		c.Dynamic = d.truth(m, field+".dynamic")
	}
	d.members(n, field, func(key string, m *jsontree.Node) {
		switch {
		case key != "value":
		case c.Dynamic && m.Kind == jsontree.Object && d.inline(m) == nil:
		default:
			c.Value = d.textOrInline(m, field+".value")
		}
	})
	return c
}

func (d *decoder) env(n *jsontree.Node) *Env {
	if in := d.inline(n); in != nil {
		return &Env{Inline: in}
	}
	if !d.is(n, jsontree.Object, "env") {
		return nil
	}
	return &Env{Values: d.pairs(n, "env")}
}

func (d *decoder) step(n *jsontree.Node, field string) Step {
	var s Step
	d.members(n, field, func(key string, m *jsontree.Node) { d.stepMember(&s, key, m) })
	return s
}

func (d *decoder) stepMember(s *Step, key string, m *jsontree.Node) {
	field := "steps." + key
	switch key {
	case "kind":
		s.Kind = d.text(m, field)
	case "name":
		s.Name = d.text(m, field)
	case "hasOutputs":
		s.HasOutputs = d.truth(m, field)
	case "continueOnError":
		s.ContinueOnError = d.optionalTruth(m, field)
	case "timeout":
		s.TimeoutMs = d.whole(m, field)
	case "retry":
		s.Retry = d.retry(m)
	case "cache":
		s.Cache = list(d, m, field, d.cacheSpec)
	case "sourceLocation":
		s.SourceLocation = d.location(m)
	case "hasRules":
		s.HasRules = d.truth(m, field)
	case "rules":
		s.Rules = list(d, m, field, d.rule)
	case "hasOnCancel":
		s.HasOnCancel = d.truth(m, field)
	case "hasCleanup":
		s.HasCleanup = d.truth(m, field)
	case "hasCheck":
		s.HasCheck = d.truth(m, field)
	case "hasWhenInSync":
		s.HasWhenInSync = d.truth(m, field)
	case "approval":
		s.Approval = d.approval(m, field)
	case "failFast":
		s.FailFast = d.optionalTruth(m, field)
	case "maxParallel":
		s.MaxParallel = int(d.whole(m, field))
	case "children":
		s.Children = list(d, m, field, d.step)
	}
}

func (d *decoder) retry(n *jsontree.Node) *Retry {
	if !d.is(n, jsontree.Object, "retry") {
		return nil
	}
	var r Retry
	d.members(n, "retry", func(key string, m *jsontree.Node) {
		switch key {
		case "maxAttempts":
			r.MaxAttempts = int(d.whole(m, "retry.maxAttempts"))
		case "delayMs":
			r.DelayMs = d.number(m, "retry.delayMs")
		case "backoff":
			r.Backoff = d.text(m, "retry.backoff")
		case "maxDelayMs":
			r.MaxDelayMs = d.number(m, "retry.maxDelayMs")
		}
	})
	return &r
}

func (d *decoder) location(n *jsontree.Node) *SourceLocation {
	if !d.is(n, jsontree.Object, "sourceLocation") {
		return nil
	}
	var l SourceLocation
	d.members(n, "sourceLocation", func(key string, m *jsontree.Node) {
		switch key {
		case "file":
			l.File = d.text(m, "sourceLocation.file")
		case "line":
			l.Line = int(d.whole(m, "sourceLocation.line"))
		case "column":
			l.Column = int(d.whole(m, "sourceLocation.column"))
		}
	})
	return &l
}
