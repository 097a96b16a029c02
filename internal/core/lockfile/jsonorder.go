package lockfile

import (
	"slices"
	"strings"
)

// arrange puts members in ECMAScript order and drops repeated keys.
func arrange(members []node) []node {
	members = dropRepeated(members)
	if !slices.ContainsFunc(members, func(n node) bool { return isIndex(n.key) }) {
		return members
	}
	slices.SortStableFunc(members, func(a, b node) int { return compareKeys(a.key, b.key) })
	return members
}

// compareKeys puts array indices before other keys and orders them by value; other keys keep their order.
func compareKeys(a, b string) int {
	ai, bi := isIndex(a), isIndex(b)
	switch {
	case ai && bi && len(a) != len(b):
		return len(a) - len(b)
	case ai && bi:
		return strings.Compare(a, b)
	case ai:
		return -1
	case bi:
		return 1
	}
	return 0
}

func dropRepeated(members []node) []node {
	if !hasRepeated(members) {
		return members
	}
	place := make(map[string]int, len(members))
	kept := members[:0]
	for _, m := range members {
		if at, ok := place[m.key]; ok {
			kept[at] = m
			continue
		}
		place[m.key] = len(kept)
		kept = append(kept, m)
	}
	return kept
}

func hasRepeated(members []node) bool {
	if len(members) > 24 { // beyond this, comparing each with each costs more than a map
		seen := make(map[string]bool, len(members))
		for _, m := range members {
			seen[m.key] = true
		}
		return len(seen) < len(members)
	}
	for i := range members {
		for j := range i {
			if members[i].key == members[j].key {
				return true
			}
		}
	}
	return false
}

// isIndex tells whether an ECMAScript object takes the key as an array index: 0 to 2^32-2 in shortest decimal form.
func isIndex(key string) bool {
	if key == "" || len(key) > 10 || key[0] == '0' && len(key) > 1 {
		return false
	}
	for i := range len(key) {
		if key[i] < '0' || key[i] > '9' {
			return false
		}
	}
	return len(key) < 10 || key <= "4294967294"
}
