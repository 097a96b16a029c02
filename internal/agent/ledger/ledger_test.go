package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// sent takes everything that waits, as a connection would.
func sent(t testing.TB, l *Ledger) (frames []string) {
	t.Helper()
	for {
		l.mu.Lock()
		empty := l.cursor == nil
		l.mu.Unlock()
		if empty {
			return frames
		}
		e, raw, err := l.Take(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, string(raw))
		l.Wrote(e)
	}
}

func frame(id string, k Keep) *Entry { return &Entry{ID: id, Keep: k, raw: []byte(id)} }

func chunk(id string, step int) *Entry {
	return &Entry{ID: id, Keep: KeepAcked, raw: []byte(id), Stream: &Stream{Step: step}}
}

func TestTheLedgerKeepsWhatIsNotConfirmed(t *testing.T) {
	l := New(t.TempDir(), slog.New(slog.DiscardHandler))
	defer l.Close()
	if l.add(frame("beat", KeepNot)) {
		t.Error("a sign of life was kept without a connection")
	}
	l.add(frame("ack", KeepAcked))
	l.add(frame("event", KeepWritten))
	l.add(frame("question", KeepAnswered))
	l.Connect(true)
	l.add(frame("beat", KeepNot))
	if got := sent(t, l); !cmp.Equal(got, []string{"ack", "event", "question", "beat"}) {
		t.Errorf("first connection: %v", got)
	}
	l.Ack("question", false) // received, not answered
	l.Disconnect()
	l.add(frame("late", KeepAcked))
	if n := l.Connect(true); n != 3 {
		t.Errorf("%d frames wait, want 3", n)
	}
	if got := sent(t, l); !cmp.Equal(got, []string{"ack", "question", "late"}) {
		t.Errorf("second connection: %v", got)
	}
	l.Ack("ack", false)
	l.Ack("unknown", true)
	l.Answered("question")
	l.Disconnect()
	l.Connect(false) // a server that does not confirm
	if got := sent(t, l); !cmp.Equal(got, []string{"late"}) {
		t.Errorf("third connection: %v", got)
	}
	if l.front != nil || l.size != 0 || l.memory != 0 || l.unsent != 0 || len(l.byID) != 0 {
		t.Errorf("left over: %+v", l)
	}
}

func TestOneAckCoversEarlierChunksOfTheSameLogThatWereSent(t *testing.T) {
	l := New(t.TempDir(), slog.New(slog.DiscardHandler))
	defer l.Close()
	l.Connect(true)
	for _, e := range []*Entry{chunk("a1", 0), chunk("b1", 1), chunk("a2", 0), frame("step", KeepAcked), chunk("a3", 0)} {
		l.add(e)
	}
	sent(t, l)
	l.Ack("a2", true)
	l.Disconnect()
	l.Connect(true)
	if got := sent(t, l); !cmp.Equal(got, []string{"b1", "step", "a3"}) {
		t.Errorf("left: %v", got)
	}
	// On a new connection only what was sent on it counts.
	l.add(chunk("a4", 0))
	l.Disconnect()
	l.Connect(true)
	for range 3 { // b1, step, a3
		e, _, _ := l.Take(context.Background())
		l.Wrote(e)
	}
	l.Ack("a3", true)
	if got := sent(t, l); !cmp.Equal(got, []string{"a4"}) {
		t.Errorf("not yet sent: %v", got)
	}
}

func TestFramesOfAJobThatIsNoLongerOursGoOnceWritten(t *testing.T) {
	l := New(t.TempDir(), slog.New(slog.DiscardHandler))
	defer l.Close()
	ours, theirs := Job{"r", "1"}, Job{"r", "2"}
	l.add(&Entry{ID: "a", Keep: KeepAcked, raw: []byte("a"), Job: ours, End: true})
	l.add(&Entry{ID: "b", Keep: KeepAcked, raw: []byte("b"), Job: theirs, End: true})
	l.Release(theirs)
	if got := l.OpenJobs(); !slices.Equal(got, []Job{ours}) {
		t.Errorf("open jobs: %v", got)
	}
	l.Connect(true)
	if got := sent(t, l); !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("sent: %v", got)
	}
	l.Connect(true)
	if got := sent(t, l); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("sent again: %v", got)
	}
}

// A server that stored an archive no more than it acknowledges its word has taken that before it took the end of the job.
func TestTheEndOfAJobIsTheLastWordOfIt(t *testing.T) {
	l := New(t.TempDir(), slog.New(slog.DiscardHandler))
	defer l.Close()
	ours, theirs := Job{"r", "1"}, Job{"r", "2"}
	l.Connect(true)
	for _, e := range []*Entry{
		{ID: "stored", Keep: KeepAcked, Job: ours}, {ID: "theirs", Keep: KeepAcked, Job: theirs}, {ID: "chunk", Keep: KeepAcked, Job: ours, Stream: &Stream{Job: ours}},
		{ID: "asked", Keep: KeepAnswered, Job: ours}, {ID: "end", Keep: KeepAcked, Job: ours, End: true}, {ID: "behind", Keep: KeepAcked, Job: ours},
	} {
		e.raw = []byte(e.ID)
		l.add(e)
	}
	sent(t, l)
	l.Ack("end", false)
	l.Connect(true)
	if got := sent(t, l); !cmp.Equal(got, []string{"theirs", "chunk", "asked", "behind"}) {
		t.Errorf("sent again: %v", got)
	}
}

