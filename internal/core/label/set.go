package label

import (
	"slices"
	"strings"
)

// SetKey is the identity of a label set on the scalers' side, where neither case nor order nor repetition counts.
func SetKey(labels []string) string { return strings.Join(Folded(labels), ",") }

// SameSet tells whether two label sets are one by SetKey.
func SameSet(a, b []string) bool { return SetKey(a) == SetKey(b) }

// Folded lists the labels in lower case, sorted and without repetition.
func Folded(labels []string) []string {
	out := make([]string, len(labels))
	for i, l := range labels {
		out[i] = strings.ToLower(l)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Has tells whether the set holds the label in any case. Routing and matching both ask here: if one of them minded the
// case, agents would be started for jobs that they can never take.
func Has(set []string, l string) bool {
	return slices.ContainsFunc(set, func(s string) bool { return strings.EqualFold(s, l) })
}

// HasAll tells whether the set holds each of the labels in any case.
func HasAll(set, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(l string) bool { return !Has(set, l) })
}

// HasAny tells whether the set holds one of the labels in any case.
func HasAny(set, unwanted []string) bool {
	return slices.ContainsFunc(unwanted, func(l string) bool { return Has(set, l) })
}
