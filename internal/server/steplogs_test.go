package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kici/internal/kit/blob"
	"kici/internal/server"
	"kici/internal/server/logs"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
)

// TestLogsOfEndedRunsExpire lets a start find old logs, short ones and long ones: those of a run that ended go, those of one
// that goes on stay.
func TestLogsOfEndedRunsExpire(t *testing.T) {
	for name, chunks := range map[string]int{"short": 2, "long": 20} {
		t.Run(name, func(t *testing.T) {
			servertest.Each(t, func(s *server.Settings) { s.LogMaxAge, s.BootstrapToken = 24*time.Hour, adminToken }, func(t *testing.T, h *servertest.Home) {
				testExpiry(t, h, chunks)
			})
		})
	}
}

func testExpiry(t *testing.T, h *servertest.Home, chunks int) {
	first := h.Start(t)
	sha := h.Commit(t, app, servertest.Lock("build"))
	brief := h.Employ(t, &servertest.Agent{ID: "brief", Features: careful, Chunks: chunks})
	h.Push(t, app, "main", sha)
	h.AwaitRuns(t, 1)
	brief.Kill()
	h.Employ(t, &servertest.Agent{ID: "lasting", Features: careful, Chunks: chunks, Hold: true})
	h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
	ended, open := logOf(t, h, "success", chunks), logOf(t, h, "running", chunks)
	first.Stop()
	long := time.Now().Add(-48 * time.Hour)
	short := h.Count(t, "SELECT count(*) FROM short_logs")
	if err := h.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE short_logs SET written_at = $1", long.UnixMilli())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, path := range []string{ended, open} {
		switch err := os.Chtimes(filepath.Join(h.Settings.DataDir, "logs", path), long, long); {
		case err == nil:
			files++
		case !errors.Is(err, os.ErrNotExist):
			t.Fatal(err)
		}
	}
	if short+files != 2 || (files == 2) != (chunks == 20) {
		t.Errorf("of two logs of %d chunks %d are rows and %d files", chunks, short, files)
	}
	second := h.Start(t)
	servertest.Await(t, "the end of the old log", func() bool {
		_, err := os.Stat(filepath.Join(h.Settings.DataDir, "logs", ended))
		return errors.Is(err, os.ErrNotExist) && h.Count(t, "SELECT count(*) FROM short_logs") == max(short-1, 0)
	}, nil)
	second.Stop()
	store := openLogs(t, h)
	if _, _, _, err := store.Lines(t.Context(), ended, 0, 1); !errors.Is(err, logs.ErrExpired) {
		t.Errorf("log of the run that ended: %v", err)
	}
	if lines, _, _, err := store.Lines(t.Context(), open, 0, 99); err != nil || len(lines) != chunks {
		t.Errorf("log of the run that goes on: %d lines, %v", len(lines), err)
	}
}

// openLogs opens the logs of a home whose server is not running. With an object store it first uploads what is left, as
// the next start would, and then reads what is there and nowhere else.
func openLogs(t *testing.T, h *servertest.Home) *logs.Store {
	t.Helper()
	o := logs.Options{Root: filepath.Join(h.Settings.DataDir, "logs"), DB: h.DB}
	if h.Settings.Storage.S3 != nil {
		bucket, err := blob.OpenS3(t.Context(), h.Settings.Storage.Logs)
		if err != nil {
			t.Fatal(err)
		}
		o.Segments = bucket
		left := openStore(t, o)
		if err := errors.Join(left.Flush(t.Context()), left.Close()); err != nil {
			t.Fatal(err)
		}
		o.Root = t.TempDir()
	}
	return openStore(t, o)
}

func openStore(t *testing.T, o logs.Options) *logs.Store {
	t.Helper()
	store, err := logs.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// logOf waits until the only run in that state has its whole log, and gives the log's path.
func logOf(t *testing.T, h *servertest.Home, status string, chunks int) string {
	t.Helper()
	var path, run, job string
	servertest.Await(t, "the log of the run that is "+status, func() bool {
		err := h.DB.Read().QueryRowContext(t.Context(), `SELECT s.log_path, j.run_id, j.job_id FROM execution_steps s
JOIN execution_jobs j ON j.job_id = s.job_id WHERE j.status = $1`, status).Scan(&path, &run, &job)
		if err != nil {
			return false
		}
		_, page := pageOf(t, h, fmt.Sprintf("/api/v1/admin/runs/%s/jobs/%s/steps/0/logs?limit=1", run, job))
		return page.TotalLines == int64(chunks)
	}, nil)
	return path
}

// TestLoudStepIsStoredWhole sends as many chunks as one step of 5 MB did that cost another server its run. Nothing is
// dropped, and the step ends as it did.
func TestLoudStepIsStoredWhole(t *testing.T) {
	const chunks = 2220
	h := servertest.New(t, nil)
	first := h.Start(t)
	h.Employ(t, &servertest.Agent{ID: "agent", Features: careful, Chunks: chunks})
	h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
	h.AwaitRuns(t, 1)
	requireAllGreen(t, h, 1)
	first.Stop()
	store := openLogs(t, h)
	var run string
	if err := h.DB.Read().QueryRowContext(t.Context(), "SELECT run_id FROM execution_runs").Scan(&run); err != nil {
		t.Fatal(err)
	}
	lines, total, _, err := store.Lines(t.Context(), logs.Path(run, "build", 0), 0, chunks)
	if err != nil || total != chunks {
		t.Fatalf("%d lines, %v", total, err)
	}
	for i, line := range lines {
		if !strings.Contains(line, fmt.Sprintf(`"msg":"line %d",`, i)) {
			t.Fatalf("line %d is %s", i, line)
		}
	}
}
