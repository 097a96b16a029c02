package index

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
	"slices"

	"kici/internal/core/logline"
)

// tailBlock is the block in which a log is read backwards.
const tailBlock = 64 << 10

// maxTorn is how much may follow the last mark. A chunk is never nearly as large, so a file with more is not ours.
const maxTorn = 256 << 20

var errForeign = errors.New("the file was not written by this server: it has no complete chunk near its end")

// windowBytes is how far back a log is read for the ids of its latest chunks, at most: further than the buffers of a connection
// reach, which is what an agent may send again without knowing that it was stored.
const windowBytes = 16 << 20

var idSeed = maphash.MakeSeed()

// Hash is the hash of a chunk's id in this process.
func Hash(id string) uint64 { return maphash.String(idSeed, id) }

// End is how far a log reaches: the bytes and lines of its complete chunks.
type End struct {
	Size  int64
	Lines int64
}

// Tail is what the end of a log tells.
type Tail struct {
	End       End
	Truncated bool     // the log reached its cap
	Recent    []uint64 // hashes of the last chunk ids, oldest first
}

// ReadTail finds the last complete chunk of a log of that size and the ids of the latest chunks, up to the given number.
// What follows the last mark is a torn chunk and not part of the log.
func ReadTail(r io.ReaderAt, size int64, ids int) (Tail, error) {
	var t Tail
	found := false
	tooFar := false
	err := eachLineBack(r, size, func(line []byte, lineEnd int64) bool {
		m, ok := logline.ReadMark(line)
		if ok && !found {
			found = true
			t.End, t.Truncated = End{Size: lineEnd, Lines: m.Lines}, m.Truncated
		}
		if ok {
			t.Recent = append(t.Recent, Hash(m.Chunk))
		}
		if !found {
			tooFar = size-lineEnd > maxTorn
			return !tooFar
		}
		return len(t.Recent) < ids && t.End.Size-lineEnd < windowBytes
	})
	if err == nil && tooFar {
		err = errForeign
	}
	slices.Reverse(t.Recent)
	return t, err
}

var errNoMark = errors.New("the chunk has no mark at its end")

// LinesAfter is how many lines a log has with a chunk, as its mark tells.
func LinesAfter(chunk []byte) (int64, error) {
	line := bytes.TrimSuffix(chunk, []byte("\n"))
	m, ok := logline.ReadMark(line[bytes.LastIndexByte(line, '\n')+1:])
	if !ok {
		return 0, errNoMark
	}
	return m.Lines, nil
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
