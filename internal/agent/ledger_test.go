//go:build unix

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/kit/seal"
)

// sent takes everything that waits, as a connection would.
func sent(t testing.TB, l *ledger) (frames []string) {
	t.Helper()
	for {
		l.mu.Lock()
		empty := l.cursor == nil
		l.mu.Unlock()
		if empty {
			return frames
		}
		e, raw, err := l.take(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, string(raw))
		l.wrote(e)
	}
}

func frame(id string, k keep) *entry { return &entry{id: id, keep: k, raw: []byte(id)} }

func chunk(id string, step int) *entry {
	return &entry{id: id, keep: keepAcked, raw: []byte(id), stream: &streamKey{step: step}}
}

func TestTheLedgerKeepsWhatIsNotConfirmed(t *testing.T) {
	l := newLedger(t.TempDir())
	defer l.close()
	if l.add(frame("beat", keepNot)) {
		t.Error("a sign of life was kept without a connection")
	}
	l.add(frame("ack", keepAcked))
	l.add(frame("event", keepWritten))
	l.add(frame("question", keepAnswered))
	l.connect(true)
	l.add(frame("beat", keepNot))
	if got := sent(t, l); !cmp.Equal(got, []string{"ack", "event", "question", "beat"}) {
		t.Errorf("first connection: %v", got)
	}
	l.ack("question", false) // received, not answered
	l.disconnect()
	l.add(frame("late", keepAcked))
	if n := l.connect(true); n != 3 {
		t.Errorf("%d frames wait, want 3", n)
	}
	if got := sent(t, l); !cmp.Equal(got, []string{"ack", "question", "late"}) {
		t.Errorf("second connection: %v", got)
	}
	l.ack("ack", false)
	l.ack("unknown", true)
	l.answered("question")
	l.disconnect()
	l.connect(false) // a server that does not confirm
	if got := sent(t, l); !cmp.Equal(got, []string{"late"}) {
		t.Errorf("third connection: %v", got)
	}
	if l.front != nil || l.size != 0 || l.memory != 0 || l.unsent != 0 || len(l.byID) != 0 {
		t.Errorf("left over: %+v", l)
	}
}

func TestOneAckCoversEarlierChunksOfTheSameLogThatWereSent(t *testing.T) {
	l := newLedger(t.TempDir())
	defer l.close()
	l.connect(true)
	for _, e := range []*entry{chunk("a1", 0), chunk("b1", 1), chunk("a2", 0), frame("step", keepAcked), chunk("a3", 0)} {
		l.add(e)
	}
	sent(t, l)
	l.ack("a2", true)
	l.disconnect()
	l.connect(true)
	if got := sent(t, l); !cmp.Equal(got, []string{"b1", "step", "a3"}) {
		t.Errorf("left: %v", got)
	}
	// On a new connection only what was sent on it counts.
	l.add(chunk("a4", 0))
	l.disconnect()
	l.connect(true)
	for range 3 { // b1, step, a3
		e, _, _ := l.take(context.Background())
		l.wrote(e)
	}
	l.ack("a3", true)
	if got := sent(t, l); !cmp.Equal(got, []string{"a4"}) {
		t.Errorf("not yet sent: %v", got)
	}
}

func TestFramesOfAJobThatIsNoLongerOursGoOnceWritten(t *testing.T) {
	l := newLedger(t.TempDir())
	defer l.close()
	ours, theirs := jobRef{"r", "1"}, jobRef{"r", "2"}
	l.add(&entry{id: "a", keep: keepAcked, raw: []byte("a"), job: ours, end: true})
	l.add(&entry{id: "b", keep: keepAcked, raw: []byte("b"), job: theirs, end: true})
	l.release(theirs)
	if got := l.openJobs(); !slices.Equal(got, []jobRef{ours}) {
		t.Errorf("open jobs: %v", got)
	}
	l.connect(true)
	if got := sent(t, l); !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("sent: %v", got)
	}
	l.connect(true)
	if got := sent(t, l); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("sent again: %v", got)
	}
}

func TestALongBacklogLiesOnDiskAndKeepsItsOrder(t *testing.T) {
	dir := t.TempDir()
	l := newLedger(dir)
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
	if ok, _, _ := l.room(); ok {
		t.Error("there is still room beyond the bound")
	}
	refused := chunk("refused", 0)
	refused.raw = make([]byte, 50_000)
	if l.add(refused) {
		t.Error("a chunk beyond the bound was taken")
	}
	status := &entry{id: "end", keep: keepAcked, raw: make([]byte, 50_000)}
	if !l.add(status) {
		t.Error("a state beyond the bound was refused")
	}
	l.connect(true)
	got := sent(t, l)
	if d := cmp.Diff(want, got[:200]); d != "" {
		t.Error("the order or content is wrong")
	}
	for i := range 200 {
		l.ack(fmt.Sprint(i), false)
	}
	if l.spill.size > 10<<20 {
		t.Errorf("%d bytes on disk after the confirmation", l.spill.size)
	}
	l.close()
}

