// Package capacity decides which pool of agents serves a job, and what keeps jobs out of a pool.
package capacity

import (
	"fmt"

	"kici/internal/core/label"
)

// Pool is one scaler as far as choosing goes.
type Pool struct {
	Name string
	Sets []Set
}

// Set is one kind of agent that a pool can start.
type Set struct {
	Labels []string // what a job may ask for: those that people gave, those that the system adds, the tokens of a platform
	Gate   []string // what a job must ask for by exact text; see label.GateOpen
	Agent  []string // what an agent presents when it registers; the labels of its machine it adds by itself
}

// Choose finds the pool and the set for a job: the smallest set whose gate is open to the job and that holds all labels
// and none of the excluded, the first configured among equals. A job that asks for nothing gets the first set without a
// gate, whatever it excludes. Case does not count. ok is false when nothing fits.
func Choose(pools []Pool, labels, exclude []string) (pool, set int, ok bool) {
	smallest := 0
	for p, candidate := range pools {
		for s, one := range candidate.Sets {
			switch {
			case !label.GateOpen(one.Gate, labels):
			case len(labels) == 0:
				return p, s, true
			case !label.HasAll(one.Labels, labels) || label.HasAny(one.Labels, exclude):
			default:
				if size := len(label.Folded(one.Labels)); !ok || size < smallest {
					pool, set, ok, smallest = p, s, true, size
				}
			}
		}
	}
	return pool, set, ok
}

// Routable tells whether some pool could start an agent for the job, as a request for one would find; whether it has room
// does not matter. Patterns are not looked at, so a job that asks by patterns alone counts as one that asks for nothing.
// No pool can start the one agent that a job is pinned to.
func Routable(s label.Selector, pools []Pool) bool {
	if s.Pin != "" {
		return false
	}
	_, _, ok := Choose(pools, s.Labels, s.Exclude)
	return ok
}

// Overlap is a label set that two scalers claim. Which of them a job gets would depend on their order alone.
type Overlap struct {
	Key           string // of the set; see label.SetKey
	First, Second string // names of the scalers, as configured
}

func (o Overlap) Error() string {
	return fmt.Sprintf("Label set [%s] overlaps between scalers %q and %q", o.Key, o.First, o.Second)
}

// Overlaps finds the label sets that more than one scaler declares, once for each later use. A scaler may repeat its own.
func Overlaps(scalers []Scaler) []Overlap {
	var out []Overlap
	owners := map[string]string{}
	for _, s := range scalers {
		for _, labels := range s.Sets {
			key := label.SetKey(labels)
			owner, owned := owners[key]
			switch {
			case !owned:
				owners[key] = s.Name
			case owner != s.Name:
				out = append(out, Overlap{Key: key, First: owner, Second: s.Name})
			}
		}
	}
	return out
}
