package adminapi_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/auth"
	"kici/internal/server/logs"
	"kici/internal/server/store/storetest"
)

const stepLog = "/api/v1/admin/runs/r1/jobs/r1-build/steps/0/logs"

func chunk(t *testing.T, s *rig, id string, lines ...string) {
	t.Helper()
	err := s.Logs.Append(t.Context(), logs.Chunk{RunID: "r1", JobID: "r1-build", JobName: "build", StepIndex: 0, MessageID: id, At: startTime, Lines: lines})
	if err != nil {
		t.Error(err)
	}
}

func TestLogIsReadInPages(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	call(t, s, s.Auditor, "GET", stepLog, nil).want(t, 200, `"totalLines":0,"lines":[],"nextCursor":null`)
	chunk(t, s, "m1", "one", "two", "three")
	first := decode[adminwire.LogPage](t, call(t, s, s.Auditor, "GET", stepLog+"?limit=2", nil).want(t, 200, `"totalLines":3`))
	if len(first.Lines) != 2 || first.NextCursor == nil || *first.NextCursor != "2" || !first.Lines[0].Untrusted {
		t.Fatalf("first page %+v", first)
	}
	last := decode[adminwire.LogPage](t, call(t, s, s.Auditor, "GET", stepLog+"?limit=2&cursor=2", nil))
	if len(last.Lines) != 1 || last.NextCursor != nil || !strings.Contains(last.Lines[0].Value, `"msg":"three"`) {
		t.Fatalf("last page %+v", last)
	}
	for path, want := range map[string]string{
		"/api/v1/admin/runs/r1/jobs/r1-build/steps/x/logs": "Invalid stepIndex",
		stepLog + "?cursor=x":                              "Invalid cursor",
		stepLog + "?wait=never":                            "Invalid wait",
	} {
		call(t, s, s.Auditor, "GET", path, nil).want(t, 400, want)
	}
	call(t, s, s.Auditor, "GET", "/api/v1/admin/runs/r1/jobs/none/steps/0/logs", nil).want(t, 404, "Job none not found")
}

func TestFollowerWaitsForTheNextLine(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	chunk(t, s, "m1", "one")
	// Without new lines an open step's page keeps its cursor, so that the follower asks again.
	call(t, s, s.Auditor, "GET", stepLog+"?cursor=1&wait=1ms", nil).want(t, 200, `"lines":[],"nextCursor":"1"`)
	got := make(chan reply, 1)
	go func() { got <- call(t, s, s.Auditor, "GET", stepLog+"?cursor=1&wait=25s", nil) }()
	chunk(t, s, "m2", "two")
	(<-got).want(t, 200, `\"msg\":\"two\"`)
	go func() { got <- call(t, s, s.Auditor, "GET", stepLog+"?cursor=2&wait=25s", nil) }()
	s.API.Stop() // whenever it comes, the follower is answered and may ask the next server
	(<-got).want(t, 200, `"lines":[],"nextCursor":"2"`)
	if _, err := s.Engine.Cancel(t.Context(), "r1", "test", "", true); err != nil {
		t.Fatal(err)
	}
	// A job that never started has ended with its run: its log is complete.
	call(t, s, s.Auditor, "GET", "/api/v1/admin/runs/r1/jobs/r1-gpu/steps/0/logs?wait=25s", nil).want(t, 200, `"nextCursor":null`)
}

// Some agents send the last lines of a step behind its end: a follower has them, and an end all the same.
func TestFollowerHasTheLinesBehindTheEndOfAStep(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	step := func(state ci.StepStatus) {
		t.Helper()
		mine, err := s.Engine.Owned(t.Context(), "a-1", "r1-build")
		check(t, err)
		check(t, s.Engine.Reported(t.Context(), "a-1", mine, wire.StepStatus{RunID: "r1", JobID: "r1-build", StepName: "s", State: state, Timestamp: startTime}))
	}
	step(ci.StepRunning)
	chunk(t, s, "m1", "in time")
	step(ci.StepSuccess)
	got := make(chan reply, 1)
	go func() { got <- call(t, s, s.Auditor, "GET", stepLog+"?cursor=1&wait=25s", nil) }()
	chunk(t, s, "m2", "late")
	(<-got).want(t, 200, `\"msg\":\"late\"`).want(t, 200, `"nextCursor":"2"`)
	call(t, s, s.Auditor, "GET", stepLog+"?cursor=2&wait=1ms", nil).want(t, 200, `"lines":[],"nextCursor":null`)
	call(t, s, s.Auditor, "GET", stepLog, nil).want(t, 200, `"totalLines":2`).want(t, 200, `"nextCursor":null`)
	check(t, s.Engine.JobReported(t.Context(), "a-1", wire.JobStatus{RunID: "r1", JobID: "r1-build", State: ci.JobSuccess}))
	call(t, s, s.Auditor, "GET", stepLog+"?cursor=1&wait=25s", nil).want(t, 200, `"nextCursor":null`)
}