func TestADrainedLedgerIsNoticed(t *testing.T) {
	l := newLedger(t.TempDir())
	l.add(frame("a", keepAcked))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if l.drained(ctx) {
		t.Error("drained with a frame in it")
	}
	done := make(chan bool)
	go func() { done <- l.drained(context.Background()) }()
	l.connect(true)
	sent(t, l)
	l.ack("a", false)
	if !<-done {
		t.Error("not drained")
	}
}

// The ledger against a plain model: whatever happens, each connection sends exactly what is not settled, in order.
func TestTheLedgerSendsWhatIsOpenInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger("")
		defer l.close()
		l.limit = int64(rapid.IntRange(0, 40).Draw(t, "memory"))
		var model []string // open frames in order, all of them keepAcked
		online, next := false, 0
		var expected []string // to be sent on this connection
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id := fmt.Sprintf("frame-%d", next)
				next++
				e := frame(id, keepAcked)
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
					l.disconnect()
				}
				l.connect(true)
				online = true
				expected = slices.Clone(model)
			},
			"send": func(t *rapid.T) {
				if !online || len(expected) == 0 {
					t.Skip("nothing to send")
				}
				e, raw, err := l.take(context.Background())
				if err != nil || string(raw) != expected[0] {
					t.Fatalf("sent %q, %v; want %q", raw, err, expected[0])
				}
				l.wrote(e)
				expected = expected[1:]
			},
			"ack": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("nothing open")
				}
				id := rapid.SampledFrom(model).Draw(t, "id")
				l.ack(id, false)
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

func TestReconnectPauseGrowsToAMinute(t *testing.T) {
	tests := []struct {
		attempt int
		chance  float64
		want    time.Duration
	}{{0, 0, time.Second}, {0, 1, 1500 * time.Millisecond}, {2, 0, 2250 * time.Millisecond}, {10, 0, 57665 * time.Millisecond}, {30, 1, time.Minute}}
	for _, tt := range tests {
		if got := reconnectPause(tt.attempt, tt.chance).Truncate(time.Millisecond); got != tt.want {
			t.Errorf("pause %d = %v, want %v", tt.attempt, got, tt.want)
		}
	}
}

func TestSecretOutputsAreSealedAsTheServerOpensThem(t *testing.T) {
	run, err := seal.NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	outputs := map[string]string{"PASSWORD": "s3cr3t-output", "EMPTY": ""}
	sealed, err := sealOutputs(run.Public, outputs)
	if err != nil {
		t.Fatal(err)
	}
	opened := map[string]string{}
	for name, output := range sealed {
		agreed, err := seal.Agree(run.Private, output.AgentPublicKey, seal.RunOutputs)
		if err != nil {
			t.Fatal(err)
		}
		value, err := agreed.Open(output.Encrypted)
		if err != nil {
			t.Fatal(err)
		}
		opened[name] = string(value)
	}
	if diff := cmp.Diff(outputs, opened); diff != "" {
		t.Errorf("outputs (- given, + opened):\n%s", diff)
	}
	if _, err := sealOutputs("AAAA", outputs); err == nil {
		t.Error("a malformed key was accepted")
	}
}

func TestTheSandboxedRunnerSeesItsWorkspaceOnly(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "bwrap"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	a := &Agent{cfg: Config{Sandbox: true, SandboxNetwork: "isolated", RunnerCommand: []string{"/usr/bin/kici", "__runner"}}}
	b, err := a.boxFor("/var/tmp/kici-abcdef", "file:///usr")
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Join(b.command, " ")
	for _, want := range []string{"--bind /var/tmp/kici-abcdef /workspace", "--chdir /workspace", "--unshare-net", "--unshare-pid",
		"--die-with-parent", "--tmpfs /tmp", "--ro-bind /usr /usr", "-- /usr/bin/kici __runner"} {
		if !strings.Contains(line, want) {
			t.Errorf("%s is missing from %s", want, line)
		}
	}
	if b.workDir != "/workspace" || b.env["TMPDIR"] != "/tmp" || b.kind != "bare-metal" {
		t.Errorf("%+v", b)
	}
	wrap, err := a.installWrap()
	if err != nil || slices.Contains(wrap, "--unshare-net") || !slices.Contains(wrap, "--unshare-pid") {
		t.Errorf("the package manager runs in %v, %v", wrap, err)
	}
	a.cfg.ScalerManaged = true
	if b, err := a.boxFor("/w", ""); err != nil || b.workDir != "/w" || b.kind != "firecracker" {
		t.Errorf("scaler-managed: %+v %v", b, err)
	}
}
