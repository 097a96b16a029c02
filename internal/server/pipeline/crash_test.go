//go:build unix

package pipeline_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kici/internal/server/engine"
	"kici/internal/server/forge"
	"kici/internal/server/inbox"
	"kici/internal/server/pipeline"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// The process that gets killed is this test binary, told by its environment to be a server.
const (
	childURL  = "KICI_TEST_CHILD_URL"  // of PostgreSQL, or empty
	childFile = "KICI_TEST_CHILD_FILE" // of SQLite
	childBase = "KICI_TEST_CHILD_BASE"
	childRuns = "KICI_TEST_CHILD_RUNS"
	childDies = "KICI_TEST_CHILD_DIES" // when: see TestKilledServerLosesAndDoublesNothing
)

func TestMain(m *testing.M) {
	if os.Getenv(childBase) != "" {
		fmt.Fprintln(os.Stderr, serve())
		os.Exit(1)
	}
	storetest.Main(m)
}

// files is an engine whose runs are files, so that they outlive a process. Like the real one it knows a run by its id.
type files struct {
	db   *store.DB
	dir  string
	dies string
}

func (f files) Origin(context.Context, string) (engine.Origin, error) {
	return engine.Origin{}, engine.ErrRunNotFound
}

func (f files) Register(ctx context.Context, r engine.Registration, also ...func(ctx context.Context, tx *store.Tx) error) error {
	if f.dies == "before the run" {
		die()
	}
	err := os.WriteFile(filepath.Join(f.dir, r.RunID), []byte(r.DeliveryID+" "+r.Plan.Workflow), 0o600)
	if f.dies == "after the run" {
		die()
	}
	return errors.Join(err, together(ctx, f.db, also))
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// serve is the child: it prints its address and works until it dies.
func serve() error {
	db, err := store.Open(context.Background(), store.Options{URL: os.Getenv(childURL), Path: os.Getenv(childFile)})
	if err != nil {
		return err
	}
	p, err := assemble(db, os.Getenv(childBase), files{db, os.Getenv(childRuns), os.Getenv(childDies)})
	if err != nil {
		return err
	}
	server := httptest.NewServer(p.ingest.Handler())
	fmt.Println(server.URL)
	if os.Getenv(childDies) == "before the work" {
		select {}
	}
	return pipeline.New(p.deps).Run(context.Background())
}

func TestKilledServerLosesAndDoublesNothing(t *testing.T) {
	for _, engineName := range []string{"sqlite", "postgres"} {
		for _, dies := range []string{"before the work", "before the run", "after the run"} {
			t.Run(engineName+"/"+dies, func(t *testing.T) {
				o := store.Options{Path: filepath.Join(t.TempDir(), "kici.db")}
				if engineName == "postgres" {
					o.URL = storetest.PostgresURL(t)
				}
				testKill(t, o, dies)
			})
		}
	}
}

func testKill(t *testing.T, o store.Options, dies string) {
	runs, base := t.TempDir(), filepath.Join(t.TempDir(), "git")
	p := openParts(t, o, base, runs)
	src := p.add(t, "repos", &forge.LocalConfig{RepoBasePath: base})
	sha := p.commit(t, "app", lockOf(workflow("a", onMain, aJob), workflow("b", onMain, aJob)))
	if err := p.db.Close(); err != nil { // an embedded database belongs to one process
		t.Fatal(err)
	}

	child, address := startChild(t, o, base, runs, dies)
	id := inbox.DeliveryID(src.RoutingKey, "k")
	if got, err := tryPush(t, address, "repos", "push", pushBody("app", sha), "k"); err == nil && got != id {
		t.Errorf("delivery %s, want %s", got, id)
	} // it may die before it answers, and has the delivery all the same
	if dies == "before the work" {
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := child.Wait(); err == nil {
		t.Fatal("the server ended by itself")
	}

	p = openParts(t, o, base, runs)
	defer p.db.Close()
	p.settle(t, 1)
	if row := p.logged(t, id); row.Status != inbox.StatusProcessed || row.Matched != 2 {
		t.Errorf("event log %+v", row)
	}
	made, err := os.ReadDir(runs)
	if err != nil || len(made) != 2 {
		t.Errorf("%d runs, %v; want one for each workflow", len(made), err)
	}
	server := httptest.NewServer(p.ingest.Handler())
	defer server.Close()
	if again := push(t, server.URL, "repos", "push", pushBody("app", sha), "k"); again != "" && again != id {
		t.Errorf("the redelivery was taken as %s", again)
	}
	if _, ok, err := p.inbox.Next(t.Context()); ok || err != nil {
		t.Errorf("the redelivery waits for work: %v, %v", ok, err)
	}
}

func openParts(t *testing.T, o store.Options, base, runs string) *parts {
	t.Helper()
	db, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := assemble(db, base, files{db: db, dir: runs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.git.Close)
	return p
}

func startChild(t *testing.T, o store.Options, base, runs, dies string) (child *exec.Cmd, address string) {
	t.Helper()
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childURL+"="+o.URL, childFile+"="+o.Path, childBase+"="+base, childRuns+"="+runs, childDies+"="+dies)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(errors.Join(errors.New("the server said nothing"), err))
	}
	return child, strings.TrimSpace(line)
}
