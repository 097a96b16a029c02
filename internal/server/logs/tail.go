package logs

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
	"slices"

	"kici/internal/core/logline"
)

// Blocks in which a log is read: backwards for its end, forwards for marks.
const (
	tailBlock = 64 << 10
	markBlock = 16 << 10  // the first one
	scanBlock = 256 << 10 // and what it grows to
)

// maxTorn is how much may follow the last mark. A chunk is never nearly as large, so a file with more is not ours.
const maxTorn = 256 << 20

var errForeign = errors.New("the file was not written by this server: it has no complete chunk near its end")

// tail is what the end of a log tells.
type tail struct {
	end       end
	truncated bool
	recent    []uint64 // hashes of the last chunk ids, oldest first
}

// readTail finds the last complete chunk of a log of that size and the ids of the latest chunks, up to the given number.
// What follows the last mark is a torn chunk and not part of the log.
func readTail(r io.ReaderAt, size int64, ids int) (tail, error) {
	var t tail
	found := false
	tooFar := false
	err := eachLineBack(r, size, func(line []byte, lineEnd int64) bool {
		m, ok := logline.ReadMark(line)
		if ok && !found {
			found = true
			t.end, t.truncated = end{size: lineEnd, lines: m.Lines}, m.Truncated
		}
		if ok {
			t.recent = append(t.recent, maphash.String(idSeed, m.Chunk))
		}
		if !found {
			tooFar = size-lineEnd > maxTorn
			return !tooFar
		}
		return len(t.recent) < ids && t.end.size-lineEnd < windowBytes
	})
	if err == nil && tooFar {
		err = errForeign
	}
	slices.Reverse(t.recent)
	return t, err
}

// eachLineBack calls fn with the complete lines of r, the last one first, until it returns false. The line lacks its
// break; lineEnd is the offset behind the break. Text after the last break is no line.
func eachLineBack(r io.ReaderAt, size int64, fn func(line []byte, lineEnd int64) bool) error {
	var buf []byte // the bytes [low, low+len(buf)) of r, which end with a line's break once one was found
	low, block := size, int64(tailBlock)
	aligned := false
	for low > 0 {
		n := min(block, low)
		next := make([]byte, int(n)+len(buf))
		if _, err := r.ReadAt(next[:n], low-n); err != nil {
			return err
		}
		copy(next[n:], buf)
		buf, low = next, low-n
		if !aligned {
			last := bytes.LastIndexByte(buf, '\n')
			buf = buf[:last+1]
			aligned = last >= 0
		}
		had := len(buf)
		for len(buf) > 0 {
			begin := bytes.LastIndexByte(buf[:len(buf)-1], '\n') + 1
			if begin == 0 && low > 0 {
				break // the line begins in an earlier block
			}
			if !fn(buf[begin:len(buf)-1], low+int64(len(buf))) {
				return nil
			}
			buf = buf[:begin]
		}
		if block = tailBlock; len(buf) == had && had > 0 {
			block = int64(2 * had) // one long line: grow, so that its blocks are not copied again and again
		}
	}
	return nil
}

// locate finds a chunk's begin at or before the given line, at most about one block and one chunk away from it, by
// halving the bytes between two places: the first mark behind the middle says on which side the line lies. The marks
// count shift lines less than the log has.
func locate(r io.ReaderAt, low end, high, shift, line int64) (end, error) {
	for high-low.size > tailBlock {
		middle := low.size + (high-low.size)/2
		p, ok, err := nextMark(r, middle, high)
		if err != nil {
			return end{}, err
		}
		if p.lines += shift; ok && p.lines <= line {
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
	near, err := locate(r, end{}, size, 0, line)
	if err != nil {
		return 0, err
	}
	offset := near.size
	err = eachLine(r, near.size, size, func(_ []byte, lineEnd int64) bool {
		if near.lines == line {
			return false
		}
		near.lines++
		offset = lineEnd
		return true
	})
	return offset, err
}

// nextMark finds the end of the first chunk that ends behind the first line break at or after from, and not after high.
func nextMark(r io.ReaderAt, from, high int64) (p end, ok bool, err error) {
	skipped := false // the line in which from lies is not whole
	err = eachLine(r, from, high, func(line []byte, lineEnd int64) bool {
		if !skipped {
			skipped = true
			return true
		}
		m, is := logline.ReadMark(line)
		if is {
			p, ok = end{size: lineEnd, lines: m.Lines}, true
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