func TestALongBacklogLiesOnDiskAndKeepsItsOrder(t *testing.T) {
	dir := t.TempDir()
	l := New(dir, slog.New(slog.DiscardHandler))
	l.limit, l.disk = 10_000, 12<<20
	var want []string
	for i := range 200 {
		text := fmt.Sprintf("%04d%s", i, strings.Repeat("x", 50_000))
		e := chunk(fmt.Sprint(i), 0)
		e.raw = []byte(text)
		if !l.add(e) {
			t.Fatalf("frame %d was refused", i)
		}
		want = append(want, text)
	}
	if l.memory > l.limit {
		t.Errorf("%d bytes in memory", l.memory)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("files with a name: %v", left) // a killed agent would leave them
	}
	for i := range 60 { // until the disk bound
		e := chunk(fmt.Sprint("more", i), 0)
		e.raw = []byte(strings.Repeat("y", 50_000))
		l.add(e)
	}
	if ok, _, _ := l.Room(); ok {
		t.Error("there is still room beyond the bound")
	}
	refused := chunk("refused", 0)
	refused.raw = make([]byte, 50_000)
	if l.add(refused) {
		t.Error("a chunk beyond the bound was taken")
	}
	status := &Entry{ID: "end", Keep: KeepAcked, raw: make([]byte, 50_000)}
	if !l.add(status) {
		t.Error("a state beyond the bound was refused")
	}
	l.Connect(true)
	got := sent(t, l)
	if d := cmp.Diff(want, got[:200]); d != "" {
		t.Error("the order or content is wrong")
	}
	for i := range 200 {
		l.Ack(fmt.Sprint(i), false)
	}
	if l.spill.size > 10<<20 {
		t.Errorf("%d bytes on disk after the confirmation", l.spill.size)
	}
	l.Close()
}

func TestADrainedLedgerIsNoticed(t *testing.T) {
	l := New(t.TempDir(), slog.New(slog.DiscardHandler))
	l.add(frame("a", KeepAcked))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if l.Drained(ctx) {
		t.Error("drained with a frame in it")
	}
	done := make(chan bool)
	go func() { done <- l.Drained(context.Background()) }()
	l.Connect(true)
	sent(t, l)
	l.Ack("a", false)
	if !<-done {
		t.Error("not drained")
	}
}

// The ledger against a plain model: whatever happens, each connection sends exactly what is not settled, in order.
func TestTheLedgerSendsWhatIsOpenInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New("", slog.New(slog.DiscardHandler))
		defer l.Close()
		l.limit = int64(rapid.IntRange(0, 40).Draw(t, "memory"))
		var model []string // open frames in order, all of them KeepAcked
		online, next := false, 0
		var expected []string // to be sent on this connection
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id := fmt.Sprintf("frame-%d", next)
				next++
				e := frame(id, KeepAcked)
				if rapid.Bool().Draw(t, "chunk") {
					e = chunk(id, 0)
				}
				if !l.add(e) {
					t.Fatal("refused")
				}
				model = append(model, id)
				expected = append(expected, id)
			},
			"connect": func(*rapid.T) {
				if online {
					l.Disconnect()
				}
				l.Connect(true)
				online = true
				expected = slices.Clone(model)
			},
			"send": func(t *rapid.T) {
				if !online || len(expected) == 0 {
					t.Skip("nothing to send")
				}
				e, raw, err := l.Take(context.Background())
				if err != nil || string(raw) != expected[0] {
					t.Fatalf("sent %q, %v; want %q", raw, err, expected[0])
				}
				l.Wrote(e)
				expected = expected[1:]
			},
			"ack": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("nothing open")
				}
				id := rapid.SampledFrom(model).Draw(t, "id")
				l.Ack(id, false)
				gone := func(s string) bool { return s == id }
				model, expected = slices.DeleteFunc(slices.Clone(model), gone), slices.DeleteFunc(slices.Clone(expected), gone)
			},
			"": func(t *rapid.T) {
				if l.count != len(model) {
					t.Fatalf("%d frames, want %d", l.count, len(model))
				}
				var size int64
				for _, id := range model {
					size += int64(len(id))
				}
				if l.size != size {
					t.Fatalf("size %d, want %d", l.size, size)
				}
			},
		})
	})
}

func TestTheServerIsToldWhenAllIsWrittenAndTheEndsAreConfirmed(t *testing.T) {
	l := New(t.TempDir(), slog.New(slog.DiscardHandler))
	defer l.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	end := frame("end", KeepAcked)
	end.End = true
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing to tell", func() {}, true},
		{"an end while offline", func() { l.add(end) }, false},
		{"connected", func() { l.Connect(true) }, false},
		{"written", func() { sent(t, l) }, false},
		{"lost, and connected again", func() { l.Disconnect(); l.Connect(true); sent(t, l) }, false},
		{"a question of the job, unanswered", func() { l.add(frame("question", KeepAnswered)); sent(t, l) }, false},
		{"acknowledged", func() { l.Ack("end", false) }, true},
		{"a status", func() { l.add(frame("status", KeepNot)) }, false},
		{"written, too", func() { sent(t, l) }, true},
	} {
		step.do()
		if got := l.Told(ended); got != step.want {
			t.Errorf("%s: told %v", step.name, got)
		}
	}
}
