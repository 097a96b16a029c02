package server

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"time"

	"kici/internal/core/ci"
	"kici/internal/kit/blob"
	"kici/internal/kit/config"
	"kici/internal/kit/seal"
	"kici/internal/server/cache"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/orgs"
)

// blobFolder is where blobs lie in a data folder.
const blobFolder = "blobs"

// logPrefix is what stands before the keys of step logs in a bucket, behind the configured prefix.
const logPrefix = "kici-logs"

// linkPurpose separates the secret of links from what else is derived of the master key.
const linkPurpose = "blob links"

// StorageSettings say where blobs lie and how much is kept.
type StorageSettings struct {
	S3      *blob.S3Options // nil keeps blobs in files, and step logs, too
	Logs    blob.S3Options  // of step logs; used beside S3 alone
	Folder  string          // of the files; "" is in the data folder
	BaseURL string          // of links to files; "" is where this server listens
	Limits  cache.Limits
}

// storageConfig is where an operator says so.
type storageConfig struct {
	Type             string `key:"type" env:"KICI_STORAGE_TYPE" default:"filesystem" enum:"filesystem|s3" help:"Where caches, artifacts and attestations lie, and with s3 step logs, too. There, credentials come from the variables, files and roles that Amazon's own tools use."`
	Folder           string `key:"fsPath" env:"KICI_STORAGE_FS_PATH" help:"Folder of the files, an absolute path. Without it they lie in the data folder. Servers that share a database share it."`
	BaseURL          string `key:"fsBaseUrl" env:"KICI_STORAGE_FS_BASE_URL" help:"URL of this server as agents reach it, for links to files. Without it, where the server listens."`
	Bucket           string `key:"bucket" env:"KICI_STORAGE_BUCKET" help:"Bucket of the object store, needed for s3."`
	Prefix           string `key:"prefix" env:"KICI_STORAGE_PREFIX" help:"What stands before every key in the bucket."`
	Region           string `key:"region" env:"KICI_STORAGE_REGION" default:"us-east-1" help:"Region of the bucket."`
	Endpoint         string `key:"endpoint" env:"KICI_STORAGE_ENDPOINT" help:"URL of the object store. Without it, Amazon's."`
	ExternalEndpoint string `key:"externalEndpoint" env:"KICI_STORAGE_EXTERNAL_ENDPOINT" help:"URL of the object store as agents reach it, where that differs."`
	UploadEndpoint   string `key:"uploadEndpoint" env:"KICI_STORAGE_UPLOAD_ENDPOINT" help:"URL of the object store as the machines of people reach it, where that differs."`
	LogBucket        string `key:"logBucket" env:"KICI_STORAGE_LOG_BUCKET" help:"Bucket of step logs, where that is another one."`
	PathStyle        bool   `key:"forcePathStyle" env:"KICI_STORAGE_FORCE_PATH_STYLE" default:"false" help:"Name the bucket in the path of URLs and never in the host."`
}

// artifactConfig bounds what runs leave behind.
type artifactConfig struct {
	Quota  int64         `key:"quotaBytes" env:"KICI_ARTIFACT_QUOTA_BYTES" default:"20g" min:"1" unit:"bytes" help:"Artifacts that an organisation keeps."`
	TTL    time.Duration `key:"ttlMs" env:"KICI_ARTIFACT_TTL_MS" default:"2592000000" min:"1" unit:"ms" help:"How long an artifact is kept."`
	Max    int64         `key:"maxBytes" env:"KICI_ARTIFACT_MAX_BYTES" default:"1g" min:"1" unit:"bytes" help:"Largest artifact."`
	PerRun int           `key:"maxPerRun" env:"KICI_ARTIFACT_MAX_PER_RUN" default:"50" min:"1" help:"Artifacts of one run."`
}

// check finds what is wrong with where blobs shall lie.
func (c storageConfig) check() (out []config.Problem) {
	if c.Type == "s3" && c.Bucket == "" {
		out = append(out, config.Problem{Setting: "storage.bucket", Wrong: "KICI_STORAGE_BUCKET is required when KICI_STORAGE_TYPE is s3", Right: "the name of a bucket"})
	}
	if c.Type != "s3" && c.LogBucket != "" {
		out = append(out, config.Problem{Setting: "storage.logBucket", Wrong: "there are buckets only when KICI_STORAGE_TYPE is s3", Right: "no bucket, or the type s3"})
	}
	for _, e := range [][2]string{{"storage.endpoint", c.Endpoint}, {"storage.externalEndpoint", c.ExternalEndpoint}, {"storage.uploadEndpoint", c.UploadEndpoint}} {
		if _, err := blob.ParseEndpoint(e[1]); e[1] != "" && err != nil {
			out = append(out, config.Problem{Setting: e[0], Wrong: "it is no URL of an object store", Right: "a URL such as https://minio.example:9000, without user and path"})
		}
	}
	if c.Folder != "" && !filepath.IsAbs(c.Folder) {
		out = append(out, config.Problem{Setting: "storage.fsPath", Wrong: fmt.Sprintf("%q is not absolute", c.Folder), Right: "an absolute path"})
	}
	if u, err := url.Parse(c.BaseURL); c.BaseURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil) {
		out = append(out, config.Problem{Setting: "storage.fsBaseUrl", Wrong: "it is no URL of a server", Right: "a URL such as https://kici.example, with the base path if there is one"})
	}
	return out
}

