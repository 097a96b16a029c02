package adminapi_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/auth"
	"kici/internal/server/store/storetest"
)

// open begins to look at a run and gives a function that reads the next event, "" at the end of the stream.
func open(t *testing.T, s *rig, path, lastID string) func() string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
	check(t, err)
	req.Header.Set("Authorization", "Bearer "+s.Auditor)
	req.Header.Set("Last-Event-ID", lastID)
	res, err := http.DefaultClient.Do(req)
	check(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("stream: %d %s", res.StatusCode, res.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	return func() string {
		var event []string
		for lines.Scan() {
			switch {
			case lines.Text() != "":
				event = append(event, lines.Text())
			case len(event) > 1:
				return strings.Join(event, "\n")
			default:
				event = nil // the pause before coming back, or a sign of life
			}
		}
		return ""
	}
}

func TestRunIsStreamedUntilItsEnd(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	const path = "/api/v1/admin/runs/r1/events/stream"
	call(t, s, s.Auditor, "GET", "/api/v1/admin/runs/none/events/stream", nil).want(t, 404, "Run none not found")
	next := open(t, s, path, "")
	first := next()
	if !strings.HasPrefix(first, "id: ") || !strings.Contains(first, "\nevent: observe.snapshot\ndata: {\"type\":\"observe.snapshot\",\"sequence\":1,\"runId\":\"r1\"") {
		t.Fatalf("first event %s", first)
	}
	_, err := s.Engine.Cancel(t.Context(), "r1", "test", "", true)
	check(t, err)
	second := next()
	if !strings.Contains(second, `"type":"observe.status","sequence":2,"runId":"r1"`) || !strings.Contains(second, `"status":"cancelling"`) {
		t.Fatalf("second event %s", second)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(first, "id: "), "\n")
	if got := open(t, s, path, id)(); got != second {
		t.Errorf("who comes back gets %s", got)
	}
	if got := open(t, s, path+"?lastSeenSequence="+id, "")(); got != second {
		t.Errorf("who comes back by the query gets %s", got)
	}
	s.API.Stop()
	for next() != "" { // a server that stops ends the streams, and their readers go elsewhere
	}
}

// A token that is revoked shows no more of a run, however long the run goes on.
func TestStreamEndsWithItsToken(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	token, id, err := s.Tokens.CreateAdmin(t.Context(), auth.NewAdminToken{Label: "leaving", Role: auth.RoleAuditor})
	check(t, err)
	auditor := s.Auditor
	s.Auditor = token
	next := open(t, s, "/api/v1/admin/runs/r1/events/stream", "")
	s.Auditor = auditor
	next()
	check(t, s.Tokens.RevokeAdmin(t.Context(), id))
	other := open(t, s, "/api/v1/admin/runs/r1/events/stream", "")
	other()
	mine, err := s.Engine.Owned(t.Context(), "a-1", "r1-build")
	check(t, err)
	for step := 0; ; step++ {
		check(t, s.Engine.Reported(t.Context(), "a-1", mine, wire.StepStatus{RunID: "r1", JobID: "r1-build", StepIndex: step, StepName: "s",
			State: ci.StepRunning, Timestamp: startTime}))
		if other() == "" {
			t.Fatal("the stream of another token has ended, too")
		}
		if next() == "" {
			return
		}
	}
}
