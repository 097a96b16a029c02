package label

import (
	"slices"
	"strings"
)

// Pool is a scaler as far as choosing one goes: the label sets that it can start agents with, and the labels that a job
// must ask for before it may be served.
type Pool struct {
	Name      string
	Sets      [][]string
	Mandatory []string
}

// SetKey is the identity of a label set on the scalers' side, where neither case nor order nor repetition counts.
func SetKey(labels []string) string { return strings.Join(lowered(labels), ",") }

// SameSet tells whether two label sets are one by SetKey.
func SameSet(a, b []string) bool { return SetKey(a) == SetKey(b) }

func lowered(labels []string) []string {
	out := make([]string, len(labels))
	for i, l := range labels {
		out[i] = strings.ToLower(l)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Best chooses the pool and the set for a job: the smallest set that holds all required labels and none of the excluded,
// the first configured among equals. A pool whose mandatory labels are not all required is passed over. A job that
// requires nothing gets the first set of such a pool. ok is false when nothing fits.
func Best(pools []Pool, required, exclude []string) (pool, set int, ok bool) {
	required, exclude = lowered(required), lowered(exclude)
	smallest := 0
	for p, candidate := range pools {
		if !containsAll(required, lowered(candidate.Mandatory)) {
			continue
		}
		for s, labels := range candidate.Sets {
			labels = lowered(labels)
			if !containsAll(labels, required) || slices.ContainsFunc(exclude, func(l string) bool { return slices.Contains(labels, l) }) {
				continue
			}
			if len(required) == 0 {
				return p, s, true
			}
			if !ok || len(labels) < smallest {
				pool, set, ok, smallest = p, s, true, len(labels)
			}
		}
	}
	return pool, set, ok
}