// minBuildTTL is the shortest time that builds are kept: a run that was planned with a build must still find it.
const minBuildTTL = 30 * 24 * time.Hour

func (c Config) storage() StorageSettings {
	s := StorageSettings{Folder: c.Storage.Folder, BaseURL: strings.TrimRight(c.Storage.BaseURL, "/"), Limits: cache.Limits{
		BuildTTL: max(c.CacheTTL, minBuildTTL), MaxTarball: c.CacheMaxTarball, UserQuota: c.UserCacheQuota, UserTTL: c.UserCacheTTL,
		ArtifactQuota: c.Artifacts.Quota, ArtifactTTL: c.Artifacts.TTL, ArtifactMax: c.Artifacts.Max, ArtifactsPerRun: c.Artifacts.PerRun}}
	if c.Storage.Type == "s3" {
		s.S3 = &blob.S3Options{Bucket: c.Storage.Bucket, Prefix: c.Storage.Prefix, Region: c.Storage.Region, Endpoint: c.Storage.Endpoint,
			ExternalEndpoint: c.Storage.ExternalEndpoint, UploadEndpoint: c.Storage.UploadEndpoint, PathStyle: c.Storage.PathStyle}
		s.Logs = *s.S3
		s.Logs.Prefix = path.Join(c.Storage.Prefix, logPrefix)
		if c.Storage.LogBucket != "" {
			s.Logs.Bucket = c.Storage.LogBucket
		}
	}
	return s
}

// Elsewhere says what of a server lies outside its data folder and its database, "" where nothing does.
func (s StorageSettings) Elsewhere(dataDir string) string {
	const files = "caches, artifacts and attestations lie in "
	switch {
	case s.S3 != nil:
		return files + "bucket " + s.S3.Bucket + ", step logs in bucket " + s.Logs.Bucket
	case s.Folder == "" || filepath.Clean(s.Folder) == filepath.Join(dataDir, blobFolder):
		return ""
	}
	return files + "folder " + s.Folder
}

// storage is where blobs lie, and how others get at them.
type storage struct {
	blobs   blob.Store
	logs    blob.Store      // of step logs; nil keeps them in files of their own
	files   *blob.Files     // to close; nil for an object store
	links   *blob.FileLinks // to check; nil for an object store, which checks its own
	agents  blob.Links
	people  blob.Links
	handler http.Handler // of the blobs of files; nil for an object store
}

// openStorage opens what the settings name, and the cache that keeps things there.
func (s *Server) openStorage(ctx context.Context, keys *seal.Keyring) error {
	open := s.openFiles
	if s.settings.Storage.S3 != nil {
		open = s.openS3
	}
	if err := open(ctx, keys); err != nil {
		return err
	}
	limits := s.settings.Storage.Limits
	s.cache = cache.New(cache.Deps{DB: s.db, Blobs: s.storage.blobs, Agents: s.storage.agents, People: s.storage.people, Jobs: cacheJobs{s},
		Limits: s.cacheLimits, Defaults: limits, Clock: s.clock, Log: s.log})
	if s.storage.links != nil {
		s.storage.handler = s.cache.Handler(s.storage.links)
	}
	s.exposeCache()
	return nil
}

// cacheLimits are the configured ones, but for what an organisation has decided itself.
func (s *Server) cacheLimits(ctx context.Context, orgID string) (cache.Limits, error) {
	limits := s.settings.Storage.Limits
	org, err := orgs.Read(ctx, s.db.Read(), orgID)
	if err != nil {
		return limits, err
	}
	if org.UserCacheQuota != nil {
		limits.UserQuota = *org.UserCacheQuota
	}
	if org.UserCacheTTLMs != nil {
		limits.UserTTL = time.Duration(*org.UserCacheTTLMs) * time.Millisecond
	}
	return limits, nil
}

func (s *Server) openS3(ctx context.Context, _ *seal.Keyring) error {
	store, err := blob.OpenS3(ctx, *s.settings.Storage.S3)
	if err != nil {
		return err
	}
	logs, err := blob.OpenS3(ctx, s.settings.Storage.Logs)
	if err != nil {
		return err
	}
	s.storage = storage{blobs: store, logs: logs, agents: store.ForAgents(), people: store.ForPeople()}
	return nil
}

