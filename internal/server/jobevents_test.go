package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/servertest"
)

// storedEvent is an event as the store has it.
type storedEvent struct{ ID, Name, Run, Job, Payload string }

func storedEvents(t *testing.T, h *servertest.Home) (out []storedEvent) {
	t.Helper()
	rows, err := h.DB.Read().QueryContext(t.Context(), `SELECT id, event_name, source_run_id, coalesce(source_job_id, ''), payload
FROM kici_events ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e storedEvent
		if err := rows.Scan(&e.ID, &e.Name, &e.Run, &e.Job, &e.Payload); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// TestAJobEmitsAndItsEndIsTold lets a job emit what it may and what only the server may, and end.
func TestAJobEmitsAndItsEndIsTold(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		s := h.Start(t)
		p := h.Dial(t)
		p.Hello(h, register("agent"))
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
		d := nextDispatch(t, p, "build")
		emit := func(request, name string) wire.EventEmitResponse {
			p.Send(wire.EventEmit{JobID: d.JobID, RequestID: request, EventName: name, Payload: json.RawMessage(`{"tag":"v2"}`)})
			answer, ok := p.Next().(wire.EventEmitResponse)
			if !ok || answer.RequestID != request {
				t.Fatalf("answer to %s: %+v", request, answer)
			}
			return answer
		}
		built := emit("1", "image.built")
		if built.DeliveryID == "" || built.Error != "" {
			t.Errorf("answer %+v", built)
		}
		if stored := storedEvents(t, h); len(stored) != 1 || stored[0].ID != built.DeliveryID {
			t.Errorf("answered %s before it was stored: %+v", built.DeliveryID, stored)
		}
		if forged := emit("2", "__workflow_complete"); forged.Error != "Event name is reserved" || forged.DeliveryID != "" {
			t.Errorf("answer to a forged end of a run: %+v", forged)
		}
		end(t, p, d, ci.JobSuccess, nil)
		h.AwaitRuns(t, 1)

		var kinds []storedEvent
		for _, e := range storedEvents(t, h) {
			if strings.HasPrefix(e.Name, "__") && !strings.Contains(e.Payload, `"status":"success"`) {
				t.Errorf("%s says %s", e.Name, e.Payload)
			}
			kinds = append(kinds, storedEvent{Name: e.Name, Run: e.Run, Job: e.Job})
		}
		want := []storedEvent{{Name: "image.built", Run: d.RunID, Job: d.JobID}, {Name: "__job_complete", Run: d.RunID, Job: d.JobID},
			{Name: "__workflow_complete", Run: d.RunID}}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Error(diff)
		}
		for _, reason := range []string{"chain_depth", "rate_limit", "expired"} {
			if line := `kici_orch_events_dropped_total{reason="` + reason + `"} 0`; !strings.Contains(metrics(t, s.URL()), line) {
				t.Errorf("no metric %s", line)
			}
		}
	})
}

// requireEndsTold checks that there is one event for the end of each run and job.
func requireEndsTold(t *testing.T, h *servertest.Home, runs, jobs int) {
	t.Helper()
	ends, jobEnds := map[string]int{}, map[string]int{}
	for _, e := range storedEvents(t, h) {
		switch e.Name {
		case "__workflow_complete":
			ends[e.Run]++
		case "__job_complete":
			jobEnds[e.Job]++
		}
	}
	if len(ends) != runs || len(jobEnds) != jobs {
		t.Errorf("the ends of %d runs and %d jobs are told, want %d and %d", len(ends), len(jobEnds), runs, jobs)
	}
	for id, n := range ends {
		if n != 1 {
			t.Errorf("the end of run %s is told %d times", id, n)
		}
	}
	for id, n := range jobEnds {
		if n != 1 {
			t.Errorf("the end of job %s is told %d times", id, n)
		}
	}
}
