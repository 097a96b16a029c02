// Package joined reads a log whose parts lie with several nodes as the one log that it is. How a node keeps its part is the
// matter of package logs.
package joined

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kici/internal/core/logline"
	"kici/internal/server/logs"
	"kici/internal/server/logs/search"
)

// Reader reads one log, or a part of it. What its methods do is told at those of logs.Store.
type Reader interface {
	Lines(ctx context.Context, path string, from int64, limit int) (lines []string, total, next int64, err error)
	Tail(ctx context.Context, path string, n int) (lines []string, total int64, err error)
	Wait(ctx context.Context, path string, line int64) (more bool, err error)
	Search(ctx context.Context, path string, q search.Query) (search.Found, error)
	Open(ctx context.Context, path string) (logs.Content, error)
}

// AwayError says that a part of a log cannot be read, and why.
type AwayError struct {
	Node string
	Why  string // goes on from "node x, which"
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("The log is on node %s, which %s", e.Node, e.Why)
}

// Part is what one node holds of a log.
type Part struct {
	Node string
	Log  Reader
	// Spare tells that the node need not hold anything: when it cannot be asked, nothing is missed.
	Spare bool
}

// Log reads a log whose parts lie with several nodes, since the agent went from one to another in mid-job, as the one
// log that it is. Where a part cannot be read, a line that says so stands in its place.
//
// A part begins with the chunks that the agent sent again, since it had not been told that another node had taken them:
// they are left out. Which part comes when is told by the stays; only what a node wrote in each of several stays has to be
// told apart by the times of the chunks, which are the agent's.
type Log struct {
	// Where finds the parts. It is asked at every reading, since the job may go on to another node.
	Where func(ctx context.Context) (Parts, error)
}

// Parts are where the parts of a log are, one at least.
type Parts struct {
	All   []Part
	Stays []int // of the job, in order, as places in All
}

// Bounds of the search for chunks that two nodes have stored. An agent sends again what was not acknowledged, which is
// far less.
const (
	firstLook  = 50 // lines; then come
	mostLook   = 400
	pageLines  = 2000
	maxOverlap = 4 << 20 // bytes of lines
)

// piece is a stretch of a joined log: lines of a part, or the line that stands for what is missing.
type piece struct {
	part     int
	from, to int64  // lines of the part
	gap      string // the stored form of a line that tells of a part
}

func (p piece) lines() int64 {
	if p.gap != "" {
		return 1
	}
	return p.to - p.from
}

// joint is how the parts of a log are put together at one moment.
type joint struct {
	Parts
	ctx    context.Context
	path   string
	totals []int64 // lines of each part, −1 when it cannot be read
	away   []error // why
	used   []int64 // lines of each part that have their place
	told   []bool  // of each part that its absence is stated
	hand   []hand  // of each part what was looked at last
	pieces []piece
}

// hand is a few lines of a part.
type hand struct {
	from  int64
	lines []string
}

// maxMoves is how often a reading begins anew since the job moved meanwhile.
const maxMoves = 5

// arrange finds out how the parts are put together. When there is but one, it is given instead. That the whole cannot be
// read at all is an error.
func (j *Log) arrange(ctx context.Context, path string) (a *joint, only Reader, err error) {
	parts, err := j.Where(ctx)
	for range maxMoves {
		if err != nil {
			return nil, nil, err
		}
		if len(parts.All) == 1 {
			return nil, parts.All[0].Log, nil
		}
		n := len(parts.All)
		a = &joint{Parts: parts, ctx: ctx, path: path, totals: make([]int64, n), away: make([]error, n), used: make([]int64, n),
			told: make([]bool, n), hand: make([]hand, n)}
		if err = a.count(); err != nil {
			return nil, nil, err
		}
		// Lines of a stay that is not known yet would be taken for those of an earlier one.
		if parts, err = j.Where(ctx); err == nil && slices.Equal(parts.Stays, a.Stays) {
			return a, nil, a.placeAll()
		}
	}
	return nil, nil, errors.Join(err, fmt.Errorf("read log %s: its job goes from node to node all the time", path))
}