// openFiles derives the secret of links from the master key: servers that share the folder share that, and it outlives a
// restart without being kept anywhere.
func (s *Server) openFiles(_ context.Context, keys *seal.Keyring) error {
	secrets, err := keys.Derive(linkPurpose)
	if err != nil {
		return err
	}
	folder := s.settings.Storage.Folder
	if folder == "" {
		folder = s.node.path(blobFolder)
		if s.settings.DatabaseURL != "" {
			s.log.Warn("caches and artifacts lie in the data folder of this node; another server on this database would not find them, set KICI_STORAGE_FS_PATH or use s3", "folder", folder)
		}
	}
	files, err := blob.OpenFiles(folder)
	if err != nil {
		return err
	}
	links := blob.NewFileLinks(s.linkBase, secrets, s.clock)
	s.storage = storage{blobs: files, files: files, links: links, agents: links, people: blob.NewFileLinks(blob.Relative, secrets, s.clock)}
	return nil
}

// linkBase is the base URL of links to files. A server that listens on every address is reached on this machine's own.
func (s *Server) linkBase() string {
	if base := s.settings.Storage.BaseURL; base != "" {
		return base
	}
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return s.URL()
	}
	return "http://" + net.JoinHostPort("127.0.0.1", port) + s.settings.BasePath
}

// withBlobs serves the blobs of files beside everything else. It stands before the router, which would tidy a path whose
// form must be judged.
func (s *Server) withBlobs(next http.Handler) http.Handler {
	if s.storage.handler == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path+"/", blob.LinkRoute) {
			s.storage.handler.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) exposeCache() {
	count := func(name, help string, read func(cache.Stats) int64) {
		s.metrics.CounterFunc(name, help, func() float64 { return float64(read(s.cache.Stats())) })
	}
	count("kici_orch_source_cache_hits_total", "Packed sources that were found.", func(c cache.Stats) int64 { return c.SourceHits })
	count("kici_orch_source_cache_misses_total", "Packed sources that were not found.", func(c cache.Stats) int64 { return c.SourceMisses })
	count("kici_orch_dep_cache_hits_total", "Packed dependencies that were found.", func(c cache.Stats) int64 { return c.DepsHits })
	count("kici_orch_dep_cache_misses_total", "Packed dependencies that were not found.", func(c cache.Stats) int64 { return c.DepsMisses })
}

// cacheJobs tells who a job is by what it was registered with.
type cacheJobs struct{ s *Server }

// CacheIdentity implements cache.Jobs. A job whose configuration names no scope is of nobody's trust.
func (j cacheJobs) CacheIdentity(ctx context.Context, jobID string) (cache.Identity, bool, error) {
	in, err := j.s.engine.Input(ctx, jobID)
	if errors.Is(err, sql.ErrNoRows) {
		return cache.Identity{}, false, nil
	}
	if err != nil {
		return cache.Identity{}, false, err
	}
	id, err := cacheIdentity(in)
	return id, err == nil, err
}

// packed implements dispatch.Builds.
type packed struct{ cache *cache.Cache }

// Packed looks for what was packed for a job. Jobs that work for others, and those of repositories without packages to
// install, have nothing.
func (p packed) Packed(ctx context.Context, in engine.Input, platform, arch string) (dispatch.Packed, error) {
	if in.Kind == ci.KindBuild || !bytes.Contains(in.Config, []byte(`"lockfileHash":`)) {
		return dispatch.Packed{}, nil
	}
	var c struct{ ContentHash, LockfileHash string }
	if err := json.Unmarshal(in.Config, &c); err != nil {
		return dispatch.Packed{}, fmt.Errorf("decode configuration of job %s: %w", in.JobID, err)
	}
	id, err := cacheIdentity(in)
	if err != nil || c.LockfileHash == "" {
		return dispatch.Packed{}, err
	}
	built, err := p.cache.Built(ctx, id, cache.Build{ContentHash: c.ContentHash, LockfileHash: c.LockfileHash, Platform: platform, Arch: arch})
	if err != nil {
		return dispatch.Packed{}, err
	}
	out := dispatch.Packed{SourceURL: built.SourceURL, DepsURL: built.DepsURL, DepsHash: built.DepsHash}
	if out.SourceURL != "" {
		out.SourceHash = c.ContentHash
	}
	return out, nil
}

func cacheIdentity(in engine.Input) (cache.Identity, error) {
	var c struct {
		CacheOrgID, CacheRepoID, CacheRefScope                string
		ContentHash, LockfileHash, TargetPlatform, TargetArch string
	}
	if err := json.Unmarshal(in.Config, &c); err != nil {
		return cache.Identity{}, fmt.Errorf("decode configuration of job %s: %w", in.JobID, err)
	}
	id := cache.Identity{OrgID: in.OrgID, RepoID: in.Repo, RunID: in.RunID, JobID: in.JobID, Shared: c.CacheRefScope == "shared"}
	if c.CacheOrgID != "" {
		id.OrgID = c.CacheOrgID
	}
	if c.CacheRepoID != "" {
		id.RepoID = c.CacheRepoID
	}
	if in.Kind == ci.KindBuild {
		id.Build = &cache.Build{ContentHash: c.ContentHash, LockfileHash: c.LockfileHash, Platform: c.TargetPlatform, Arch: c.TargetArch}
	}
	return id, nil
}
