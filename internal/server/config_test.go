package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		s.Engine.StaleAfter != 2*time.Minute || s.MaxLogBytes != 2<<30 || s.LogMaxAge != 90*24*time.Hour || s.LogMaxTotal != 20<<30 || s.Durable || len(report.Warnings) != 0 {
		t.Errorf("settings %+v, warnings %v", s, report.Warnings)
	}
}

func TestConfigLayers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("server:\n  port: 5000\nqueue:\n  maxDepth: 50\ncluster:\n  trustedProxies: [10.0.0.0/8, 192.0.2.1]\n  raftHeartbeatMs: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, report, err := LoadConfig(file, []string{"KICI_PORT=6000", "KICI_QUEUE_TIMEOUT_MS=0", "KICI_AGENT_ID=a", "KICI_STORAGE_TYPE=s3"}, map[string]string{"data": "/srv/x"})
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
