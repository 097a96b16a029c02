package logs

import (
	"context"
	"slices"

	"kici/internal/server/logs/index"
	"kici/internal/server/logs/search"
)

// MaxPage bounds one page, in bytes. A page always holds at least one line, however long it is.
const MaxPage = 8 << 20

// Lines gives stored lines, each a JSON object, from a line number on, counted from 0; at most limit of them, fewer
// where they are very long. Total is the number of lines of the log; next is the number to go on from, 0 when nothing
// follows. A log that does not exist has no lines.
func (s *Store) Lines(ctx context.Context, path string, from int64, limit int) (lines []string, total, next int64, err error) {
	from = max(from, 0)
	err = s.reading(ctx, path, func(v *index.View) error {
		if total = v.Lines; limit <= 0 {
			return nil
		}
		size := 0
		return v.EachFrom(from, func(_ int64, line []byte) bool {
			lines = append(lines, string(line))
			size += len(line)
			return len(lines) < limit && size < MaxPage
		})
	})
	if next = from + int64(len(lines)); next >= total || len(lines) == 0 {
		next = 0
	}
	return lines, total, next, err
}

// Tail gives the last stored lines, n at most, in their order, and the number of all.
func (s *Store) Tail(ctx context.Context, path string, n int) (lines []string, total int64, err error) {
	err = s.reading(ctx, path, func(v *index.View) error {
		total = v.Lines
		size := 0
		return v.EachBack(func(line []byte) bool {
			if len(lines) >= n || size >= MaxPage {
				return false
			}
			lines = append(lines, string(line))
			size += len(line)
			return true
		})
	})
	slices.Reverse(lines)
	return lines, total, err
}

// Search looks through the texts of a log's lines; see search.In. errors.Is(err, logline.ErrQuery) tells that the query is at fault.
func (s *Store) Search(ctx context.Context, path string, q search.Query) (found search.Found, err error) {
	match, err := q.Matcher()
	if err != nil {
		return found, err
	}
	found.Hits = []search.Hit{}
	err = s.reading(ctx, path, func(v *index.View) error {
		found, err = search.In(ctx, v, q, match)
		return err
	})
	return found, err
}
