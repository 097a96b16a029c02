package index

import (
	"bytes"
	"io"
	"slices"

	"kici/internal/core/logline"
)

// Blocks in which a log is read forwards.
const (
	markBlock = 16 << 10  // the first one
	scanBlock = 256 << 10 // and what it grows to
)

// locate finds a chunk's begin at or before the given line, at most about one block and one chunk away from it, by
// halving the bytes between two places: the first mark behind the middle says on which side the line lies. The marks
// count shift lines less than the log has.
func locate(r io.ReaderAt, low End, high, shift, line int64) (End, error) {
	for high-low.Size > tailBlock {
		middle := low.Size + (high-low.Size)/2
		p, ok, err := nextMark(r, middle, high)
		if err != nil {
			return End{}, err
		}
		if p.Lines += shift; ok && p.Lines <= line {
			low = p
		} else {
			high = middle
		}
	}
	return low, nil
}

// OffsetOf is the byte at which a line begins, or the end of a log that does not have it.
func OffsetOf(r io.ReaderAt, size, line int64) (int64, error) {
	if line <= 0 {
		return 0, nil
	}
	near, err := locate(r, End{}, size, 0, line)
	if err != nil {
		return 0, err
	}
	offset := near.Size
	err = eachLine(r, near.Size, size, func(_ []byte, lineEnd int64) bool {
		if near.Lines == line {
			return false
		}
		near.Lines++
		offset = lineEnd
		return true
	})
	return offset, err
}

// nextMark finds the end of the first chunk that ends behind the first line break at or after from, and not after high.
func nextMark(r io.ReaderAt, from, high int64) (p End, ok bool, err error) {
	skipped := false // the line in which from lies is not whole
	err = eachLine(r, from, high, func(line []byte, lineEnd int64) bool {
		if !skipped {
			skipped = true
			return true
		}
		m, is := logline.ReadMark(line)
		if is {
			p, ok = End{Size: lineEnd, Lines: m.Lines}, true
		}
		return !is
	})
	return p, ok, err
}

// eachLine calls fn with the lines of r between from and high until it returns false. The line lacks its break; lineEnd
// is the offset behind the break. What follows the last break before high is no line. The blocks grow: what is looked for
// is often near, and who reads on reads much.
func eachLine(r io.ReaderAt, from, high int64, fn func(line []byte, lineEnd int64) bool) error {
	var buf []byte
	block := int64(markBlock)
	for at := from; at < high; {
		n := min(block, high-at)
		had := len(buf)
		buf = slices.Grow(buf, int(n))[:had+int(n)]
		if _, err := r.ReadAt(buf[had:], at); err != nil {
			return err
		}
		at += n
		begin, searched := 0, had
		for {
			i := bytes.IndexByte(buf[searched:], '\n')
			if i < 0 {
				break
			}
			stop := searched + i
			if !fn(buf[begin:stop], at-int64(len(buf)-stop-1)) {
				return nil
			}
			begin, searched = stop+1, stop+1
		}
		buf = buf[:copy(buf, buf[begin:])]
		block = max(min(2*block, scanBlock), min(int64(2*len(buf)), 1<<20))
	}
	return nil
}
