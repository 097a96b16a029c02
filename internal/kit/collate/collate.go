// Package collate orders names the way ECMAScript's localeCompare does without a locale: ICU's root collation, where
// punctuation stands before digits before letters, and lower case before upper case only as the last difference.
// Positions of fan-out children, dimension order of a matrix and lists shown to people all follow it, since agents and
// author tools order by it too.
package collate

import (
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"
)

// A collator keeps iterators between calls, so one may serve only one goroutine at a time. The garbage collector
// empties the pool, hence it needs no bound.
var collators = sync.Pool{New: func() any { return collate.New(language.Und) }}

// Compare is negative when a stands before b, positive when after, and 0 only for equal strings. Texts that the
// collation holds equal though their bytes differ (combined and decomposed accents) fall back to byte order, so that a
// sort never depends on the order it started with.
func Compare(a, b string) int {
	if a == b {
		return 0
	}
	if plain(a) && plain(b) {
		return strings.Compare(a, b)
	}
	c := collators.Get().(*collate.Collator)
	defer collators.Put(c)
	if d := c.CompareString(a, b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// Strings sorts s in place.
func Strings(s []string) {
	slices.SortFunc(s, Compare)
}

// plain tells whether s holds only digits and lower-case ASCII letters, for which the collation is byte order. Most
// names of jobs and agents are of this kind or nearly so, and the tables cost some hundred times as much.
func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
