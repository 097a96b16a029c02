package contexts

import (
	"maps"

	"kici/internal/core/ci"
)

// Variable is an environment variable of a context.
type Variable struct {
	Key, Value string
	Locked     bool // no override replaces it
}

// Override is another value of a variable, or one more variable, for the runs of one source.
type Override struct {
	RoutingKey string
	Key, Value string
}

// Variables are those of a context for a run that came in by that routing key, "" for none: the base, with the overrides
// of exactly that key, but for locked ones.
func Variables(base []Variable, overrides []Override, routingKey string) map[string]string {
	values, locked := map[string]string{}, map[string]bool{}
	for _, v := range base {
		values[v.Key], locked[v.Key] = v.Value, v.Locked
	}
	for _, o := range overrides {
		if routingKey != "" && o.RoutingKey == routingKey && !locked[o.Key] {
			values[o.Key] = o.Value
		}
	}
	return values
}

// Fold merges maps; a later one wins.
func Fold(in ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range in {
		maps.Copy(out, m)
	}
	return out
}

// Resolved is what one context brings to a job.
type Resolved struct {
	Name      string // as the job binds it, which of a pattern is not the context's own
	Variables map[string]string
	Secrets   map[string]string
}

// Merged is what all contexts of a job bring together; what is empty is nil.
type Merged struct {
	Variables  map[string]string
	Secrets    map[string]string
	Namespaced ci.NamespacedSecrets // of each context that has any, in declared order
}

// Merge folds the contexts of a job in declared order; of a key in several, the last one's value counts.
func Merge(entries []Resolved) (m Merged) {
	for _, e := range entries {
		if len(e.Variables) > 0 {
			m.Variables = Fold(m.Variables, e.Variables)
		}
		if len(e.Secrets) == 0 {
			continue
		}
		m.Secrets = Fold(m.Secrets, e.Secrets)
		m.Namespaced = m.Namespaced.Put(e.Name, maps.Clone(e.Secrets))
	}
	return m
}
