package steplog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/agent/ledger"
	"kici/internal/agent/metrics"
	"kici/internal/core/wire"
	"kici/internal/kit/redact"
)

// chunks are the frames that the ledger holds.
func chunks(t *testing.T, l *ledger.Ledger) (list []wire.LogChunk) {
	t.Helper()
	for _, waiting, _ := l.Room(); waiting > 0; _, waiting, _ = l.Room() {
		e, raw, err := l.Take(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		m, err := wire.DecodeFromAgent(raw)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m.(wire.LogChunk))
		l.Wrote(e)
	}
	return list
}

func newLogs(t *testing.T, limit int64) *Logs {
	t.Helper()
	l := ledger.New(t.TempDir(), slog.New(slog.DiscardHandler))
	t.Cleanup(l.Close)
	return &Logs{Job: ledger.Job{Run: "r", ID: "j"}, Limit: limit, Mask: redact.New([]string{"hunter2"}), Ledger: l,
		Metrics: metrics.New("pause"), Ended: make(chan struct{})}
}

func TestLinesTravelInChunksOfTheirStep(t *testing.T) {
	l := newLogs(t, 1<<20)
	for i := range chunkLines + 1 {
		l.Add(0, fmt.Sprint("line ", i))
	}
	l.Add(1, "pw is hunter2")
	l.Flush(0)
	l.Close()
	l.Add(1, "after the end")
	var got []string
	for _, c := range chunks(t, l.Ledger) {
		got = append(got, fmt.Sprintf("%s/%s/%d: %d from %s", c.RunID, c.JobID, c.StepIndex, len(c.Lines), c.Lines[0]))
	}
	want := []string{"r/j/0: 50 from line 0", "r/j/0: 1 from line 50", "r/j/1: 1 from pw is ***"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := l.Streamed(1); n != int64(len("pw is ***")) {
		t.Errorf("%d bytes of the second step", n)
	}
}

func TestAStreamEndsAtItsLimitAndSaysSo(t *testing.T) {
	l := newLogs(t, 10)
	for range 5 {
		l.Add(0, "sixteen letters.")
	}
	l.Add(1, strings.Repeat("é", maxLine))
	l.Close()
	lines := map[int][]string{}
	for _, c := range chunks(t, l.Ledger) {
		lines[c.StepIndex] = append(lines[c.StepIndex], c.Lines...)
	}
	if diff := cmp.Diff([]string{"sixteen letters.", "[TRUNCATED: log output exceeded 10 bytes]"}, lines[0]); diff != "" {
		t.Error(diff)
	}
	if got := lines[1]; len(got) != 2 || len(got[0]) != maxLine || strings.Trim(got[0], "é") != "" {
		t.Errorf("a long line became %d", len(got))
	}
}
