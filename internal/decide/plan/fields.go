package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"kici/internal/core/lockfile"
	"kici/internal/decide/contexts"
	"kici/internal/kit/script"
)

// fields are a job's inline expressions, evaluated.
type fields struct {
	contexts []*string       // one for each element of Environments; nil where nothing was evaluated
	env      *lockfile.Pairs // nil: not inline
	group    *string         // nil: not inline
}

// maxTimeouts is how many expressions of one plan may run out of time, at a tenth of a second each, before the rest is
// not tried any more: a workflow of a thousand endless expressions must not hold up everyone's deliveries.
const maxTimeouts = 5

// evaluator runs the inline expressions of one plan. The same expression on the same event is run once.
type evaluator struct {
	event    func() (json.RawMessage, error) // what they see, made for the first: most workflows have none
	texts    map[string]evaluated[string]
	records  map[string]evaluated[lockfile.Pairs]
	timeouts int
}

type evaluated[T any] struct {
	value T
	err   error
}

// fields evaluates a job's expressions: contexts in order, env, concurrency group. The first failure ends it; there is
// no fallback. The error names the field and the job.
func (e *evaluator) fields(j lockfile.Job) (f fields, err error) {
	f.contexts = make([]*string, len(j.Environments))
	for i, c := range j.Environments {
		if !c.Dynamic || c.Value.Inline == nil {
			continue
		}
		name, err := e.text(c.Value.Inline.Expression)
		if err != nil {
			return f, &fieldError{"environment", j.Name, err}
		}
		f.contexts[i] = &name
	}
	if j.Env != nil && j.Env.Inline != nil {
		env, err := e.record(j.Env.Inline.Expression)
		if err != nil {
			return f, &fieldError{"env", j.Name, err}
		}
		f.env = &env
	}
	if j.ConcurrencyGroup != nil && j.ConcurrencyGroup.Inline != nil {
		group, err := e.text(j.ConcurrencyGroup.Inline.Expression)
		if err != nil {
			return f, &fieldError{"concurrencyGroup", j.Name, err}
		}
		f.group = &group
	}
	return f, nil
}

// fieldError is a failed expression. Tools look for its text.
type fieldError struct {
	field, job string
	cause      error
}

func (e *fieldError) Error() string {
	return fmt.Sprintf("Inline %s evaluation failed for job '%s': %v", e.field, e.job, e.cause)
}

func (e *fieldError) Unwrap() error { return e.cause }

func (e *evaluator) text(expression string) (string, error) {
	return once(e, &e.texts, expression, func() (string, error) {
		event, err := e.event()
		if err != nil {
			return "", err
		}
		return script.InlineString(context.Background(), expression, event)
	})
}

func (e *evaluator) record(expression string) (lockfile.Pairs, error) {
	return once(e, &e.records, expression, func() (lockfile.Pairs, error) {
		event, err := e.event()
		if err != nil {
			return nil, err
		}
		record, err := script.InlineRecord(context.Background(), expression, event)
		if err != nil {
			return nil, err
		}
		env := make(lockfile.Pairs, len(record))
		for i, p := range record {
			env[i] = lockfile.Pair(p)
		}
		return env, nil
	})
}

// once runs an expression that was not run before. Its sandbox has a time limit of its own, so no context bounds it.
func once[T any](e *evaluator, known *map[string]evaluated[T], expression string, run func() (T, error)) (T, error) {
	if done, ok := (*known)[expression]; ok {
		return done.value, done.err
	}
	var result evaluated[T]
	if e.timeouts >= maxTimeouts {
		result.err = fmt.Errorf("not evaluated, since %d other expressions of the workflow ran out of time", e.timeouts)
	} else {
		result.value, result.err = run()
	}
	var failed *script.Error
	if errors.As(result.err, &failed) && failed.Kind == script.KindTimeout {
		e.timeouts++
	}
	if *known == nil {
		*known = map[string]evaluated[T]{}
	}
	(*known)[expression] = result
	return result.value, result.err
}

// environment is the job's extra variables, wherever they come from; nil when it has none.
func (f fields) environment(j lockfile.Job) lockfile.Pairs {
	if f.env != nil {
		return *f.env
	}
	if j.Env != nil {
		return j.Env.Values
	}
	return nil
}

func (f fields) concurrencyGroup(j lockfile.Job) string {
	switch {
	case f.group != nil:
		return *f.group
	case j.ConcurrencyGroup != nil:
		return j.ConcurrencyGroup.Value
	}
	return ""
}

// unresolved says which parts of a job only an agent can compute.
type unresolved struct {
	contexts, env, group, matrix bool
}

func (u unresolved) any() bool { return u != unresolved{} }

// words names the parts for people.
func (u unresolved) words() string {
	var parts []string
	for _, p := range []struct {
		open bool
		name string
	}{{u.contexts, "the name of a context"}, {u.env, "its env"}, {u.group, "its concurrency group"}, {u.matrix, "its matrix"}} {
		if p.open {
			parts = append(parts, p.name)
		}
	}
	return strings.Join(parts, ", ")
}

func needsAgent(j lockfile.Job, bound contexts.Names) unresolved {
	return unresolved{
		contexts: bound.Unnamed,
		env:      j.DynamicEnv && (j.Env == nil || j.Env.Inline == nil),
		group:    j.DynamicConcurrencyGroup && (j.ConcurrencyGroup == nil || j.ConcurrencyGroup.Inline == nil),
		matrix:   j.Matrix != nil && j.Matrix.Type == "dynamic",
	}
}
