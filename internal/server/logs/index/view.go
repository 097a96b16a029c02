// Package index reads a log as the bytes that it is, wherever they lie. The marks at the ends of its chunks are its index:
// they tell where the last complete chunk ends, and between them any line of a gigabyte is found by halving.
package index

import (
	"io"
	"sort"
)

// View is a log as it was at one moment. It can be read while the log grows.
type View struct {
	io.ReaderAt
	End
	Parts []Part       // of a log that is kept in parts, in their order
	Close func() error // gives back what reading took
}

// Part is a stretch of a log that begins with a chunk.
type Part struct {
	At, Stop End
	Shift    int64 // lines that its marks count less than the log has
}

// EachFrom calls fn with the lines from a number on, counted from 0, and their numbers, until it returns false. The line
// lacks its break, and is only lent.
func (v *View) EachFrom(from int64, fn func(number int64, line []byte) bool) error {
	if from >= v.Lines {
		return nil
	}
	start, err := v.locate(from)
	if err != nil {
		return err
	}
	at := start.Lines
	return eachLine(v, start.Size, v.Size, func(line []byte, _ int64) bool {
		number := at
		at++
		return number < from || fn(number, line)
	})
}

// EachBack calls fn with the lines, the last one first, until it returns false. The line lacks its break, and is only lent.
func (v *View) EachBack(fn func(line []byte) bool) error {
	return eachLineBack(v, v.Size, func(line []byte, _ int64) bool { return fn(line) })
}

// locate finds a place near before a line. In a log of parts they say where it lies.
func (v *View) locate(line int64) (End, error) {
	if v.Parts == nil {
		return locate(v, End{}, v.Size, 0, line)
	}
	i := sort.Search(len(v.Parts), func(i int) bool { return v.Parts[i].Stop.Lines > line })
	p := v.Parts[min(i, len(v.Parts)-1)]
	return locate(v, p.At, p.Stop.Size, p.Shift, line)
}
