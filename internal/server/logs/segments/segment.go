package segments

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"kici/internal/server/logs/index"
)

// segment is a part of a log that is kept in parts. Its bytes are lines of the log like those of a file, and its name
// says which: the names of a log's segments are its index, and there is nothing beside them that could be torn or lost.
//
//	seg-000003-019ac3f2d1004f1c2a77-8388608-81920                   in the data folder
//	seg-000003-019ac3f2d1004f1c2a77-8388608-81920-12582912-122880   in the object store
//
// These are its number, its id, and how many bytes and lines of the log lie before it and up to its end.
type segment struct {
	number   int
	id       string    // time of birth and chance: what two servers write never meets under one name
	from, to index.End // as the marks in the segment count
	at       index.End // where it begins in the whole log; not from, when two servers went on from one place
}

// maxNumber keeps names in the order of their numbers.
const maxNumber = 999_999

func newSegment(number int, from index.End) segment {
	id := fmt.Sprintf("%012x%08x", time.Now().UnixMilli(), rand.Uint32())
	return segment{number: number, id: id, from: from, to: from, at: from}
}

// local is the name in the data folder. It does not change when the segment is sealed.
func (g segment) local() string {
	return fmt.Sprintf("seg-%06d-%s-%d-%d", g.number, g.id, g.from.Size, g.from.Lines)
}

// object is the name in the object store.
func (g segment) object() string { return fmt.Sprintf("%s-%d-%d", g.local(), g.to.Size, g.to.Lines) }

func (g segment) size() int64  { return g.to.Size - g.from.Size }
func (g segment) lines() int64 { return g.to.Lines - g.from.Lines }

// stop is where the segment ends in the whole log.
func (g segment) stop() index.End {
	return index.End{Size: g.at.Size + g.size(), Lines: g.at.Lines + g.lines()}
}

// born is when the segment was begun.
func (g segment) born() time.Time {
	ms, err := strconv.ParseInt(g.id[:12], 16, 64)
	if err != nil {
		return time.Time{} // no segment has such an id
	}
	return time.UnixMilli(ms)
}

var segmentName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^seg-([0-9]{6})-([0-9a-f]{20})-([0-9]{1,18})-([0-9]{1,18})(?:-([0-9]{1,18})-([0-9]{1,18}))?$`)
})

// parseSegment reads either name of a segment; sealed tells that it was the one of the object store, which alone knows the
// end. A name that this package did not write is not ok.
func parseSegment(name string) (g segment, sealed, ok bool) {
	m := segmentName().FindStringSubmatch(name)
	if m == nil {
		return segment{}, false, false
	}
	var n [5]int64
	for i, text := range []string{m[1], m[3], m[4], m[5], m[6]} {
		n[i], _ = strconv.ParseInt(cmp.Or(text, "0"), 10, 64) // 18 digits fit
	}
	g = segment{number: int(n[0]), id: m[2], from: index.End{Size: n[1], Lines: n[2]}, to: index.End{Size: n[1], Lines: n[2]}}
	if sealed = m[5] != ""; sealed {
		g.to = index.End{Size: n[3], Lines: n[4]}
	}
	return g, sealed, g.number > 0 && g.size() >= 0 && g.lines() >= 0
}

// parseSegments reads the names of sealed segments out of paths.
func parseSegments(paths []string) []segment {
	var out []segment
	for _, p := range paths {
		if g, sealed, ok := parseSegment(path.Base(p)); ok && sealed {
			out = append(out, g)
		}
	}
	return out
}

// arrange puts the segments of a log in their order, each once, and tells where each begins. The order is by number, and
// by birth where two servers wrote one number.
func arrange(segments []segment) []segment {
	slices.SortFunc(segments, func(a, b segment) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.id, b.id), cmp.Compare(b.to.Size, a.to.Size))
	})
	segments = slices.CompactFunc(segments, func(a, b segment) bool { return a.number == b.number && a.id == b.id })
	var at index.End
	for i := range segments {
		segments[i].at = at
		if at = segments[i].stop(); at.Size > math.MaxInt64/2 {
			return segments[:i] // no real log; a sum of more would overflow
		}
	}
	return segments
}

// endOf is where the last of arranged segments ends.
func endOf(segments []segment) index.End {
	if len(segments) == 0 {
		return index.End{}
	}
	return segments[len(segments)-1].stop()
}

// nextNumber is that of a segment behind arranged ones.
func nextNumber(segments []segment) int {
	if len(segments) == 0 {
		return 1
	}
	return min(segments[len(segments)-1].number+1, maxNumber)
}
