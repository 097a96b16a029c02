package server_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

// TestLinesAreStreamedAtAnyNode looks at a run at every node while its agent runs the job at one of them and then takes it to
// another. Each line comes to each viewer before the next one is written, with its number in the whole log.
func TestLinesAreStreamedAtAnyNode(t *testing.T) {
	t.Parallel() // it waits more than it works
	homes, _, a := threeNodes(t)
	a.Settle()
	type seen struct {
		lines []string
		ended bool
	}
	streams := make([]chan seen, len(homes))
	began := make(chan bool, len(homes))
	for i, h := range homes {
		streams[i] = make(chan seen, 100)
		c, err := client.New(h.URL(), adminToken)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			var had seen
			_, err := c.Watch(t.Context(), a.job.RunID, "", func(m adminwire.Observed) error {
				switch {
				case m.Type == adminwire.ObserveSnapshot:
					began <- true
				case m.Type == adminwire.ObserveLog && *m.From != int64(len(had.lines)):
					return fmt.Errorf("%q come with number %d", m.Lines, *m.From)
				case m.Type == adminwire.ObserveLog:
					had.lines = append(had.lines, m.Lines...)
					streams[i] <- had
				case m.Type == adminwire.ObserveComplete:
					had.ended = true
					streams[i] <- had
				}
				return nil
			})
			if err != nil && context.Cause(t.Context()) == nil {
				t.Errorf("node %d: %v", i, err)
			}
			close(streams[i])
		}()
	}
	for range homes {
		<-began
	}
	var want []string
	say := func(id string) {
		t.Helper()
		want = append(want, "line "+id)
		a.chunk(id, "line "+id)
		for i := range homes {
			for got := range streams[i] {
				if len(got.lines) == len(want) {
					if !slices.Equal(got.lines, want) {
						t.Fatalf("node %d shows %q, want %q", i, got.lines, want)
					}
					break
				}
			}
		}
	}
	say("0")
	say("1")
	a.goTo(homes[2])
	a.again("1", "line 1") // the agent had not heard that it was stored
	say("2")
	a.Send(wire.StepStatus{MessageID: "e0", RunID: a.job.RunID, JobID: a.job.JobID, StepName: "s", State: ci.StepSuccess, Timestamp: 2})
	a.Send(wire.JobStatus{MessageID: "e1", RunID: a.job.RunID, JobID: a.job.JobID, State: ci.JobSuccess, Timestamp: 2})
	for i := range homes {
		var last seen
		for got := range streams[i] {
			last = got
		}
		if !last.ended || !slices.Equal(last.lines, want) {
			t.Errorf("node %d: in the end %+v", i, last)
		}
	}
}
