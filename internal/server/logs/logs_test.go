package logs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const at = 1767225600000 // 2026-01-01T00:00:00Z

func openAt(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func chunk(id string, lines ...string) Chunk {
	return Chunk{RunID: "r", JobID: "j", JobName: "build", MessageID: id, At: at, Lines: lines}
}

func mustAppend(t testing.TB, s *Store, chunks ...Chunk) {
	t.Helper()
	for _, c := range chunks {
		if err := s.Append(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// messages are the texts of stored lines.
func messages(t testing.TB, stored []string) []string {
	t.Helper()
	out := []string{}
	for _, line := range stored {
		var l struct {
			TS, Level string
			Msg       *string
			Meta      map[string]any
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Msg == nil || l.Meta == nil || l.TS != "2026-01-01T00:00:00.000Z" || l.Level != "stdout" {
			t.Fatalf("stored line %q: %v", line, err)
		}
		out = append(out, *l.Msg)
	}
	return out
}

func all(t testing.TB, s *Store, path string) []string {
	t.Helper()
	lines, total, next, err := s.Lines(t.Context(), path, 0, 1<<20)
	if err != nil || next != 0 || total != int64(len(lines)) {
		t.Fatalf("Lines: %d lines of %d, next %d, %v", len(lines), total, next, err)
	}
	return messages(t, lines)
}

var buildLog = Path("r", "build", 0)

func TestPath(t *testing.T) {
	long := strings.Repeat("é", 128)
	tests := []struct {
		job  string
		step int
		want string
	}{
		{"build", 0, "executions/r/job-build/step-0.log"},
		{"test (linux, 1.0)", 12, "executions/r/job-test (linux, 1.0)/step-12.log"},
		{"build", -1, "executions/r/job-build/step--1.log"},
		{"a/b%2F\n\\", 0, "executions/r/job-a%2Fb%252F%0A%5C/step-0.log"},
		{"..", 0, "executions/r/job-%2E%2E/step-0.log"},
	}
	for _, tt := range tests {
		if got := Path("r", tt.job, tt.step); got != tt.want {
			t.Errorf("Path(%q) = %q, want %q", tt.job, got, tt.want)
		}
	}
	a, b := Path("r", long+"1", 0), Path("r", long+"2", 0)
	if a == b || len(filepath.Base(filepath.Dir(a))) > 255 {
		t.Errorf("long names: %q and %q", a, b)
	}
	if got := Path("..", "x", 0); !filepath.IsLocal(got) || strings.Contains(got, "..") {
		t.Errorf("run id climbs: %q", got)
	}
}

func TestStoredFormat(t *testing.T) {
	root := t.TempDir()
	s := openAt(t, Options{Root: root})
	mustAppend(t, s, chunk("m1", "one \x1b[31mred", `"q"\`), chunk("m2", "\xff"))
	got, err := os.ReadFile(filepath.Join(root, buildLog))
	want := `{"ts":"2026-01-01T00:00:00.000Z","level":"stdout","msg":"one \u001b[31mred","meta":{}}
{"ts":"2026-01-01T00:00:00.000Z","level":"stdout","msg":"\"q\"\\","meta":{"chunk":"m1","lines":2}}
{"ts":"2026-01-01T00:00:00.000Z","level":"stdout","msg":"` + "\uFFFD" + `","meta":{"chunk":"m2","lines":3}}
`
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if want := (Stats{Chunks: 2, Bytes: int64(len(got))}); s.Stats() != want {
		t.Errorf("stats %+v, want %+v", s.Stats(), want)
	}
}

func TestReplaysChangeNothingAlsoAfterARestart(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		long := strings.Repeat("x", 500)
		mustAppend(t, s, chunk("a", "1"), chunk("b", "2"), chunk("a", "1"), chunk(long, "3"), chunk("", "4"), chunk("", "5"), chunk("c"))
		s.Close()
		s = h.open(t, Options{})
		mustAppend(t, s, chunk("b", "2"), chunk(long, "3"), chunk("a", "1"), chunk("d", "6"))
		if diff := cmp.Diff([]string{"1", "2", "3", "4", "5", "6"}, all(t, s, buildLog)); diff != "" {
			t.Error(diff)
		}
	})
}

// An agent that was stopped for a while does not know of what the buffers of its connection held when the server was killed.
func TestReplaysOfAFullConnectionAreKnownAfterARestart(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{SegmentBytes: 1 << 20})
		var sent []Chunk
		for i := range 100 {
			sent = append(sent, chunk(fmt.Sprint(i), strings.Repeat("x", 120<<10)))
		}
		mustAppend(t, s, sent...)
		s.Close()
		s = h.open(t, Options{SegmentBytes: 1 << 20})
		mustAppend(t, s, sent...)
		if got := s.Stats(); got.Replays != int64(len(sent)) || got.Chunks != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestSameIDInAnotherStepIsNoReplay(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		other := chunk("a", "2")
		other.StepIndex = 1
		mustAppend(t, s, chunk("a", "1"), other)
		if got := all(t, s, Path("r", "build", 1)); len(got) != 1 {
			t.Errorf("got %q", got)
		}
	})
}

// Whatever part of a chunk a killed server left behind, the complete chunks stay, nothing else shows, and the chunk can
// be sent again.
func TestTornChunkIsCutOff(t *testing.T) {
	root := t.TempDir()
	s := openAt(t, Options{Root: root})
	mustAppend(t, s, chunk("a", "1", "2"))
	file := filepath.Join(root, buildLog)
	whole, _ := os.ReadFile(file)
	mustAppend(t, s, chunk("b", "3", "4", "5"))
	both, _ := os.ReadFile(file)
	s.Close()
	for size := len(whole); size < len(both); size++ {
		if err := os.WriteFile(file, both[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		s := openAt(t, Options{Root: root})
		if diff := cmp.Diff([]string{"1", "2"}, all(t, s, buildLog)); diff != "" {
			t.Fatalf("torn at %d: %s", size, diff)
		}
		mustAppend(t, s, chunk("a", "1", "2"), chunk("b", "3", "4", "5"))
		if diff := cmp.Diff([]string{"1", "2", "3", "4", "5"}, all(t, s, buildLog)); diff != "" {
			t.Fatalf("torn at %d, sent again: %s", size, diff)
		}
		s.Close()
	}
}

func TestFileChangedBehindTheStoreIsLookedAtAgain(t *testing.T) {
	root := t.TempDir()
	s := openAt(t, Options{Root: root})
	mustAppend(t, s, chunk("a", "1"))
	f, _ := os.OpenFile(filepath.Join(root, buildLog), os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString("garbage")
	f.Close()
	mustAppend(t, s, chunk("a", "1"), chunk("b", "2"))
	if diff := cmp.Diff([]string{"1", "2"}, all(t, s, buildLog)); diff != "" {
		t.Error(diff)
	}
}

func TestCapEndsTheLogWithOneLine(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{MaxBytes: 1000})
		for i := range 20 {
			mustAppend(t, s, chunk(fmt.Sprint(i), "first of "+fmt.Sprint(i), "second"))
		}
		got := all(t, s, buildLog)
		if len(got) < 3 || got[len(got)-1] != TruncatedLine || strings.Contains(strings.Join(got[:len(got)-1], "\n"), TruncatedLine) {
			t.Errorf("got %q", got)
		}
		if size := len(whole(t, s)); size > 1000 {
			t.Errorf("the log has %d bytes", size)
		}
		s.Close()
		s = h.open(t, Options{MaxBytes: 1000})
		mustAppend(t, s, chunk("late", "x"))
		if diff := cmp.Diff(got, all(t, s, buildLog)); diff != "" {
			t.Errorf("after a restart: %s", diff)
		}
		if s.Stats().Truncated != 1 {
			t.Errorf("stats %+v", s.Stats())
		}
	})
}

func TestPathsThatLeaveTheRootAreRefused(t *testing.T) {
	root := t.TempDir()
	s := openAt(t, Options{Root: filepath.Join(root, "logs")})
	os.WriteFile(filepath.Join(root, "secret"), []byte("x\n"), 0o600)
	os.Symlink(filepath.Join(root, "secret"), filepath.Join(root, "logs", "link"))
	for _, path := range []string{"../secret", "/etc/passwd", "a/../../secret", "a\x00b", ""} {
		_, _, _, lines := s.Lines(t.Context(), path, 0, 1)
		_, whole := s.Open(t.Context(), path)
		if !errors.Is(lines, ErrPath) || !errors.Is(whole, ErrPath) {
			t.Errorf("%q: %v, %v", path, lines, whole)
		}
	}
	if _, err := s.Open(t.Context(), "link"); err == nil {
		t.Error("a symbolic link leads out of the root")
	}
}

func TestLinesPagesByLineNumber(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		if lines, total, next, err := s.Lines(t.Context(), buildLog, 0, 10); lines != nil || total != 0 || next != 0 || err != nil {
			t.Errorf("absent log: %q %d %d %v", lines, total, next, err)
		}
		mustAppend(t, s, chunk("a", "0", "1"), chunk("b", "2"))
		tests := []struct {
			from  int64
			limit int
			want  []string
			next  int64
		}{
			{0, 2, []string{"0", "1"}, 2},
			{2, 2, []string{"2"}, 0},
			{1, 2, []string{"1", "2"}, 0},
			{3, 2, []string{}, 0},
			{-5, 1, []string{"0"}, 1},
		}
		for _, tt := range tests {
			lines, total, next, err := s.Lines(t.Context(), buildLog, tt.from, tt.limit)
			if diff := cmp.Diff(tt.want, messages(t, lines)); diff != "" || total != 3 || next != tt.next || err != nil {
				t.Errorf("from %d: total %d, next %d, %v %s", tt.from, total, next, err, diff)
			}
		}
	})
}

// Every way of reading agrees with the list of lines that were appended, whatever their lengths and chunks.
func TestReadingAgrees(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		run := 0
		rapid.Check(t, func(rt *rapid.T) {
			run++
			s := h.open(t, Options{MaxOpen: 2, SegmentBytes: 50_000})
			path := Path(fmt.Sprint(run), "build", 0)
			var want []string
			lengths := rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(0, 50), rapid.IntRange(0, 50),
				rapid.IntRange(0, 4_000), rapid.SampledFrom([]int{64<<10 - 80, 64 << 10, 16 << 10, 150_000}))
			for i := range rapid.IntRange(1, 15).Draw(rt, "chunks") {
				c := chunk(fmt.Sprint(i))
				c.RunID = fmt.Sprint(run)
				for range rapid.IntRange(1, 6).Draw(rt, "lines") {
					c.Lines = append(c.Lines, fmt.Sprint(len(want))+strings.Repeat("x", lengths.Draw(rt, "length")))
					want = append(want, c.Lines[len(c.Lines)-1])
				}
				mustAppend(t, s, c)
				if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
					s.Close()
					s = h.open(t, Options{MaxOpen: 2, SegmentBytes: 50_000})
				}
			}
			from := rapid.IntRange(0, len(want)).Draw(rt, "from")
			n := rapid.IntRange(1, 40).Draw(rt, "limit")
			lines, total, _, err := s.Lines(t.Context(), path, int64(from), n)
			upTo := min(from+n, len(want))
			if diff := cmp.Diff(want[from:upTo], messages(t, lines)); err != nil || diff != "" || total != int64(len(want)) {
				rt.Fatalf("Lines(%d,%d): total %d of %d, %v", from, n, total, len(want), err)
			}
			last, total, err := s.Tail(t.Context(), path, n)
			if diff := cmp.Diff(want[max(0, len(want)-n):], messages(t, last)); err != nil || diff != "" || total != int64(len(want)) {
				rt.Fatalf("Tail(%d): %v %s", n, err, diff)
			}
			s.Close()
		})
	})
}
