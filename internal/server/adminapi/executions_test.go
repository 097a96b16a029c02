package adminapi_test

import (
	"context"
	"encoding/json"
	"testing"

	"kici/internal/core/adminwire"
	"kici/internal/core/wire"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
	"kici/internal/server/timeline"
)

func TestExecutionsAreRunsByTheNamesOfTheirColumns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Run(t, "r1")
		s.Register(t, "r2", "generic:default:other")
		const path = "/api/v1/admin/executions"
		call(t, s, s.Auditor, "GET", path+"?limit=1000", nil).want(t, 200, `{"runs":[{"run_id":"r1"`)
		call(t, s, s.Auditor, "GET", path+"?routingKey=generic:default:other&status=pending&workflowName=ci", nil).want(t, 200, `{"runs":[{"run_id":"r2"`)
		call(t, s, s.Auditor, "GET", path+"?status=done", nil).want(t, 400, "Invalid status")
		call(t, s, s.Scoped, "GET", path+"?routingKey=generic:default:other", nil).want(t, 403, "single routing key")
		if got := decode[adminwire.ExecutionList](t, call(t, s, s.Scoped, "GET", path, nil)); len(got.Runs) != 1 || got.Runs[0].RunID != "r1" {
			t.Errorf("a scoped token sees %+v", got.Runs)
		}
		call(t, s, s.Scoped, "GET", path+"/r2", nil).want(t, 403, "single routing key")
		call(t, s, s.Auditor, "GET", path+"/none", nil).want(t, 404, "Run none not found")
		one := decode[adminwire.OneExecution](t, call(t, s, s.Auditor, "GET", path+"/r1", nil))
		if one.Run.RoutingKey != scopedKey || len(one.Jobs) != 4 || one.Jobs[0].JobID != "r1-build" || one.Jobs[0].RunID != "r1" {
			t.Errorf("r1 is %+v", one)
		}
	})
}

func TestClearedQueueEndsTheRunsThatWaited(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Run(t, "r1") // one job of it is with an agent
		s.Register(t, "r2", "generic:default:other")
		call(t, s, s.Owner, "POST", "/api/v1/admin/queue/clear", nil).want(t, 200, `{"cleared":true,"runs":2,"jobs":8}`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/queue?status=pending", nil).want(t, 200, `{"entries":[]}`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs/r2/explain", nil).want(t, 200, "the queue was cleared")
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs/r1", nil).want(t, 200, `"status":"cancelling"`)
		call(t, s, s.Owner, "POST", "/api/v1/admin/queue/clear", nil).want(t, 200, `{"cleared":true,"runs":0,"jobs":0}`)
	})
}

func TestTimelineAndSurroundingsAreRead(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	took := int64(12)
	check(t, s.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		if err := timeline.Context(ctx, tx, "r1", "r1-build", startTime, wire.Environment{SandboxType: "bare-metal"}); err != nil {
			return err
		}
		return timeline.Append(ctx, tx, timeline.Event{RunID: "r1", JobID: "r1-build", At: startTime, Type: "agent.clone.end", Source: "agent",
			DurationMs: &took, Metadata: json.RawMessage(`{"cached":true}`)})
	}))
	const run = "/api/v1/admin/runs/r1"
	call(t, s, s.Auditor, "GET", run+"/events", nil).want(t, 200, `{"runId":"r1","events":[{"timestamp":"2026-01-01T00:00:00.000Z",`+
		`"eventType":"orchestrator.dispatch","sourceService":"orchestrator","jobId":null,"durationMs":null,"metadata":{"jobCount":4,"workflow":"ci"}},`+
		`{"timestamp":"2026-01-01T00:00:00.000Z","eventType":"agent.clone.end","sourceService":"agent","jobId":"r1-build","durationMs":12,"metadata":{"cached":true}}]}`)
	call(t, s, s.Auditor, "GET", run+"/jobs/r1-build/context", nil).want(t, 200, `"sandboxType":"bare-metal"`)
	call(t, s, s.Auditor, "GET", run+"/jobs/r1-test/context", nil).want(t, 200, `"context":null`)
	call(t, s, s.Auditor, "GET", run+"/jobs/none/context", nil).want(t, 404, "Job none not found")
	call(t, s, s.Auditor, "GET", "/api/v1/admin/runs/none/events", nil).want(t, 404, "Run none not found")
}
