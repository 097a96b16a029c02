package joined

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/logline"
	"kici/internal/server/logs"
	"kici/internal/server/logs/search"
)

// travels is a log that an agent wrote while it went from node to node.
type travels struct {
	joined *Log
	path   string
	texts  []string // all lines, in the order in which the step wrote them
}

// travel plays an agent that numbers its lines, goes to other nodes in mid-job and sends again there what was not
// acknowledged, whether it had been stored or not.
func travel(t *rapid.T, root string) travels {
	nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
	stays := rapid.SliceOfN(rapid.IntRange(0, nodes-1), 1, 6).Draw(t, "stays")
	stays = slices.Compact(stays)
	parts := Parts{Stays: stays}
	out := travels{joined: of(&parts), path: logs.Path("r", "job", 0)}
	stores := make([]*logs.Store, nodes)
	for i := range nodes {
		s, err := logs.Open(t.Context(), logs.Options{Root: filepath.Join(root, fmt.Sprint(i))})
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = s
		parts.All = append(parts.All, Part{Node: fmt.Sprint("n", i), Log: s})
	}
	atOnce := !returns(stays) // then no time is needed to tell the stays apart
	chunks := makeChunks(t, rapid.IntRange(0, 40).Draw(t, "chunks"), atOnce)
	for _, c := range chunks {
		out.texts = append(out.texts, c.Lines...)
	}
	unacked := 0
	for i, node := range stays {
		stored := len(chunks)
		if i < len(stays)-1 {
			stored = rapid.IntRange(unacked, len(chunks)).Draw(t, "stored")
		}
		for _, c := range chunks[unacked:stored] {
			if err := stores[node].Append(context.Background(), c); err != nil {
				t.Fatal(err)
			}
		}
		unacked = rapid.IntRange(unacked, stored).Draw(t, "acknowledged")
	}
	return out
}

func of(p *Parts) *Log {
	return &Log{Where: func(context.Context) (Parts, error) { return *p, nil }}
}

func returns(stays []int) bool {
	sorted := slices.Sorted(slices.Values(stays))
	return len(slices.Compact(sorted)) < len(stays)
}

func makeChunks(t *rapid.T, n int, atOnce bool) (out []logs.Chunk) {
	at, line := int64(1_767_225_600_000), 0
	for i := range n {
		c := logs.Chunk{RunID: "r", JobName: "job", MessageID: fmt.Sprint("m", i)}
		if at += rapid.Int64Range(0, 2).Draw(t, "later"); !atOnce {
			at++
		}
		c.At = at
		for range rapid.IntRange(1, 4).Draw(t, "lines") {
			c.Lines = append(c.Lines, fmt.Sprintf("line %d", line))
			line++
		}
		out = append(out, c)
	}
	return out
}

func textsOf(lines []string) []string {
	out := []string{}
	for _, l := range lines {
		text, _ := logline.Text([]byte(l), nil)
		out = append(out, string(text))
	}
	return out
}

func TestPartsAreReadAsOneLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "join")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		w := travel(t, root)
		total := len(w.texts)
		from, limit := rapid.IntRange(0, total+2).Draw(t, "from"), rapid.IntRange(0, total+2).Draw(t, "limit")
		w.requireLines(t, from, limit)
		w.requireTail(t, limit)
		w.requireSearch(t, from)
		w.requireBytes(t, rapid.IntRange(0, 3000).Draw(t, "byte"))
	})
}

func (w travels) requireLines(t *rapid.T, from, limit int) {
	lines, total, next, err := w.joined.Lines(context.Background(), w.path, int64(from), limit)
	if err != nil {
		t.Fatal(err)
	}
	end := min(from+limit, len(w.texts))
	want := append([]string{}, w.texts[min(from, end):end]...)
	if diff := cmp.Diff(want, textsOf(lines)); diff != "" || int(total) != len(w.texts) {
		t.Fatalf("of %d lines %d, from %d: %s", len(w.texts), total, from, diff)
	}
	if wantNext := int64(end); len(want) > 0 && end < len(w.texts) && next != wantNext {
		t.Fatalf("next %d, want %d", next, wantNext)
	}
}

func (w travels) requireTail(t *rapid.T, n int) {
	lines, total, err := w.joined.Tail(context.Background(), w.path, n)
	if err != nil {
		t.Fatal(err)
	}
	want := append([]string{}, w.texts[max(0, len(w.texts)-n):]...)
	if diff := cmp.Diff(want, textsOf(lines)); diff != "" || int(total) != len(w.texts) {
		t.Fatalf("the last %d of %d: %s", n, total, diff)
	}
}