func TestLogIsReadFromItsEnd(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	chunk(t, s, "m1", "one", "two", "three")
	page := decode[adminwire.LogPage](t, call(t, s, s.Auditor, "GET", stepLog+"?tail=2", nil))
	if len(page.Lines) != 2 || !strings.Contains(page.Lines[0].Value, "two") || page.TotalLines != 3 || page.NextCursor != nil {
		t.Errorf("page %+v", page)
	}
	call(t, s, s.Auditor, "GET", stepLog+"?tail=2&wait=1s", nil).want(t, 200, `"nextCursor":"3"`) // a follower goes on from there
	for _, query := range []string{"?tail=0", "?tail=x", "?tail=2&cursor=1"} {
		call(t, s, s.Auditor, "GET", stepLog+query, nil).want(t, 400, "Invalid tail")
	}
}

func TestLogIsSearched(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	chunk(t, s, "m1", "fine", "\x1b[31mERROR\x1b[0m one", "fine", "error two")
	got := decode[adminwire.LogSearch](t, call(t, s, s.Auditor, "GET", stepLog+"/search?q=error&ignoreCase=true&limit=1", nil))
	cursor := "2"
	want := adminwire.LogSearch{RunID: "r1", JobID: "r1-build", TotalLines: 4, NextCursor: &cursor, Matches: []adminwire.LogMatch{
		{Line: 1, TS: "2026-01-01T00:00:00.000Z", Text: adminwire.Untrusted{Untrusted: true, Value: "ERROR one"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	call(t, s, s.Auditor, "GET", stepLog+"/search?re=^err&cursor=2", nil).want(t, 200, `"matches":[{"line":3,`)
	call(t, s, s.Auditor, "GET", stepLog+"/search?q=nothing", nil).want(t, 200, `"matches":[],"nextCursor":null`)
	for query, want := range map[string]string{"": "needs a text or an expression", "?q=a&re=b": "not both", "?re=(": "missing closing", "?q=a&cursor=-1": "Invalid cursor"} {
		call(t, s, s.Auditor, "GET", stepLog+"/search"+query, nil).want(t, 400, want)
	}
	entries, _, err := s.Tokens.AccessLog(t.Context(), auth.AccessFilter{Action: "step.logs.search"})
	if err != nil || len(entries) == 0 {
		t.Errorf("access log %+v, %v", entries, err)
	}
}

// raw asks for the bytes of a log.
func raw(t *testing.T, s *rig, byteRange string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+stepLog+"/raw", nil)
	check(t, err)
	req.Header.Set("Authorization", "Bearer "+s.Auditor)
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	resp, err := http.DefaultClient.Do(req)
	check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	return resp, string(body)
}

func TestWholeLogIsDownloaded(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	if resp, body := raw(t, s, ""); resp.StatusCode != 200 || body != "" {
		t.Errorf("a log that has no line yet: %d %q", resp.StatusCode, body)
	}
	chunk(t, s, "m1", "one", "two")
	resp, whole := raw(t, s, "")
	stored, err := os.ReadFile(filepath.Join(s.LogRoot, logs.Path("r1", "build", 0)))
	check(t, err)
	if resp.StatusCode != 200 || whole != string(stored) || resp.Header.Get("Content-Type") != "application/x-ndjson" ||
		resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Content-Disposition") != `attachment; filename="step-0.log"` {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, whole)
	}
	for byteRange, want := range map[string]string{"bytes=0-4": whole[:5], "bytes=10-": whole[10:], "bytes=-7": whole[len(whole)-7:]} {
		if resp, got := raw(t, s, byteRange); resp.StatusCode != 206 || got != want {
			t.Errorf("%s: %d %q, want %q", byteRange, resp.StatusCode, got, want)
		}
	}
	if resp, _ := raw(t, s, "bytes=100000-"); resp.StatusCode != 416 {
		t.Errorf("behind the end: %d", resp.StatusCode)
	}
	call(t, s, s.Scoped, "GET", stepLog+"/raw", nil).want(t, 200, "one")
	s.Register(t, "r2", "generic:default:other")
	call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/r2/jobs/r2-build/steps/0/logs/raw", nil).want(t, 403, "restricted to a single routing key")
}

func TestExpiredLogSaysSo(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Run(t, "r1")
	check(t, os.MkdirAll(filepath.Join(s.LogRoot, "expired"), 0o700))
	check(t, os.WriteFile(filepath.Join(s.LogRoot, "expired", "r1"), nil, 0o600))
	call(t, s, s.Auditor, "GET", stepLog, nil).want(t, 200, `"lines":[],"nextCursor":null,"expired":true`)
	call(t, s, s.Auditor, "GET", stepLog+"?tail=5&wait=25s", nil).want(t, 200, `"expired":true`)
	call(t, s, s.Auditor, "GET", stepLog+"/search?q=x", nil).want(t, 200, `"matches":[],"nextCursor":null,"expired":true`)
	call(t, s, s.Auditor, "GET", stepLog+"/raw", nil).want(t, 410, `{"error":"The log has expired","errorCode":"log_expired"}`)
}
