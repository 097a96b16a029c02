// Package search finds text in the lines of a log, within bounds of hits and time.
package search

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"kici/internal/core/logline"
	"kici/internal/server/logs/index"
)

// Bounds of one search.
const (
	defaultHits   = 100
	maxHits       = 1000
	defaultSearch = 2 * time.Second
	maxHitText    = 4 << 10 // of a line's text that is shown; a longer one is cut around the place
	hitLead       = 512     // of it what is shown before the place
	lookAtClock   = 256     // lines between two looks at the clock
)

// Query is a search of a log.
type Query struct {
	Text    string        // what a line must hold, or
	Pattern string        // an RE2 expression that it must match
	Fold    bool          // upper and lower case are the same
	From    int64         // line to begin with
	Limit   int           // hits at most; 100 when not positive, 1,000 at most
	Time    time.Duration // how long to search; 2 s when not positive
}

// Hit is a line that was found.
type Hit struct {
	Line int64  // counted from 0
	TS   string // time of the line as it is stored
	Text string // without ANSI codes; a very long one is cut around the place, with … where something is missing
}

// Found is what one search found.
type Found struct {
	Hits  []Hit
	Total int64 // lines of the log
	Next  int64 // line to go on from; Total when nothing is left to search
}

// In looks through the texts of a log's lines in their order, ANSI codes left out, until it has enough, or its time is up, or
// the log ends. It makes progress with every call.
func In(ctx context.Context, v *index.View, q Query, match logline.Matcher) (Found, error) {
	q = q.Bounded()
	found := Found{Hits: []Hit{}, Total: v.Lines}
	err := found.fill(ctx, v, q, match)
	return found, err
}

// Matcher is what the query looks for. errors.Is(err, logline.ErrQuery) tells that it cannot be looked for.
func (q Query) Matcher() (logline.Matcher, error) { return logline.Compile(q.Text, q.Pattern, q.Fold) }

// Bounded is the query with the defaults, and within the bounds.
func (q Query) Bounded() Query {
	if q.Limit <= 0 {
		q.Limit = defaultHits
	}
	if q.Time <= 0 {
		q.Time = defaultSearch
	}
	q.From, q.Limit = max(q.From, 0), min(q.Limit, maxHits)
	return q
}

func (f *Found) fill(ctx context.Context, v *index.View, q Query, match logline.Matcher) error {
	deadline := time.Now().Add(q.Time)
	f.Next = f.Total
	var buf, text []byte
	err := v.EachFrom(q.From, func(number int64, line []byte) bool {
		if (number-q.From)%lookAtClock == lookAtClock-1 && (ctx.Err() != nil || time.Now().After(deadline)) {
			f.Next = number
			return false
		}
		text, buf = logline.Text(line, buf)
		at := match(text)
		if at < 0 {
			return true
		}
		f.Hits = append(f.Hits, Hit{Line: number, TS: logline.Time(line), Text: around(text, at)})
		if len(f.Hits) == q.Limit {
			f.Next = number + 1
			return false
		}
		return true
	})
	if err == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// around is a text, or what lies around a place in one that is too long to be shown.
func around(text []byte, at int) string {
	if len(text) <= maxHitText {
		return strings.ToValidUTF8(string(text), "\uFFFD")
	}
	from := max(0, min(at-hitLead, len(text)-maxHitText))
	to := from + maxHitText
	for n := 1; n < utf8.UTFMax && from > 0 && !utf8.RuneStart(text[from]); n++ {
		from--
	}
	for n := 1; n < utf8.UTFMax && to < len(text) && !utf8.RuneStart(text[to]); n++ {
		to--
	}
	cut := strings.ToValidUTF8(string(text[from:to]), "\uFFFD")
	if from > 0 {
		cut = "…" + cut
	}
	if to < len(text) {
		cut += "…"
	}
	return cut
}
