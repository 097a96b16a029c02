package cache

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kici/internal/core/wire"
	"kici/internal/kit/blob"
	"kici/internal/kit/blob/blobtest"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// startTime is close to the real time, which the object store of tests goes by.
var startTime = time.Now().UnixMilli()

// rig is a cache over a real database and a real store, with links that work.
type rig struct {
	*Cache
	t      *testing.T
	now    int64
	jobs   map[string]Identity
	limits map[string]Limits // by organisation
}

// CacheIdentity implements Jobs.
func (r *rig) CacheIdentity(_ context.Context, jobID string) (Identity, bool, error) {
	id, ok := r.jobs[jobID]
	id.JobID = jobID
	return id, ok, nil
}

// each runs a test on both stores and both databases. Jobs t1, t2 are of trusted runs of one repository, u1, u2 of others;
// o1 is a trusted one of another repository with a name that looks alike; b1, b2 build in trusted runs and bu in another.
func each(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run("files, sqlite", func(t *testing.T) { test(t, fileRig(t, storetest.SQLite(t))) })
	t.Run("files, postgres", func(t *testing.T) { test(t, fileRig(t, storetest.Postgres(t))) })
	t.Run("s3, sqlite", func(t *testing.T) { test(t, s3Rig(t, storetest.SQLite(t))) })
}

func newRig(t *testing.T, db *store.DB) *rig {
	build := &Build{ContentHash: "c0ffee", LockfileHash: "1ock", Platform: "linux", Arch: "x64"}
	r := &rig{t: t, now: startTime, limits: map[string]Limits{}, jobs: map[string]Identity{
		"t1": {OrgID: "org", RepoID: "acme/app", RunID: "rt1", Shared: true},
		"t2": {OrgID: "org", RepoID: "acme/app", RunID: "rt2", Shared: true},
		"u1": {OrgID: "org", RepoID: "acme/app", RunID: "ru1"},
		"u2": {OrgID: "org", RepoID: "acme/app", RunID: "ru2"},
		"o1": {OrgID: "org", RepoID: "acme_app", RunID: "ro1", Shared: true},
		"b1": {OrgID: "org", RepoID: "acme/app", RunID: "rt1", Shared: true, Build: build},
		"b2": {OrgID: "org", RepoID: "acme/app", RunID: "rt2", Shared: true, Build: build},
		"bu": {OrgID: "org", RepoID: "acme/app", RunID: "ru1", Build: build},
	}}
	limits := DefaultLimits()
	limits.MaxTarball, limits.UserQuota, limits.ArtifactMax, limits.ArtifactQuota, limits.ArtifactsPerRun = 1000, 1000, 500, 1000, 3
	r.Cache = New(Deps{DB: db, Jobs: r, Defaults: limits, Clock: service.Clock(func() time.Time { return time.UnixMilli(r.now) }),
		Log: slog.New(slog.DiscardHandler), Limits: func(_ context.Context, org string) (Limits, error) {
			if l, ok := r.limits[org]; ok {
				return l, nil
			}
			return Limits{}, errors.New("nothing is known of this organisation")
		}})
	return r
}

func fileRig(t *testing.T, db *store.DB) *rig {
	r := newRig(t, db)
	files, err := blob.OpenFiles(filepath.Join(t.TempDir(), "blobs"))
	r.must(err)
	t.Cleanup(func() { files.Close() })
	web := httptest.NewUnstartedServer(nil)
	links := blob.NewFileLinks(func() string { return "http://" + web.Listener.Addr().String() }, [][]byte{[]byte("k")}, r.Clock)
	r.Blobs, r.Agents, r.People = files, links, blob.NewFileLinks(blob.Relative, [][]byte{[]byte("k")}, r.Clock)
	web.Config.Handler = r.Handler(links)
	web.Start()
	t.Cleanup(web.Close)
	return r
}

func s3Rig(t *testing.T, db *store.DB) *rig {
	r := newRig(t, db)
	s, err := blob.OpenS3(t.Context(), blob.S3Options{Bucket: blobtest.Bucket, Endpoint: blobtest.ObjectStore(t), Prefix: "p"})
	r.must(err)
	r.Blobs, r.Agents, r.People = s, s.ForAgents(), s.ForPeople()
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// send makes a request as an agent does.
func (r *rig) send(method, link, body string) (status int, answer string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, link, strings.NewReader(body))
	r.must(err)
	resp, err := http.DefaultClient.Do(req)
	r.must(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	r.must(err)
	return resp.StatusCode, string(raw)
}

func (r *rig) put(link, body string) {
	r.t.Helper()
	if status, answer := r.send("PUT", link, body); status != 200 {
		r.t.Fatalf("put: %d %s", status, answer)
	}
}

// saveLink asks for a place, "" when told to skip.
func (r *rig) saveLink(job, key string) string {
	r.t.Helper()
	answer, err := r.Save(r.t.Context(), owned(job), wire.UserCacheSaveRequest{Key: key})
	r.must(err)
	if answer.Skip != (answer.UploadURL == "") {
		r.t.Fatalf("answer %+v", answer)
	}
	return answer.UploadURL
}

// save saves a cache in one go and gives what the confirmation gave.
func (r *rig) save(job, key, content string) error {
	r.t.Helper()
	link := r.saveLink(job, key)
	if link == "" {
		return errors.New("skipped")
	}
	r.put(link, content)
	return r.saved(job, key)
}

func owned(job string) engine.Owned { return engine.Owned{JobID: job} }

// saved confirms what a job put under a key.
func (r *rig) saved(job, key string) error {
	r.t.Helper()
	return r.Saved(r.t.Context(), owned(job), wire.UserCacheSaveComplete{Key: key, TarHash: strings.Repeat("a", 64), SizeBytes: 1})
}

// restored is the key and the content that a restore gives, both "" for a miss.
func (r *rig) restored(job, key string, prefixes ...string) (matched, content string) {
	r.t.Helper()
	answer, err := r.Restore(r.t.Context(), owned(job), wire.UserCacheRestoreRequest{Key: key, RestoreKeys: prefixes})
	r.must(err)
	if answer.Hit != (answer.DownloadURL != "") {
		r.t.Fatalf("answer %+v", answer)
	}
	if !answer.Hit {
		return "", ""
	}
	status, content := r.send("GET", answer.DownloadURL, "")
	if status != 200 {
		r.t.Fatalf("get: %d %s", status, content)
	}
	return answer.MatchedKey, content
}

// upload is the one upload of the user cache that a job has open under a key.
func (r *rig) upload(job, key string) upload {
	r.t.Helper()
	list, err := r.begun(r.t.Context(), kindUser, job, key)
	r.must(err)
	if len(list) != 1 {
		r.t.Fatalf("%d uploads of %s are open", len(list), key)
	}
	return list[0]
}

// blobs are the paths of all blobs.
func (r *rig) blobs() []string {
	r.t.Helper()
	list, err := r.Blobs.List(r.t.Context(), "")
	r.must(err)
	return list
}

// refused tells whether an error is a refusal with this code.
func refused(err error, code string) bool {
	refusal, ok := errors.AsType[*Refusal](err)
	return ok && refusal.Code == code && refusal.Message != ""
}
