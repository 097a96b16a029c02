package logs

import (
	"sync"

	"kici/internal/core/logline"
	"kici/internal/server/logs/index"
)

// TruncatedLine is the last line of a log that reached its cap.
const TruncatedLine = "[log truncated]"

// keptBuffer is the largest buffer that is kept for the next chunk; a rare giant must not stay in memory.
const keptBuffer = 1 << 20

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func putBuffer(b *[]byte) {
	if cap(*b) <= keptBuffer {
		buffers.Put(b)
	}
}

// encode appends the stored form of a chunk to buf. It gives the number of lines and whether the log reached its cap:
// then the lines that fit are followed by the truncation line.
func encode(buf []byte, c Chunk, id string, at index.End, maxBytes int64) (data []byte, lines int64, cut bool) {
	head := logline.AppendHead(nil, c.At)
	reserve := int64(len(head)+len(TruncatedLine)+len(id)*6) + 100 // room that the truncation line itself needs
	for _, text := range c.Lines {
		begin := len(buf)
		buf = append(buf, head...)
		buf = logline.AppendText(buf, text)
		buf = append(buf, logline.End...)
		buf = append(buf, '\n')
		if at.Size+int64(len(buf))+reserve > maxBytes {
			buf = append(buf[:begin], head...)
			buf = append(buf, TruncatedLine...)
			lines++
			cut = true
			break
		}
		lines++
	}
	if !cut {
		buf = buf[:len(buf)-len(logline.End)-1] // the last line ends in the mark instead
	}
	return logline.AppendMark(buf, logline.Mark{Chunk: id, Lines: at.Lines + lines, Truncated: cut}), lines, cut
}
