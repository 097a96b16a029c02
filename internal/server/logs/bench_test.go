package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bigChunk is 64 KiB of text in lines of ordinary length.
func bigChunk(id int) Chunk {
	lines := make([]string, 640)
	for i := range lines {
		lines[i] = fmt.Sprintf("%08d \x1b[32mok\x1b[0m compiling package number %d %s", i, i, strings.Repeat("x", 52))
	}
	return chunk(fmt.Sprint(id), lines...)
}

func BenchmarkAppend(b *testing.B) {
	s := openAt(b, Options{Root: b.TempDir(), MaxBytes: 1 << 40})
	c := bigChunk(0)
	size := 0
	for _, l := range c.Lines {
		size += len(l)
	}
	b.SetBytes(int64(size))
	for i := 0; b.Loop(); i++ {
		c.MessageID = fmt.Sprint(i)
		if err := s.Append(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		if i%4096 == 4095 { // keep the benchmark's disk use within bounds
			b.StopTimer()
			s.Finish(buildLog)
			os.Remove(filepath.Join(b.TempDir(), buildLog))
			c.StepIndex++
			b.StartTimer()
		}
	}
}

func BenchmarkAppendOneLine(b *testing.B) {
	s := openAt(b, Options{Root: b.TempDir(), MaxBytes: 1 << 40})
	for i := 0; b.Loop(); i++ {
		if err := s.Append(b.Context(), chunk(fmt.Sprint(i), "one line of a log")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenGigabyte opens a log of 1 GB in a new process's state and reads a page in its middle by line number.
func BenchmarkOpenGigabyte(b *testing.B) {
	root := b.TempDir()
	s := openAt(b, Options{Root: root})
	c := bigChunk(0)
	for i := 0; s.Stats().Bytes < 1e9; i++ {
		c.MessageID = fmt.Sprint(i)
		if err := s.Append(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	s.Close()
	for i := 0; b.Loop(); i++ {
		s := openAt(b, Options{Root: root})
		_, total, _, err := s.Lines(b.Context(), buildLog, 0, 1)
		if err != nil {
			b.Fatal(err)
		}
		lines, _, _, err := s.Lines(b.Context(), buildLog, total*2/3+int64(i), 500)
		if err != nil || len(lines) != 500 {
			b.Fatal(len(lines), err)
		}
		s.Close()
	}
}
