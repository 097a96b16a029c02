package ledger

import (
	"fmt"
	"io"
	"os"
)

// segmentSize is where a new file is begun. A file goes when the last frame in it has been settled, so a long backlog
// gives its room back piece by piece.
const segmentSize = 8 << 20

// spill keeps frames in files. Its owner serialises the calls.
type spill struct {
	dir  string // where the files are made; "" = the system's folder
	last *segment
	all  map[*segment]struct{}
	size int64 // of all files
}

// segment is one file. It has no name any more once it is open, so a killed agent leaves nothing behind.
type segment struct {
	file *os.File
	size int64
	live int
}

// spot is where a frame lies.
type spot struct {
	seg    *segment
	offset int64
	size   int
}

func (s *spill) put(raw []byte) (*spot, error) {
	if s.last == nil || s.last.size >= segmentSize {
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	seg := s.last
	if _, err := seg.file.WriteAt(raw, seg.size); err != nil {
		return nil, fmt.Errorf("write backlog: %w", err)
	}
	at := &spot{seg: seg, offset: seg.size, size: len(raw)}
	seg.size += int64(len(raw))
	seg.live++
	s.size += int64(len(raw))
	return at, nil
}

func (s *spill) begin() error {
	f, err := os.CreateTemp(s.dir, "kici-backlog-")
	if err != nil {
		return fmt.Errorf("make backlog file: %w", err)
	}
	_ = os.Remove(f.Name())
	if s.all == nil {
		s.all = map[*segment]struct{}{}
	}
	s.last = &segment{file: f}
	s.all[s.last] = struct{}{}
	return nil
}

func (at *spot) read() ([]byte, error) {
	raw := make([]byte, at.size)
	if _, err := at.seg.file.ReadAt(raw, at.offset); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read backlog: %w", err)
	}
	return raw, nil
}

func (s *spill) drop(at *spot) {
	at.seg.live--
	if at.seg.live > 0 {
		return
	}
	at.seg.file.Close()
	s.size -= at.seg.size
	delete(s.all, at.seg)
	if s.last == at.seg {
		s.last = nil
	}
}

func (s *spill) close() {
	for seg := range s.all {
		seg.file.Close()
	}
	s.all, s.last, s.size = nil, nil, 0
}
