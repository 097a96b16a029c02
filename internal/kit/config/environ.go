package config

import (
	"maps"
	"slices"
	"strings"
)

// environment applies the variables. One set to the empty text counts as not set.
func (l *loader) environment() {
	values := map[string]string{}
	for _, entry := range l.o.Environ {
		if name, value, ok := strings.Cut(entry, "="); ok && value != "" {
			values[name] = value
		}
	}
	known := map[string]bool{}
	for _, f := range l.leaves {
		used := ""
		for _, name := range f.Env {
			known[name] = true
			value, set := values[name]
			switch {
			case !set:
			case used == "":
				used = name
				l.take(f, name, func() *mistake { return f.setText(value) })
			case value != values[used]:
				l.warn("%s is set beside %s, which counts", name, used)
			}
		}
	}
	l.unknown(values, known)
}

// unknown finds variables that look like settings and are none.
func (l *loader) unknown(values map[string]string, known map[string]bool) {
	names := slices.Sorted(maps.Keys(known))
	for _, name := range sortedKeys(values) {
		switch {
		case l.o.Prefix == "" || !strings.HasPrefix(name, l.o.Prefix) || known[name] || matchesAny(l.o.Ignored, name):
		case matchesAny(l.o.Obsolete, name):
			l.warn("%s has no effect", name)
		case l.o.Lenient:
			l.warn("%s is no known setting", name)
		default:
			l.add(Problem{Source: name, Wrong: "there is no such setting", Right: suggest(name, names)})
		}
	}
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		beginning, open := strings.CutSuffix(p, "*")
		return p == name || open && strings.HasPrefix(name, beginning)
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// suggest says which known name was probably meant, if one is near.
func suggest(name string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(name, k, distance); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return "remove it"
	}
	return "did you mean " + best + "?"
}

// editDistance counts the characters to change, add or remove on the way from a to b; it may stop counting at the limit.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal = row[j]
			row[j] = min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
