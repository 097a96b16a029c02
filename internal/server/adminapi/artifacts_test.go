package adminapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/core/wire"
	"kici/internal/kit/blob"
	"kici/internal/kit/service"
	"kici/internal/server/cache"
	"kici/internal/server/engine"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// oneJob is the only job of a run.
type oneJob struct{ run string }

// CacheIdentity implements cache.Jobs.
func (j oneJob) CacheIdentity(_ context.Context, jobID string) (cache.Identity, bool, error) {
	return cache.Identity{OrgID: "default", RepoID: "app", RunID: j.run, JobID: jobID}, true, nil
}

// keep gives the rig a store of artifacts, and its run one artifact. Links lead to the server that it gives.
func (s *rig) keep(t *testing.T, run, name, content string) (blobs string) {
	t.Helper()
	files, err := blob.OpenFiles(filepath.Join(t.TempDir(), "blobs"))
	check(t, err)
	t.Cleanup(func() { files.Close() })
	clock := service.Clock(func() time.Time { return time.UnixMilli(s.Millis.Load()) })
	links := blob.NewFileLinks(blob.Relative, [][]byte{[]byte("k")}, clock)
	limits := cache.DefaultLimits()
	c := cache.New(cache.Deps{DB: s.DB, Blobs: files, Agents: links, People: links, Jobs: oneJob{run}, Clock: clock, Log: slog.New(slog.DiscardHandler),
		Limits: func(context.Context, string) (cache.Limits, error) { return limits, nil }, Defaults: limits})
	web := httptest.NewServer(c.Handler(links))
	t.Cleanup(web.Close)
	s.API.Artifacts = c
	size := int64(len(content))
	place, err := c.BeginArtifact(t.Context(), engine.Owned{JobID: "job"}, wire.ArtifactUploadRequest{Name: name, SizeBytes: &size})
	check(t, err)
	req, err := http.NewRequestWithContext(t.Context(), "PUT", web.URL+place.UploadURL, strings.NewReader(content))
	check(t, err)
	resp, err := http.DefaultClient.Do(req)
	check(t, err)
	resp.Body.Close()
	check(t, c.CommitArtifact(t.Context(), engine.Owned{JobID: "job"},
		wire.ArtifactCommitRequest{UploadID: place.UploadID, SHA256: strings.Repeat("a", 64), SizeBytes: size}))
	return web.URL
}

func TestArtifactsOfARun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Register(t, "r1", scopedKey)
		s.Register(t, "other", "generic:default:other")
		blobs := s.keep(t, "r1", "../a b.html", "<html>")
		const path = "/api/v1/admin/runs/r1/artifacts"
		call(t, s, s.Auditor, "GET", path, nil).want(t, 200, `{"artifacts":[{"jobId":"job","name":"../a b.html","sizeBytes":6,"sha256":"`+strings.Repeat("a", 64)+
			`","createdAt":"2026-01-01T00:00:00.000Z","expiresAt":"2026-01-31T00:00:00.000Z"}]}`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs/other/artifacts", nil).want(t, 200, `{"artifacts":[]}`)
		found := decode[adminwire.ArtifactLink](t, call(t, s, s.Scoped, "GET", path+"/download?name="+url.QueryEscape("../a b.html"), nil).want(t, 200, "downloadUrl"))
		req, err := http.NewRequestWithContext(t.Context(), "GET", blobs+found.DownloadURL, nil)
		check(t, err)
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		defer resp.Body.Close()
		if resp.StatusCode != 200 || resp.ContentLength != 6 || found.SizeBytes != 6 {
			t.Errorf("%+v: %d, %d bytes", found, resp.StatusCode, resp.ContentLength)
		}
		call(t, s, s.Owner, "GET", path+"/download?name=none", nil).want(t, 404, "Artifact not found")
		call(t, s, s.Owner, "GET", path+"/download", nil).want(t, 400, `"path":"name"`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs/none/artifacts", nil).want(t, 404, "Run none not found")
		call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/other/artifacts", nil).want(t, 403, "Access denied")
		call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/other/artifacts/download?name=x", nil).want(t, 403, "Access denied")
	})
}

func TestArtifactsWithoutAStoreAreNotConfigured(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	s.Register(t, "r1", scopedKey)
	for _, path := range []string{"/artifacts", "/artifacts/download?name=x"} {
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs/r1"+path, nil).want(t, 503, "Artifact storage not configured on this orchestrator")
	}
}
