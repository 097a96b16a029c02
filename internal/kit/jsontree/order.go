package jsontree

import (
	"slices"

	"kici/internal/kit/ecma"
)

// arrange puts members in ECMAScript order and drops repeated keys.
func arrange(members []Node) []Node {
	members = dropRepeated(members)
	if !slices.ContainsFunc(members, func(n Node) bool { return ecma.IsIndex(n.Key) }) {
		return members
	}
	slices.SortStableFunc(members, func(a, b Node) int { return ecma.CompareKeys(a.Key, b.Key) })
	return members
}

func dropRepeated(members []Node) []Node {
	if !hasRepeated(members) {
		return members
	}
	place := make(map[string]int, len(members))
	kept := members[:0]
	for _, m := range members {
		if at, ok := place[m.Key]; ok {
			kept[at] = m
			continue
		}
		place[m.Key] = len(kept)
		kept = append(kept, m)
	}
	return kept
}

func hasRepeated(members []Node) bool {
	if len(members) > 24 { // beyond this, comparing each with each costs more than a map
		seen := make(map[string]bool, len(members))
		for _, m := range members {
			seen[m.Key] = true
		}
		return len(seen) < len(members)
	}
	for i := range members {
		for j := range i {
			if members[i].Key == members[j].Key {
				return true
			}
		}
	}
	return false
}
