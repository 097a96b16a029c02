package hub

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
	"kici/internal/vectors"
)

// recorded is one line of recorded traffic.
type recorded struct {
	Conn  int             `json:"conn"`
	Dir   string          `json:"dir"`
	Event string          `json:"event"`
	Msg   json.RawMessage `json:"msg"`
}

func load(t *testing.T, name string) (lines []recorded) {
	t.Helper()
	raw, err := os.ReadFile(vectors.Samples("wire", name+".jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no recorded traffic")
	}
	if err != nil {
		t.Fatal(err)
	}
	scan := bufio.NewScanner(bytes.NewReader(raw))
	scan.Buffer(nil, wire.MaxFrame)
	for scan.Scan() {
		var line recorded
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

// TestRecordedAgents plays what a real agent sent to a real server, and requires that it gets the same kinds of answers
// in the same order, and that every word of it reaches the engine.
func TestRecordedAgents(t *testing.T) {
	const reported = "job job success"
	tests := []struct {
		name  string
		calls []string
		lines int
	}{
		{"two-steps-success", []string{
			"connected agent-1", "acked job", "job job running", "step job one running", "step job one success",
			"step job two running", "step job two success", reported,
		}, 11},
		{"agent-reconnect-mid-job", []string{
			"connected agent-1", "acked job", "job job running", "step job tick running", "lost agent-1",
			"connected agent-1 job", "step job tick success", reported,
		}, 28},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.tokens.tokens["REDACTED"] = b.tokens.tokens["kat_static"]
			b.engine.give("agent-1", "job")
			play(t, b, load(t, tt.name))
			calls := b.engine.seen()
			for i, call := range calls {
				if len(call) > 12 && call[:12] == "lost agent-1" {
					calls[i] = call[:12]
				}
			}
			calls = calls[:len(tt.calls)] // the end of the last connection follows when it likes
			if diff := cmp.Diff(tt.calls, calls); diff != "" {
				t.Error(diff)
			}
			if lines := b.logs.lines(); len(lines) != tt.lines {
				t.Errorf("%d lines: %q", len(lines), lines)
			}
		})
	}
}

// play is both sides of a recording: what the agent sent is sent, what the server sent is expected; a job.dispatch is
// given to the hub as the dispatcher would.
func play(t *testing.T, b *bench, lines []recorded) {
	t.Helper()
	jobs := map[string]string{}
	var p *peer
	for _, line := range lines {
		switch {
		case line.Event == "open":
			p = b.dial(t)
		case line.Event == "agent-close":
			p.settle()
			id := b.connectionID(t, "agent-1")
			p.ws.CloseNow()
			b.awaitGone(t, id)
		case line.Dir == "a2o":
			p.raw(rename(line.Msg, jobs))
		case line.Dir == "o2a":
			want, err := wire.DecodeFromServer(line.Msg)
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := want.(wire.JobDispatch); ok {
				jobs[d.JobID] = "job"
				b.awaitReady(t)
				if err := b.Dispatch(t.Context(), b.connectionID(t, "agent-1"), "build", d); err != nil {
					t.Fatal(err)
				}
			}
			got, err := p.read()
			if err != nil {
				t.Fatalf("waiting for %s: %v", want.MessageType(), err)
			}
			if got.MessageType() != want.MessageType() {
				t.Fatalf("got %s, the recorded server sent %s", got.MessageType(), want.MessageType())
			}
		}
	}
}

// awaitReady waits until the agent may be given work.
func (b *bench) awaitReady(t *testing.T) {
	t.Helper()
	for len(b.Ready()) == 0 {
		b.awaitPoke(t)
	}
}

// rename replaces the ids of recorded jobs by ours.
func rename(raw json.RawMessage, ids map[string]string) string {
	for from, to := range ids {
		raw = bytes.ReplaceAll(raw, []byte(from), []byte(to))
	}
	return string(raw)
}
