package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/server"
	"kici/internal/server/servertest"
)

func TestTheLogIsKeptInFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	h := servertest.New(t, func(s *server.Settings) {
		s.NodeID, s.LogFiles = "node/1", server.LogFiles{Dir: dir, MaxSize: 500 << 20, Days: 7}
	})
	s := h.Start(t)
	h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
	servertest.Await(t, "the run", func() bool { return h.Count(t, "SELECT count(*) FROM execution_runs") == 1 }, nil)
	s.Stop()
	files, err := filepath.Glob(filepath.Join(dir, "orchestrator-node_1-*.log"))
	if err != nil || len(files) == 0 || len(files) > 2 { // two at midnight
		t.Fatalf("%v, %v", files, err)
	}
	kept := ""
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kept += string(raw)
	}
	for _, want := range []string{`"message":"delivery processed"`, `"service":"orchestrator"`, `"level":"info"`} {
		if !strings.Contains(kept, want) {
			t.Errorf("%s is not in\n%s", want, kept)
		}
	}
}

// A server whose log cannot be kept does its work, and says so where it can.
func TestALogThatCannotBeKeptStopsNoServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := servertest.New(t, func(s *server.Settings) { s.LogFiles = server.LogFiles{Dir: dir} })
	h.Start(t)
	h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
	servertest.Await(t, "the run", func() bool { return h.Count(t, "SELECT count(*) FROM execution_runs") == 1 }, nil)
}

func TestTheLogsVariablesAreRead(t *testing.T) {
	c, report, err := server.LoadConfig("", []string{"KICI_DATA_DIR=" + t.TempDir(), "KICI_LOG_DIR=/var/log/kici", "KICI_LOG_MAX_SIZE=10m", "KICI_LOG_RETENTION_DAYS=3"}, nil)
	if err != nil || len(report.Warnings) != 0 {
		t.Fatalf("%v, %v", err, report.Warnings)
	}
	s, err := c.Settings()
	if want := (server.LogFiles{Dir: "/var/log/kici", MaxSize: 10 << 20, Days: 3}); err != nil || s.LogFiles != want {
		t.Errorf("%+v, %v", s.LogFiles, err)
	}
}
