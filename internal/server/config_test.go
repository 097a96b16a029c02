package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/blob"
	"kici/internal/server/cache"
)

func TestConfigDefaultsAreAServerWithoutConfiguration(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/srv/data")
	c, report, err := LoadConfig("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Settings()
	if err != nil {
		t.Fatal(err)
	}
	if s.Host != "127.0.0.1" || s.Port != 4000 || s.DataDir != "/srv/data/kici" || s.Engine.RecoveryWindow != 2*time.Minute ||
		s.Engine.StaleAfter != 2*time.Minute || s.MaxLogBytes != 2<<30 || s.LogMaxAge != 90*24*time.Hour || s.LogMaxTotal != 20<<30 || s.RunMaxAge != 365*24*time.Hour || s.Durable || len(report.Warnings) != 0 {
		t.Errorf("settings %+v, warnings %v", s, report.Warnings)
	}
}

func TestConfigLayers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("server:\n  port: 5000\nqueue:\n  maxDepth: 50\ncluster:\n  trustedProxies: [10.0.0.0/8, 192.0.2.1]\n  raftHeartbeatMs: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, report, err := LoadConfig(file, []string{"KICI_PORT=6000", "KICI_QUEUE_TIMEOUT_MS=0", "KICI_AGENT_ID=a", "KICI_STORAGE_PATH=/srv/logs"}, map[string]string{"data": "/srv/x"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Settings()
	if err != nil {
		t.Fatal(err)
	}
	if s.Port != 6000 || s.Engine.QueueMaxDepth != 50 || s.Engine.QueueTimeout != 0 || s.DataDir != "/srv/x" || len(s.TrustedProxies) != 2 {
		t.Errorf("settings %+v", s)
	}
	if len(report.Warnings) != 2 {
		t.Errorf("warnings %q: want one for the variable and one for the key without effect", report.Warnings)
	}
}

func TestConfigProblemsAreToldTogether(t *testing.T) {
	_, _, err := LoadConfig("", []string{"KICI_PORT=http", "KICI_TYPO=1", "KICI_MODE=platform", "KICI_AGENT_AUTH=maybe", "KICI_CLUSTER_TRUSTED_PROXIES=here"}, nil)
	if err == nil {
		t.Fatal("accepted")
	}
	text := err.Error()
	for _, name := range []string{"KICI_PORT", "KICI_TYPO", "KICI_MODE", "KICI_AGENT_AUTH"} {
		if !strings.Contains(text, name) {
			t.Errorf("%s is not named in:\n%s", name, text)
		}
	}
	if lines := strings.Count(text, "\n") + 1; lines != 4 {
		t.Errorf("%d lines, want one a problem:\n%s", lines, text)
	}
	_, _, err = LoadConfig("", []string{"KICI_CLUSTER_TRUSTED_PROXIES=here", "KICI_BOOTSTRAP_ADMIN_TOKEN=short-hunter2"}, nil)
	if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("problems of several settings: %v", err)
	}
	if _, _, err := LoadConfig("/nonexistent/kici.yaml", nil, nil); err == nil {
		t.Error("a named file that is missing is accepted")
	}
}

func TestRunsOutliveTheirEvents(t *testing.T) {
	for days, right := range map[string]bool{"0": true, "7": true, "6": false} {
		c, _, err := LoadConfig("", []string{"KICI_RUN_RETENTION_DAYS=" + days}, nil)
		if (err == nil) != right || err != nil && !strings.Contains(err.Error(), "runRetentionDays") {
			t.Errorf("runs kept for %s days: %v", days, err)
		}
		if err != nil {
			continue
		}
		s, err := c.Settings()
		if err != nil || fmt.Sprint(s.RunMaxAge.Hours()/24) != days {
			t.Errorf("runs kept for %s days: %s, %v", days, s.RunMaxAge, err)
		}
	}
}

func TestConfigOfStorage(t *testing.T) {
	load := func(environ ...string) (Settings, error) {
		c, _, err := LoadConfig("", append(environ, "KICI_DATA_DIR=/srv/x"), nil)
		if err != nil {
			return Settings{}, err
		}
		return c.Settings()
	}
	s, err := load()
	if d := cmp.Diff(DefaultSettings().Storage, s.Storage); err != nil || d != "" {
		t.Errorf("without configuration: %v %s", err, d)
	}
	s, err = load("KICI_STORAGE_TYPE=s3", "KICI_STORAGE_BUCKET=b", "KICI_STORAGE_PREFIX=p/", "KICI_STORAGE_REGION=eu", "KICI_STORAGE_ENDPOINT=http://a:9000",
		"KICI_STORAGE_EXTERNAL_ENDPOINT=https://b", "KICI_STORAGE_UPLOAD_ENDPOINT=https://c", "KICI_STORAGE_FORCE_PATH_STYLE=true", "KICI_STORAGE_LOG_BUCKET=l",
		"KICI_CACHE_TTL_DAYS=3", "KICI_CACHE_MAX_TARBALL_BYTES=2m", "KICI_USER_CACHE_QUOTA_BYTES=7", "KICI_USER_CACHE_TTL_MS=1000",
		"KICI_ARTIFACT_QUOTA_BYTES=5", "KICI_ARTIFACT_TTL_MS=2000", "KICI_ARTIFACT_MAX_BYTES=4", "KICI_ARTIFACT_MAX_PER_RUN=3")
	want := StorageSettings{S3: &blob.S3Options{Bucket: "b", Prefix: "p/", Region: "eu", Endpoint: "http://a:9000", ExternalEndpoint: "https://b",
		UploadEndpoint: "https://c", PathStyle: true}, Limits: cache.Limits{BuildTTL: 30 * 24 * time.Hour, MaxTarball: 2 << 20, UserQuota: 7,
		UserTTL: time.Second, ArtifactQuota: 5, ArtifactTTL: 2 * time.Second, ArtifactMax: 4, ArtifactsPerRun: 3}}
	want.Logs = *want.S3
	want.Logs.Bucket, want.Logs.Prefix = "l", "p/kici-logs"
	if d := cmp.Diff(want, s.Storage); err != nil || d != "" {
		t.Errorf("with everything: %v %s", err, d)
	}
	s, err = load("KICI_STORAGE_FS_PATH=/srv/blobs", "KICI_STORAGE_FS_BASE_URL=https://kici.example/base/")
	if err != nil || s.Storage.Folder != "/srv/blobs" || s.Storage.BaseURL != "https://kici.example/base" || s.Storage.S3 != nil {
		t.Errorf("files: %+v, %v", s.Storage, err)
	}
	for _, bad := range []string{"KICI_STORAGE_TYPE=s3", "KICI_STORAGE_TYPE=ftp", "KICI_STORAGE_LOG_BUCKET=l", "KICI_STORAGE_FS_PATH=blobs", "KICI_STORAGE_FS_BASE_URL=kici.example",
		"KICI_STORAGE_ENDPOINT=minio:9000", "KICI_STORAGE_EXTERNAL_ENDPOINT=https://h/path", "KICI_STORAGE_UPLOAD_ENDPOINT=x", "KICI_CACHE_MAX_TARBALL_BYTES=5"} {
		if _, err := load(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
