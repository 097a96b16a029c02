package runner

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine bounds one message. A longer line is dropped as if it were no message.
const maxLine = 32 << 20

// readLines calls each with every line of r, without its end, until r ends or each returns false. The slice is the
// callee's to keep. A line longer than limit is skipped, or with keepHead cut to its first limit bytes.
func readLines(r io.Reader, limit int, keepHead bool, each func(line []byte) bool) {
	in := bufio.NewReaderSize(r, 16<<10)
	var line []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		end := err == nil
		if end {
			part = part[:len(part)-1]
		}
		if room := limit - len(line); len(part) > room {
			long = true
			part = part[:room]
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		last := !end
		if (end || len(line) > 0) && (!long || keepHead) {
			if !each(bytes.Clone(line)) {
				return
			}
		}
		if last {
			return
		}
		line, long = line[:0], false
		if cap(line) > 1<<20 {
			line = nil // one huge message must not stay in memory for the rest of the job
		}
	}
}