// placeAll puts the lines of all parts in their order. Parts in which the job was once each follow each other; the lines of
// those to which it came back go by their times.
func (a *joint) placeAll() error {
	var order []int
	mixed := false
	for _, part := range a.Stays {
		switch {
		case a.away[part] != nil || len(order) > 0 && order[len(order)-1] == part:
		case slices.Contains(order, part):
			mixed = true
		default:
			order = append(order, part)
		}
	}
	if mixed {
		if err := a.merge(order); err != nil {
			return err
		}
	}
	for _, part := range order {
		if err := a.take(part, a.totals[part]); err != nil {
			return err
		}
	}
	return a.placeGaps(len(a.Stays))
}

// count asks each part how long it is.
func (a *joint) count() (err error) {
	readable := false
	for i, p := range a.All {
		_, a.totals[i], _, err = p.Log.Lines(a.ctx, a.path, 0, 0)
		if missing(err) {
			a.totals[i], a.away[i] = -1, err
			continue
		}
		if err != nil {
			return err
		}
		readable = true
	}
	if !readable {
		return a.away[len(a.away)-1]
	}
	return nil
}

// missing tells whether an error stands for a part that is not to be had.
func missing(err error) bool {
	_, away := errors.AsType[*AwayError](err)
	return away || errors.Is(err, logs.ErrExpired)
}

// take puts the lines of a part, up to one, behind those that have their place.
func (a *joint) take(part int, to int64) error {
	from := a.used[part]
	if from >= to {
		return nil
	}
	if err := a.placeGaps(slices.Index(a.Stays, part)); err != nil {
		return err
	}
	again, err := a.replayed(part, from, to)
	if err != nil {
		return err
	}
	a.used[part] = to
	if from += again; from >= to {
		return nil
	}
	if n := len(a.pieces); n > 0 && a.pieces[n-1].gap == "" && a.pieces[n-1].part == part && a.pieces[n-1].to == from {
		a.pieces[n-1].to = to
		return nil
	}
	a.pieces = append(a.pieces, piece{part: part, from: from, to: to})
	return nil
}

// merge takes from the parts what is oldest, as long as two of them have lines left.
func (a *joint) merge(order []int) error {
	for current := -1; ; {
		next, oldest, until := -1, "", ""
		for _, part := range order {
			if a.used[part] >= a.totals[part] {
				continue
			}
			at, err := a.timeOf(part, a.used[part])
			switch {
			case err != nil:
				return err
			case next < 0:
				next, oldest = part, at
			case at < oldest || at == oldest && part == current:
				next, oldest, until = part, at, oldest
			case until == "" || at < until:
				until = at
			}
		}
		if until == "" {
			return nil
		}
		to, err := a.lastUntil(next, until)
		if err != nil {
			return err
		}
		if err := a.take(next, to); err != nil {
			return err
		}
		current = next
	}
}

// lastUntil is behind the last line of a part, from its next one on, that is not younger than a time. It is often near.
func (a *joint) lastUntil(part int, until string) (int64, error) {
	low, high := a.used[part]+1, a.totals[part]
	for step := int64(1); low < high; {
		middle := min(low+step-1, low+(high-low)/2)
		at, err := a.timeOf(part, middle)
		if err != nil {
			return 0, err
		}
		if at > until {
			high, step = middle, high // it has been passed: halve from now on
		} else {
			low, step = middle+1, 2*step
		}
	}
	return low, nil
}

// placeGaps says of each part that cannot be read and in which the job was before a stay that it is missing.
func (a *joint) placeGaps(before int) error {
	for _, part := range a.Stays[:before] {
		if a.away[part] == nil || a.told[part] || a.All[part].Spare {
			continue
		}
		a.told[part] = true
		at, err := a.lastTime()
		if err != nil {
			return err
		}
		a.pieces = append(a.pieces, piece{part: part, gap: a.gap(part, at)})
	}
	return nil
}

// gap is the stored form of the line that stands for a part.
func (a *joint) gap(part int, at int64) string {
	why := "has deleted what it had, since its time was up"
	if away, ok := errors.AsType[*AwayError](a.away[part]); ok {
		why = away.Why
	}
	text := fmt.Sprintf("[lines may be missing here: the job was with node %s, which %s]", a.All[part].Node, why)
	return string(logline.AppendText(logline.AppendHead(nil, at), text)) + logline.End
}

