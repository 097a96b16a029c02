package server_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kici/internal/core/wire"
	"kici/internal/kit/blob"
	"kici/internal/kit/blob/blobtest"
	"kici/internal/server"
	"kici/internal/server/servertest"
)

// transfer makes a request as an agent does, outside of its connection.
func transfer(t *testing.T, method, link, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, link, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(raw))
}

// useBucket keeps what a server keeps in an object store of the test's own.
func useBucket(t *testing.T, s *server.Settings) {
	s.Storage.S3 = &blob.S3Options{Bucket: blobtest.Bucket, Endpoint: blobtest.ObjectStore(t)}
	s.Storage.Logs = *s.Storage.S3
	s.Storage.Logs.Prefix = "kici-logs"
}

// dispatched connects an agent and gives it a job.
func dispatched(t *testing.T, h *servertest.Home) (p *servertest.Peer, jobID string) {
	t.Helper()
	p = h.Dial(t)
	p.Hello(h, register("a"))
	h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
	d, ok := p.Next().(wire.JobDispatch)
	if !ok {
		t.Fatal("no dispatch")
	}
	return p, d.JobID
}

func TestACacheGoesFromAJobToTheStoreAndBack(t *testing.T) {
	stores := map[string]func(t *testing.T, s *server.Settings){
		"files":                 func(*testing.T, *server.Settings) {},
		"files below base path": func(_ *testing.T, s *server.Settings) { s.BasePath = "/kici" },
		"files at every address": func(_ *testing.T, s *server.Settings) {
			s.Host = "0.0.0.0"
		},
		"s3": func(t *testing.T, s *server.Settings) {
			useBucket(t, s)
		},
	}
	for name, set := range stores {
		t.Run(name, func(t *testing.T) {
			h := servertest.New(t, func(s *server.Settings) { set(t, s) })
			h.Start(t)
			p, job := dispatched(t, h)
			p.Send(wire.UserCacheSaveRequest{MessageID: "save", JobID: job, Key: "npm-1"})
			place, ok := p.Next().(wire.UserCacheSaveResponse)
			if !ok || place.RequestID != "save" || place.Skip {
				t.Fatalf("answer to the save: %+v", place)
			}
			if status, answer := transfer(t, "PUT", place.UploadURL, "tar"); status != 200 {
				t.Fatalf("put %d %s", status, answer)
			}
			p.Send(wire.UserCacheSaveComplete{MessageID: "saved", JobID: job, Key: "npm-1", TarHash: strings.Repeat("a", 64), SizeBytes: 3})
			p.Send(wire.UserCacheRestoreRequest{MessageID: "restore", JobID: job, Key: "npm-2", RestoreKeys: []string{"npm-"}})
			found, ok := p.Next().(wire.UserCacheRestoreResponse)
			if !ok || found.RequestID != "restore" || !found.Hit || found.MatchedKey != "npm-1" || found.TarHash != strings.Repeat("a", 64) {
				t.Fatalf("answer to the restore: %+v", found)
			}
			if status, answer := transfer(t, "GET", found.DownloadURL, ""); status != 200 || answer != "tar" {
				t.Errorf("get %d %s", status, answer)
			}
		})
	}
}

func TestLinksOutliveARestart(t *testing.T) {
	h := servertest.New(t, nil)
	first := h.Start(t)
	before := h.URL()
	p, job := dispatched(t, h)
	p.Send(wire.UserCacheSaveRequest{MessageID: "save", JobID: job, Key: "k"})
	place, ok := p.Next().(wire.UserCacheSaveResponse)
	if !ok {
		t.Fatal("no answer")
	}
	first.Stop()
	h.Start(t)
	if status, answer := transfer(t, "PUT", strings.Replace(place.UploadURL, before, h.URL(), 1), "tar"); status != 200 {
		t.Errorf("put %d %s", status, answer)
	}
}

func TestBlobPathsAreJudgedAsTheyWereSent(t *testing.T) {
	h := servertest.New(t, nil)
	h.Start(t)
	tests := []struct {
		path   string
		status int
		text   string
	}{
		{"/api/v1/cache/blob/a//b", 400, "Invalid key segment"},
		{"/api/v1/cache/blob/a/%2e%2e/b", 400, "Invalid key segment"},
		{"/api/v1/cache/blob/x/../../../y", 400, "Invalid key segment"},
		{"/api/v1/cache/blob/", 400, "Invalid key"},
		{"/api/v1/cache/blob", 400, "Invalid key"},
		{"/api/v1/cache/blob/x", 401, "Missing sig"},
		{"/api/v1/cache/blob/x?sig=1", 401, "Invalid token (malformed)"},
		{"/api/v1/cache/blobs", 404, "Not found"},
	}
	for _, tt := range tests {
		if status, answer := transfer(t, "GET", h.URL()+tt.path, ""); status != tt.status || answer != `{"error":"`+tt.text+`"}` {
			t.Errorf("%s: %d %s, want %d %s", tt.path, status, answer, tt.status, tt.text)
		}
	}
}

func TestABucketThatIsNotThereStopsTheStart(t *testing.T) {
	h := servertest.New(t, func(s *server.Settings) {
		s.Storage.S3 = &blob.S3Options{Bucket: "missing", Endpoint: blobtest.ObjectStore(t)}
	})
	if _, err := h.Open(t); err == nil || !strings.Contains(err.Error(), "bucket missing") {
		t.Errorf("got %v", err)
	}
}

func TestStepLogsGoToTheBucketByTheStopAtTheLatest(t *testing.T) {
	h := servertest.New(t, func(s *server.Settings) { useBucket(t, s) })
	running := h.Start(t)
	h.Employ(t, &servertest.Agent{ID: "agent", Features: careful, Chunks: 2})
	h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
	h.AwaitRuns(t, 1)
	running.Stop()
	logs, err := blob.OpenS3(t.Context(), h.Settings.Storage.Logs)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := logs.List(t.Context(), "executions"); err != nil || len(list) == 0 {
		t.Errorf("got %v, %v", list, err)
	}
}

func TestCacheMetricsAreServed(t *testing.T) {
	h := servertest.New(t, nil)
	h.Start(t)
	_, text := transfer(t, "GET", h.URL()+"/metrics", "")
	for _, name := range []string{"kici_orch_source_cache_hits_total", "kici_orch_source_cache_misses_total", "kici_orch_dep_cache_hits_total", "kici_orch_dep_cache_misses_total"} {
		if !slices.Contains(strings.Split(text, "\n"), name+" 0") {
			t.Errorf("%s is missing", name)
		}
	}
}
