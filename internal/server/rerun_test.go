package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/server"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
)

// TestEveryAnswerToARerun asks a whole system, in the order in which one thing after the other comes into the way.
func TestEveryAnswerToARerun(t *testing.T) {
	servertest.Each(t, func(s *server.Settings) { s.BootstrapToken = adminToken }, func(t *testing.T, h *servertest.Home) {
		running := h.Start(t)
		sha := h.Commit(t, app, servertest.Lock("build"))
		h.Push(t, app, "main", sha)
		var run string
		servertest.Await(t, "the run", func() bool {
			return h.DB.Read().QueryRowContext(t.Context(), "SELECT run_id FROM execution_runs WHERE status = 'pending'").Scan(&run) == nil
		}, nil)
		change := func(column string, value any) func() {
			return func() {
				err := h.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					_, err := tx.ExecContext(ctx, "UPDATE execution_runs SET "+column+" = $1 WHERE run_id = $2", value, run)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		long := time.Now().Add(-400 * 24 * time.Hour).UnixMilli()
		for _, step := range []struct {
			name   string
			id     string // "" is the run
			before func()
			status int
			says   string
		}{
			{"a run that never was", "none", nil, 404, `{"error":"Run none not found","errorCode":"run_not_found"}`},
			{"one that waits", "", nil, 409, `{"error":"Run is not in a terminal state (current: pending)","errorCode":"run_not_terminal","status":"pending"}`},
			{"one that is being cancelled", "", change("status", ci.RunCancelling), 409, `(current: cancelling)`},
			{"one that tries something out", "", func() {
				change("status", ci.RunFailed)()
				change("created_at", long-1)()
				change("completed_at", long)()
				change("is_test_run", true)()
			}, 400, `{"error":"Test runs cannot be re-run","errorCode":"test_run","status":"failed"}`},
			{"one whose workflow is gone", "", func() {
				change("is_test_run", false)()
				change("workflow_name", "other")()
			}, 422, `{"error":"Workflow 'other' not found in lock file at SHA ` + sha + `","errorCode":"workflow_missing","status":"failed"}`},
			{"one whose commit is gone", "", func() {
				change("workflow_name", "ci")()
				change("sha", strings.Repeat("0", 40))()
			}, 422, `{"error":"Lock file not found at original SHA (branch may have been force-pushed)","errorCode":"lock_file_missing","status":"failed"}`},
			{"one whose source is gone", "", func() {
				change("sha", sha)()
				change("routing_key", "generic:default:gone")()
			}, 422, `"errorCode":"source_missing"`},
			{"one that ended", "", change("routing_key", routingKey(t, h)), 201, `"parentRunId":"`},
			{"the same again", "", nil, 429, `"errorCode":"rerun_too_soon"`},
			{"one that is forgotten", "", func() {
				err := h.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					_, err := tx.ExecContext(ctx, "UPDATE execution_runs SET parent_run_id = NULL") // the repetition would keep it
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				running.Stop() // the next start looks for old runs at once
				running = h.Start(t)
				servertest.Await(t, "the run to be forgotten", func() bool {
					return h.Count(t, "SELECT count(*) FROM execution_runs WHERE run_id = $1", run) == 0
				}, nil)
			}, 410, `"errorCode":"runArchivedNotRerunnable"}`},
		} {
			if step.before != nil {
				step.before()
			}
			id := step.id
			if id == "" {
				id = run
			}
			status, body := call(t, h, http.MethodPost, "/api/v1/admin/runs/"+id+"/rerun", "")
			if status != step.status || !strings.Contains(body, step.says) {
				t.Errorf("%s: answered %d %s, want %d with %s", step.name, status, body, step.status, step.says)
			}
		}
	})
}

// routingKey is that of the home's source.
func routingKey(t *testing.T, h *servertest.Home) (key string) {
	t.Helper()
	if err := h.DB.Read().QueryRowContext(t.Context(), "SELECT routing_key FROM sources").Scan(&key); err != nil {
		t.Fatal(fmt.Errorf("read the source: %w", err))
	}
	return key
}