// lastTime is when the last line that has its place was written, for the line behind it; 0 when there is none.
func (a *joint) lastTime() (int64, error) {
	if len(a.pieces) == 0 || a.pieces[len(a.pieces)-1].gap != "" {
		return 0, nil
	}
	p := a.pieces[len(a.pieces)-1]
	stamp, err := a.timeOf(p.part, p.to-1)
	if err != nil {
		return 0, err
	}
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return 0, nil // a line of another form has no time to go by
	}
	return at.UnixMilli(), nil
}

// timeOf is when a line was written, as it is stored. Lines near to one that was asked for are at hand.
func (a *joint) timeOf(part int, line int64) (string, error) {
	h := &a.hand[part]
	if line < h.from || line >= h.from+int64(len(h.lines)) {
		lines, _, _, err := a.All[part].Log.Lines(a.ctx, a.path, line, firstLook)
		if err != nil {
			return "", err
		}
		if len(lines) == 0 {
			return "", fmt.Errorf("read log %s of node %s: it ends before line %d", a.path, a.All[part].Node, line)
		}
		h.from, h.lines = line, lines
	}
	return logline.Time([]byte(h.lines[line-h.from])), nil
}

// replayed counts the lines from one on that belong to chunks which an earlier part has as well.
func (a *joint) replayed(part int, from, to int64) (int64, error) {
	others := slices.ContainsFunc(a.pieces, func(p piece) bool { return p.gap == "" && p.part != part })
	if from >= to || !others {
		return 0, nil
	}
	first, err := a.timeOf(part, from)
	if err != nil {
		return 0, err
	}
	known := map[string]bool{}
	for other := range a.All {
		if other != part && a.used[other] > 0 {
			if err := a.chunksSince(other, first, known); err != nil {
				return 0, err
			}
		}
	}
	if len(known) == 0 {
		return 0, nil
	}
	again, count := int64(0), int64(0)
	err = a.each(part, from, to, func(line string) bool {
		count++
		mark, ok := logline.ReadMark([]byte(line))
		if ok && known[mark.Chunk] {
			again = count
		}
		return !ok || known[mark.Chunk]
	})
	return again, err
}

// chunksSince collects the ids of the chunks of a part, as far as they have their place, that were sent at a time or later.
func (a *joint) chunksSince(part int, since string, into map[string]bool) error {
	look, size := int64(firstLook), 0
	for to := a.used[part]; to > 0 && size < maxOverlap; look = mostLook {
		from := max(0, to-look)
		older := false
		err := a.each(part, from, to, func(line string) bool {
			size += len(line)
			if logline.Time([]byte(line)) < since {
				older = true
			} else if mark, ok := logline.ReadMark([]byte(line)); ok {
				into[mark.Chunk] = true
			}
			return true
		})
		if err != nil || older {
			return err
		}
		to = from
	}
	return nil
}

// each calls fn with lines of a part until it returns false.
func (a *joint) each(part int, from, to int64, fn func(line string) bool) error {
	for from < to {
		lines, _, _, err := a.All[part].Log.Lines(a.ctx, a.path, from, int(min(to-from, pageLines)))
		if err != nil {
			return err
		}
		if len(lines) == 0 {
			return fmt.Errorf("read log %s of node %s: it ends before line %d", a.path, a.All[part].Node, to)
		}
		for _, line := range lines {
			if !fn(line) {
				return nil
			}
		}
		from += int64(len(lines))
	}
	return nil
}

func (a *joint) total() (n int64) {
	for _, p := range a.pieces {
		n += p.lines()
	}
	return n
}

// span is a stretch of lines, counted in the whole log, that lies within one piece.
type span struct {
	piece
	at int64 // line of the whole log with which it begins
}

// spans are the pieces from a line of the whole log on, the first of them cut there.
func (a *joint) spans(from int64) (out []span) {
	at := int64(0)
	for _, p := range a.pieces {
		end := at + p.lines()
		if end > from {
			if skip := from - at; skip > 0 {
				p.from += skip
				at = from
			}
			out = append(out, span{p, at})
		}
		at = end
	}
	return out
}
