package joined

import (
	"context"
	"errors"
	"io"
	"sort"
	"strings"
	"time"

	"kici/internal/core/logline"
	"kici/internal/server/logs"
	"kici/internal/server/logs/index"
	"kici/internal/server/logs/search"
)

// Lines gives lines of the whole log; see logs.Store.Lines.
func (j *Log) Lines(ctx context.Context, path string, from int64, limit int) (lines []string, total, next int64, err error) {
	a, only, err := j.arrange(ctx, path)
	if err != nil {
		return nil, 0, 0, err
	}
	if only != nil {
		return only.Lines(ctx, path, from, limit)
	}
	from, total = max(from, 0), a.total()
	if lines, err = a.read(from, total, limit); err != nil {
		return nil, 0, 0, err
	}
	if next = from + int64(len(lines)); next >= total || len(lines) == 0 {
		next = 0
	}
	return lines, total, next, nil
}

// read gives the lines of a stretch of the whole log, limit at most, fewer where they are very long.
func (a *joint) read(from, to int64, limit int) (lines []string, err error) {
	size := 0
	for _, s := range a.spans(from) {
		room := min(int64(limit-len(lines)), to-s.at)
		if room <= 0 || size >= logs.MaxPage {
			break
		}
		if s.gap != "" {
			lines = append(lines, s.gap)
			continue
		}
		err = a.each(s.part, s.from, min(s.to, s.from+room), func(line string) bool {
			lines = append(lines, line)
			size += len(line)
			return size < logs.MaxPage
		})
		if err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// Tail gives the last lines of the whole log; see logs.Store.Tail.
func (j *Log) Tail(ctx context.Context, path string, n int) (lines []string, total int64, err error) {
	a, only, err := j.arrange(ctx, path)
	if err != nil {
		return nil, 0, err
	}
	if only != nil {
		return only.Tail(ctx, path, n)
	}
	total = a.total()
	size, look := 0, int64(firstLook)
	for to := total; to > 0 && len(lines) < n && size < logs.MaxPage; look = min(2*look, mostLook) {
		from := max(0, to-min(look, int64(n-len(lines))))
		block, err := a.read(from, to, int(to-from))
		if err != nil {
			return nil, 0, err
		}
		for int64(len(block)) < to-from { // very long lines
			rest, err := a.read(from+int64(len(block)), to, int(to-from))
			if err != nil {
				return nil, 0, err
			}
			block = append(block, rest...)
		}
		for _, line := range block {
			size += len(line)
		}
		lines, to = append(block, lines...), from
	}
	return lines, total, nil
}

// Wait waits for a line of the whole log, with the node that has the job; see logs.Store.Wait. Whoever follows a job that goes
// to yet another node bounds the wait and asks anew.
func (j *Log) Wait(ctx context.Context, path string, line int64) (more bool, err error) {
	a, only, err := j.arrange(ctx, path)
	if err != nil {
		return false, err
	}
	if only != nil {
		return only.Wait(ctx, path, line)
	}
	total := a.total()
	if total > line {
		return true, nil
	}
	last := a.Stays[len(a.Stays)-1]
	if a.away[last] != nil {
		<-ctx.Done()
		return false, context.Cause(ctx)
	}
	return a.All[last].Log.Wait(ctx, path, a.totals[last]+line-total)
}

// Search looks through the whole log; see logs.Store.Search.
func (j *Log) Search(ctx context.Context, path string, q search.Query) (search.Found, error) {
	match, err := logline.Compile(q.Text, q.Pattern, q.Fold)
	if err != nil {
		return search.Found{}, err
	}
	a, only, err := j.arrange(ctx, path)
	if err != nil {
		return search.Found{}, err
	}
	if only != nil {
		return only.Search(ctx, path, q)
	}
	q = q.Bounded()
	found := search.Found{Hits: []search.Hit{}, Total: a.total()}
	deadline := time.Now().Add(q.Time)
	for _, s := range a.spans(q.From) {
		found.Next = s.at
		if q.Time = time.Until(deadline); q.Time <= 0 && s.at > q.From || len(found.Hits) >= q.Limit {
			return found, nil
		}
		if s.gap != "" {
			s.judge(match, &found)
			continue
		}
		whole, err := a.search(s, q, &found)
		if err != nil || !whole {
			return found, err
		}
	}
	found.Next = found.Total
	return found, nil
}

// judge looks at the line that stands for a part.
func (s span) judge(match logline.Matcher, found *search.Found) {
	text, _ := logline.Text([]byte(s.gap), nil)
	if match(text) >= 0 {
		found.Hits = append(found.Hits, search.Hit{Line: s.at, TS: logline.Time([]byte(s.gap)), Text: string(text)})
	}
}

// search looks through a span and reports whether it came to its end.
func (a *joint) search(s span, q search.Query, found *search.Found) (whole bool, err error) {
	q.From, q.Limit = s.from, q.Limit-len(found.Hits)
	got, err := a.All[s.part].Log.Search(a.ctx, a.path, q)
	if err != nil {
		return false, err
	}
	for _, h := range got.Hits {
		if h.Line >= s.to {
			break // its place is elsewhere, or it has come since
		}
		h.Line += s.at - s.from
		found.Hits = append(found.Hits, h)
	}
	if got.Next < s.to {
		found.Next = got.Next + s.at - s.from
		return false, nil
	}
	return true, nil
}

// Open opens the whole log as bytes; see logs.Store.Open.
func (j *Log) Open(ctx context.Context, path string) (logs.Content, error) {
	a, only, err := j.arrange(ctx, path)
	if err != nil {
		return logs.Content{}, err
	}
	if only != nil {
		return only.Open(ctx, path)
	}
	c := &joinedBytes{opened: make([]*logs.Content, len(a.All))}
	for i, p := range a.pieces {
		if err := c.add(a, p, i == len(a.pieces)-1); err != nil {
			return logs.Content{}, errors.Join(err, c.Close())
		}
	}
	return logs.NewContent(c, c.size, c.Close), nil
}

// joinedBytes are the bytes of pieces, one behind the other.
type joinedBytes struct {
	opened []*logs.Content // of each part that is read
	parts  []stretch
	size   int64
}

// stretch is a part of the bytes, which begins at a byte of the whole.
type stretch struct {
	*io.SectionReader
	at int64
}

// add puts a piece behind the others. The last one reaches as far as its part does by now.
func (c *joinedBytes) add(a *joint, p piece, last bool) error {
	if p.gap != "" {
		text := p.gap + "\n"
		c.append(io.NewSectionReader(strings.NewReader(text), 0, int64(len(text))))
		return nil
	}
	if c.opened[p.part] == nil {
		content, err := a.All[p.part].Log.Open(a.ctx, a.path)
		if err != nil {
			return err
		}
		c.opened[p.part] = &content
	}
	content := c.opened[p.part]
	from, err := index.OffsetOf(content, content.Size(), p.from)
	if err != nil {
		return err
	}
	to := content.Size()
	if !last {
		if to, err = index.OffsetOf(content, to, p.to); err != nil {
			return err
		}
	}
	c.append(io.NewSectionReader(content, from, to-from))
	return nil
}

func (c *joinedBytes) append(r *io.SectionReader) {
	c.parts = append(c.parts, stretch{r, c.size})
	c.size += r.Size()
}

// ReadAt implements io.ReaderAt.
func (c *joinedBytes) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		i := sort.Search(len(c.parts), func(i int) bool { return c.parts[i].at+c.parts[i].Size() > off })
		if i == len(c.parts) {
			return n, io.EOF
		}
		s := c.parts[i]
		got, err := s.ReadAt(p[n:min(int64(len(p)), int64(n)+s.at+s.Size()-off)], off-s.at)
		n, off = n+got, off+int64(got)
		if err != nil && !(errors.Is(err, io.EOF) && got > 0) {
			return n, err
		}
	}
	return n, nil
}

// Close closes what was opened.
func (c *joinedBytes) Close() error {
	var errs []error
	for _, content := range c.opened {
		if content != nil {
			errs = append(errs, content.Close())
		}
	}
	return errors.Join(errs...)
}