// requireSearch goes through the log two hits at a time.
func (w travels) requireSearch(t *rapid.T, from int) {
	var want, got []int64
	for i, text := range w.texts {
		if i >= from && strings.HasSuffix(text, "3") {
			want = append(want, int64(i))
		}
	}
	for next := int64(from); ; {
		found, err := w.joined.Search(context.Background(), w.path, search.Query{Pattern: "3$", From: next, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range found.Hits {
			if h.Text != w.texts[h.Line] {
				t.Fatalf("line %d is %q, found as %q", h.Line, w.texts[h.Line], h.Text)
			}
			got = append(got, h.Line)
		}
		if found.Next >= found.Total {
			break
		}
		if found.Next <= next {
			t.Fatalf("no progress from %d", next)
		}
		next = found.Next
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func (w travels) requireBytes(t *rapid.T, from int) {
	content, err := w.joined.Open(context.Background(), w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	whole, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for s := bufio.NewScanner(strings.NewReader(string(whole))); s.Scan(); {
		lines = append(lines, s.Text())
	}
	if diff := cmp.Diff(append([]string{}, w.texts...), textsOf(lines)); diff != "" {
		t.Fatal(diff)
	}
	from = min(from, len(whole))
	if _, err := content.Seek(int64(from), io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(content); err != nil || string(rest) != string(whole[from:]) {
		t.Fatalf("from byte %d: %v, %q", from, err, rest)
	}
}

func openStore(t *testing.T) *logs.Store {
	t.Helper()
	s, err := logs.Open(t.Context(), logs.Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mustAppend(t *testing.T, s *logs.Store, c logs.Chunk) {
	t.Helper()
	if err := s.Append(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// away is a part that cannot be read.
type away struct{ err error }

func (a away) Lines(context.Context, string, int64, int) ([]string, int64, int64, error) {
	return nil, 0, 0, a.err
}
func (a away) Tail(context.Context, string, int) ([]string, int64, error) { return nil, 0, a.err }
func (a away) Wait(context.Context, string, int64) (bool, error)          { return false, a.err }
func (a away) Search(context.Context, string, search.Query) (search.Found, error) {
	return search.Found{}, a.err
}
func (a away) Open(context.Context, string) (logs.Content, error) { return logs.Content{}, a.err }

func TestAPartThatIsGoneIsStated(t *testing.T) {
	path := logs.Path("r", "job", 0)
	part := func(id, text string) *logs.Store {
		s := openStore(t)
		mustAppend(t, s, logs.Chunk{RunID: "r", JobName: "job", MessageID: id, At: 1, Lines: []string{text}})
		return s
	}
	gone := away{&AwayError{Node: "b", Why: "is gone"}}
	const stated = "[lines may be missing here: the job was with node b, which is gone]"
	parts := Parts{All: []Part{{Node: "a", Log: part("m1", "one")}, {Node: "b", Log: gone}, {Node: "c", Log: part("m9", "nine")}}, Stays: []int{0, 1, 2}}
	j := of(&parts)
	all := []string{"one", stated, "nine"}
	lines, total, _, err := j.Lines(t.Context(), path, 0, 10)
	if err != nil || total != 3 || !slices.Equal(textsOf(lines), all) {
		t.Errorf("%q of %d, %v", textsOf(lines), total, err)
	}
	if lines, _, err := j.Tail(t.Context(), path, 2); err != nil || !slices.Equal(textsOf(lines), all[1:]) {
		t.Errorf("tail %q, %v", textsOf(lines), err)
	}
	found, err := j.Search(t.Context(), path, search.Query{Text: "n"})
	if err != nil || len(found.Hits) != 3 || found.Hits[1].Text != stated || found.Hits[2].Line != 2 {
		t.Errorf("found %+v, %v", found, err)
	}
	content, err := j.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(content)
	if err != nil || !slices.Equal(textsOf(strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")), all) {
		t.Errorf("%q, %v", raw, err)
	}
	if err := content.Close(); err != nil {
		t.Error(err)
	}
	if more, err := j.Wait(t.Context(), path, 2); !more || err != nil {
		t.Errorf("the last line is there: %v, %v", more, err)
	}

	parts.All[1].Spare = true // the step cannot have run there
	if lines, _, _, err := j.Lines(t.Context(), path, 0, 10); err != nil || !slices.Equal(textsOf(lines), []string{"one", "nine"}) {
		t.Errorf("without need: %q, %v", textsOf(lines), err)
	}
	parts.All[1] = Part{Node: "b", Log: away{logs.ErrExpired}}
	if lines, _, _, err := j.Lines(t.Context(), path, 1, 1); err != nil || len(lines) != 1 || !strings.Contains(lines[0], "which has deleted what it had, since its time was up") {
		t.Errorf("expired: %q, %v", textsOf(lines), err)
	}
	nothing := of(&Parts{All: []Part{{Node: "a", Log: gone}, {Node: "b", Log: gone}}, Stays: []int{0, 1}})
	if _, _, _, err := nothing.Lines(t.Context(), path, 0, 10); err == nil || err.Error() != "The log is on node b, which is gone" {
		t.Errorf("where nothing can be read: %v", err)
	}
}

// TestAJobThatMovesWhileItsLogIsReadIsReadAnew moves the job between the two looks that a reading takes.
func TestAJobThatMovesWhileItsLogIsReadIsReadAnew(t *testing.T) {
	path := logs.Path("r", "job", 0)
	var parts Parts
	for i := range 2 {
		s := openStore(t)
		parts.All = append(parts.All, Part{Node: fmt.Sprint("n", i), Log: s})
		mustAppend(t, s, logs.Chunk{RunID: "r", JobName: "job", MessageID: fmt.Sprint("m", i), At: int64(i), Lines: []string{fmt.Sprint("line ", i)}})
	}
	all := [][]int{{0, 1}, {0, 1, 0}, {0, 1, 0}}
	asked := 0
	j := &Log{Where: func(ctx context.Context) (Parts, error) {
		if asked == 1 { // the job is back at the first node and has written there by now
			mustAppend(t, parts.All[0].Log.(*logs.Store), logs.Chunk{RunID: "r", JobName: "job", MessageID: "m2", At: 2, Lines: []string{"line 2"}})
		}
		parts.Stays = all[asked]
		asked++
		return parts, nil
	}}
	lines, _, _, err := j.Lines(t.Context(), path, 0, 10)
	if err != nil || !slices.Equal(textsOf(lines), []string{"line 0", "line 1", "line 2"}) {
		t.Errorf("%q, %v", textsOf(lines), err)
	}
	restless := &Log{Where: func(context.Context) (Parts, error) {
		parts.Stays = append(slices.Clone(parts.Stays), len(parts.Stays)%2)
		return parts, nil
	}}
	if _, _, _, err := restless.Lines(t.Context(), path, 0, 10); err == nil {
		t.Error("a job that never rests gives a log")
	}
}
