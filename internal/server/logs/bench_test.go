//go:build unix

package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kici/internal/server/logs/search"
)

// bigChunk is 64 KiB of text in lines of ordinary length.
func bigChunk(id int) Chunk {
	lines := make([]string, 640)
	for i := range lines {
		lines[i] = fmt.Sprintf("%08d \x1b[32mok\x1b[0m compiling package number %d %s", i, i, strings.Repeat("x", 52))
	}
	return chunk(fmt.Sprint(id), lines...)
}

// size is the bytes of text of a chunk.
func (c Chunk) size() (n int64) {
	for _, line := range c.Lines {
		n += int64(len(line))
	}
	return n
}

// cpuTime is what this process has used of processors, in user space and in the kernel.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// reportCPU reports the processor time of an operation, which other work on the machine changes less than its duration.
func reportCPU(b *testing.B, since time.Duration) {
	b.ReportMetric(float64(cpuTime(b)-since)/float64(b.N)/1e6, "cpu-ms/op")
}

// benchmarkAppend takes in chunks of 64 KiB. A log is removed when it has 256 MiB, to keep the disk's use within bounds.
func benchmarkAppend(b *testing.B, h home) {
	s := h.open(b, Options{MaxBytes: 1 << 40, SegmentBytes: DefaultSegmentBytes})
	c := bigChunk(0)
	b.SetBytes(c.size())
	began := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		c.MessageID = fmt.Sprint(i)
		if err := s.Append(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		if i%4096 == 4095 {
			s.letGo(runFolder(c.RunID))
			os.RemoveAll(filepath.Join(h.root, runsFolder))
			c.StepIndex++
		}
	}
	reportCPU(b, began)
}

func BenchmarkAppend(b *testing.B) { benchmarkAppend(b, homes["files"](b)) }

// BenchmarkAppendSegments is the part of it that an agent waits for.
func BenchmarkAppendSegments(b *testing.B) { benchmarkAppend(b, homes["segments"](b)) }

func BenchmarkAppendOneLine(b *testing.B) {
	s := openAt(b, Options{Root: b.TempDir(), MaxBytes: 1 << 40})
	for i := 0; b.Loop(); i++ {
		if err := s.Append(b.Context(), chunk(fmt.Sprint(i), "one line of a log")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirstChunk begins a log with a few hundred bytes, each in a job of its own: all of most logs there will ever be.
func BenchmarkFirstChunk(b *testing.B) {
	benchmarkFirst(b, chunk("a", "building", strings.Repeat("a line of ordinary length ", 3), "done"))
}

// BenchmarkFirstLargeChunk begins one that is a file from the beginning.
func BenchmarkFirstLargeChunk(b *testing.B) { benchmarkFirst(b, stored("a", shortBytes+1)) }

func benchmarkFirst(b *testing.B, c Chunk) {
	for _, kind := range []string{"files", "rows", "PostgreSQL rows"} {
		b.Run(kind, func(b *testing.B) {
			s := homes[kind](b).open(b, Options{})
			began := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				c.RunID = fmt.Sprint("run-", i)
				if err := s.Append(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
			reportCPU(b, began)
		})
	}
}

// BenchmarkTurn makes a file of a row.
func BenchmarkTurn(b *testing.B) {
	s := homes["rows"](b).open(b, Options{})
	large := stored("b", shortBytes)
	began := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		first := chunk("a", "1")
		first.RunID, large.RunID = fmt.Sprint("run-", i), fmt.Sprint("run-", i)
		if err := errors.Join(s.Append(b.Context(), first), s.Append(b.Context(), large)); err != nil {
			b.Fatal(err)
		}
	}
	reportCPU(b, began)
}

// gigabyte makes a log of 1 GB, which goes with the benchmark.
func gigabyte(b *testing.B) (root string, lines int64) {
	root = b.TempDir()
	s := openAt(b, Options{Root: root})
	c := bigChunk(0)
	for i := 0; s.Stats().Bytes < 1e9; i++ {
		c.MessageID = fmt.Sprint(i)
		if err := s.Append(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	_, lines, err := s.Tail(b.Context(), buildLog, 1)
	if err != nil {
		b.Fatal(err)
	}
	s.Close()
	return root, lines
}

// BenchmarkGigabyte reads a log of 1 GB in a store that has just been opened.
func BenchmarkGigabyte(b *testing.B) {
	root, total := gigabyte(b)
	ways := []struct {
		name string
		read func(s *Store, i int64) (n int, err error)
	}{
		{"End", func(s *Store, _ int64) (int, error) {
			lines, _, err := s.Tail(b.Context(), buildLog, 500)
			return len(lines), err
		}},
		{"Line", func(s *Store, i int64) (int, error) {
			lines, _, _, err := s.Lines(b.Context(), buildLog, (total*2/3+i*7919)%(total-500), 500)
			return len(lines), err
		}},
		{"Byte", func(s *Store, i int64) (int, error) {
			content, err := s.Open(b.Context(), buildLog)
			if err != nil {
				return 0, err
			}
			defer content.Close()
			return content.ReadAt(make([]byte, 64<<10), (5e8+i*7919)%9e8)
		}},
		{"SearchForText", searching(b, search.Query{Text: "number 639 xx", Limit: 1, Time: time.Minute})},
		{"SearchAll", searching(b, search.Query{Text: "there is no such line", Time: time.Minute})},
		{"SearchAllFolded", searching(b, search.Query{Text: "THERE IS NO SUCH LINE", Fold: true, Time: time.Minute})},
		{"SearchAllRegexp", searching(b, search.Query{Pattern: `there (is|was) no such l[a-z]+`, Time: time.Minute})},
	}
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			began := cpuTime(b)
			for i := int64(0); b.Loop(); i++ {
				s := openAt(b, Options{Root: root})
				if n, err := way.read(s, i); err != nil || n == 0 {
					b.Fatal(n, err)
				}
				s.Close()
			}
			reportCPU(b, began)
		})
	}
}

func searching(b *testing.B, q search.Query) func(s *Store, _ int64) (int, error) {
	return func(s *Store, _ int64) (int, error) {
		found, err := s.Search(b.Context(), buildLog, q)
		return int(found.Next), err
	}
}
