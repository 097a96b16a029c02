package provenance

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kici/internal/core/attest"
	"kici/internal/core/wire"
	"kici/internal/kit/blob"
	"kici/internal/kit/seal"
	"kici/internal/server/auth"
	"kici/internal/server/cache"
	"kici/internal/server/engine"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const (
	issuer    = "https://ci.test/kici"
	masterKey = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"
	nextKey   = "1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f"
	digest    = "0202020202020202020202020202020202020202020202020202020202020202"
)

// rig is a room over a real database and a real store, with its public routes and working links.
type rig struct {
	*Room
	t    *testing.T
	now  int64 // epoch ms
	jobs map[string]engine.JobIdentity
	web  *httptest.Server // the public routes
}

// JobIdentity implements Jobs.
func (r *rig) JobIdentity(_ context.Context, jobID string) (engine.JobIdentity, bool, error) {
	id, ok := r.jobs[jobID]
	return id, ok, nil
}

// CacheIdentity implements cache.Jobs.
func (r *rig) CacheIdentity(_ context.Context, jobID string) (cache.Identity, bool, error) {
	id, ok := r.jobs[jobID]
	return cache.Identity{OrgID: id.OrgID, RepoID: id.Repo, RunID: id.RunID, JobID: jobID}, ok, nil
}

func each(t *testing.T, test func(r *rig)) {
	storetest.Each(t, func(t *testing.T, db *store.DB) { test(newRig(t, db)) })
}

// newRig makes jobs j1 and j2 of one run, old, which has ended, and test, of a test run.
func newRig(t *testing.T, db *store.DB) *rig {
	r := &rig{t: t, now: time.Now().UnixMilli(), jobs: map[string]engine.JobIdentity{}}
	for _, id := range []string{"j1", "j2", "old", "test"} {
		r.jobs[id] = engine.JobIdentity{RunID: "r", JobID: id, OrgID: "default", Provider: "local", Repo: "acme/app", Ref: "main", SHA: "9f",
			Workflow: "ci", TriggerEvent: "push", Over: id == "old", Test: id == "test"}
	}
	files, err := blob.OpenFiles(filepath.Join(t.TempDir(), "blobs"))
	r.must(err)
	t.Cleanup(func() { files.Close() })
	clock := func() time.Time { return time.UnixMilli(r.now) }
	log := slog.New(slog.DiscardHandler)
	store := httptest.NewUnstartedServer(nil)
	links := blob.NewFileLinks(func() string { return "http://" + store.Listener.Addr().String() }, [][]byte{[]byte("k")}, clock)
	c := cache.New(cache.Deps{DB: db, Blobs: files, Agents: links, People: links, Jobs: r, Clock: clock, Log: log, Defaults: cache.DefaultLimits()})
	store.Config.Handler = c.Handler(links)
	store.Start()
	t.Cleanup(store.Close)
	r.Room = New(Deps{DB: db, Keys: r.keyring(masterKey, ""), Jobs: r, Uploads: c, Blobs: files, People: links, Access: auth.New(db, clock, log),
		Clock: clock, Log: log, Issuer: issuer, NodeID: "node-1", Client: func(*http.Request) string { return "1.2.3.4" }})
	mux := http.NewServeMux()
	r.Mount(mux)
	r.web = httptest.NewServer(mux)
	t.Cleanup(r.web.Close)
	return r
}

func (r *rig) keyring(current, previous string) *seal.Keyring {
	r.t.Helper()
	keys, err := seal.NewKeyring(current, previous)
	r.must(err)
	return keys
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) owned(jobID string) engine.Owned { return engine.Owned{RunID: "r", JobID: jobID} }

func (r *rig) mint(jobID string) string {
	r.t.Helper()
	token, err := r.Mint(r.t.Context(), r.owned(jobID), attest.Audience)
	r.must(err)
	return token.Token
}

func (r *rig) bundle(jobID string) []byte {
	r.t.Helper()
	raw, err := attest.Make(r.mint(jobID), attest.Subject{Name: "app.tgz", Digest: digest})
	r.must(err)
	return raw
}

// ask makes a request and gives the answer with the value of a header of it.
func (r *rig) ask(method, url, body string) (status int, answer string, header http.Header) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	r.must(err)
	resp, err := http.DefaultClient.Do(req)
	r.must(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	r.must(err)
	return resp.StatusCode, strings.TrimSpace(string(raw)), resp.Header
}

// verify asks the server itself.
func (r *rig) verify(body string) attest.Verdict {
	r.t.Helper()
	status, answer, _ := r.ask("POST", r.web.URL+"/api/v1/verify-attestation", body)
	var v attest.Verdict
	if status != 200 || json.Unmarshal([]byte(answer), &v) != nil {
		r.t.Fatalf("verdict %d %s", status, answer)
	}
	return v
}

// keep has a job put a bundle, and gives what is thought of it.
func (r *rig) keep(jobID string, bundle []byte) Attestation {
	r.t.Helper()
	link, err := r.BeginUpload(r.t.Context(), r.owned(jobID), digest)
	r.must(err)
	if status, answer, _ := r.ask("PUT", link, string(bundle)); status != 200 {
		r.t.Fatalf("put %d %s", status, answer)
	}
	r.must(r.CompleteUpload(r.t.Context(), r.owned(jobID), wire.ProvenanceUploadComplete{JobID: jobID, SubjectName: "app.tgz", SubjectDigest: digest, MediaType: attest.MediaType}))
	return r.theOne(jobID)
}

func (r *rig) theOne(jobID string) Attestation {
	r.t.Helper()
	a, _, err := r.AttestationLink(r.t.Context(), "r", jobID, digest)
	r.must(err)
	return a
}

func (r *rig) count(query string, args ...any) (n int) {
	r.t.Helper()
	r.must(r.DB.Read().QueryRowContext(r.t.Context(), query, args...).Scan(&n))
	return n
}
