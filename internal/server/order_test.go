package server_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/report"
	"kici/internal/server/servertest"
)

// TestJobsOfARunGoOutInTheOrderOfTheirAuthor holds for jobs that become ready in one moment, and for what people are
// told of the line.
func TestJobsOfARunGoOutInTheOrderOfTheirAuthor(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		want := []string{"zeta", "alpha", "mu", "beta", "omega", "kappa"}
		h.Start(t)
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock(want...)))
		servertest.Await(t, "the queue", func() bool {
			return h.Count(t, "SELECT count(*) FROM dispatch_queue") == len(want)
		}, nil)
		line, err := report.Queue(t.Context(), h.DB.Read(), report.QueueFilter{Statuses: []string{"pending"}, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		var listed []string
		for _, e := range line {
			listed = append(listed, e.JobName)
		}
		if !slices.Equal(listed, want) {
			t.Errorf("the queue is listed as %v, want %v", listed, want)
		}
		p := h.Dial(t)
		p.Hello(h, register("agent"))
		var sent []string
		for range want {
			d, ok := p.Next().(wire.JobDispatch)
			if !ok {
				t.Fatal("no dispatch")
			}
			var config struct{ Name string }
			if err := json.Unmarshal(d.JobConfig, &config); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, config.Name)
			p.Send(wire.JobStatus{MessageID: "m", RunID: d.RunID, JobID: d.JobID, State: ci.JobSuccess, Timestamp: 1})
		}
		if !slices.Equal(sent, want) {
			t.Errorf("the jobs went out as %s, want %s", strings.Join(sent, " "), strings.Join(want, " "))
		}
	})
}
