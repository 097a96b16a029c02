package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kici/internal/server"
	"kici/internal/server/servertest"
	"kici/internal/testenv"
)

// tiny makes a file system of a few megabytes in memory.
func tiny(t *testing.T, megabytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		testenv.Missing(t, "mount", err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill writes a file until the file system has no room left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		_, err := f.Write(make([]byte, size))
		switch {
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
}

// TestFullDiskLosesNothing fills the disk of the data folder under a running job. Senders and agents are told in clear
// words to come again, and once there is room everything goes on: the job, its log, new deliveries.
func TestFullDiskLosesNothing(t *testing.T) {
	disk := tiny(t, 12)
	h := servertest.New(t, func(s *server.Settings) { s.DataDir = filepath.Join(disk, "data") })
	h.Start(t)
	agent := holding(t, h)
	sha := h.Commit(t, app, servertest.Lock("build"))
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)

	// What the write-ahead log has allocated already may take a few more; then the disk is full for everybody.
	refused := 0
	servertest.Await(t, "the refusal of a delivery", func() bool {
		refused++
		a, err := h.Deliver(t.Context(), servertest.Source, servertest.PushBody(app, "main", sha), fmt.Sprint("full-", refused))
		if err != nil || a.Status/100 != 2 && a.Status != http.StatusServiceUnavailable {
			t.Fatalf("delivery on a full disk: %+v, %v", a, err)
		}
		return a.Status == http.StatusServiceUnavailable && a.Error == "Storage is full"
	}, nil)
	agent.Release()
	requireAlive(t, h)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}

	if err := insist(t.Context(), h, sha, fmt.Sprint("full-", refused)); err != nil {
		t.Fatal(err)
	}
	h.AwaitRuns(t, refused+1) // all that were taken, the one that was refused first, and the first run
	requireAllGreen(t, h, refused+1)
	requireStartsMatchAttempts(t, h, agent.Ledger, refused+1)
}

// requireAlive asks the server for its health, which needs no disk.
func requireAlive(t *testing.T, h *servertest.Home) {
	t.Helper()
	resp, err := http.Get(h.URL() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Errorf("health on a full disk: %d %s, %v", resp.StatusCode, body, err)
	}
}
