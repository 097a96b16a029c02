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
	childDies = "KICI_TEST_CHILD_DIES" // when: see TestKilledServerLosesAndDoublesNothing
)

func TestMain(m *testing.M) {
	if os.Getenv(childBase) != "" {
		fmt.Fprintln(os.Stderr, serve())
		os.Exit(1)
	}
	storetest.Main(m)
}

// rows is an engine whose runs are rows of a table of the test, so that they outlive a process. Like the real one it knows a run
// by its id, and registers it in one transaction with what else is to be done.
type rows struct {
	db   *store.DB
	dies string
}

func (rows) Origin(context.Context, string) (engine.Origin, error) {
	return engine.Origin{}, engine.ErrRunNotFound
}

func (e rows) Register(ctx context.Context, r engine.Registration, also ...func(ctx context.Context, tx *store.Tx) error) error {
	if e.dies == "before the run" {
		die()
	}
	err := e.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Do(ctx, "INSERT INTO test_runs (id) VALUES ($1) ON CONFLICT DO NOTHING", r.RunID); err != nil {
			return err
		}
		for _, do := range also {
			if err := do(ctx, tx); err != nil {
				return err
			}
		}
		if e.dies == "within the run" {
			die()
		}
		return nil
	})
	if e.dies == "after the run" {
		die()
	}
	return err
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
	p, err := assemble(db, os.Getenv(childBase), rows{db, os.Getenv(childDies)})
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
		for _, dies := range []string{"before the work", "before the run", "within the run", "after the run"} {
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
	base := filepath.Join(t.TempDir(), "git")
	p := openParts(t, o, base)
	src := p.add(t, "repos", &forge.LocalConfig{RepoBasePath: base})
	sha := p.commit(t, "app", lockOf(workflow("a", onMain, aJob), workflow("b", onMain, aJob)))
	err := p.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return tx.Do(ctx, "CREATE TABLE test_runs (id TEXT PRIMARY KEY)")
	})
	if err := errors.Join(err, p.db.Close()); err != nil { // an embedded database belongs to one process
		t.Fatal(err)
	}

	child, address := startChild(t, o, base, dies)
	id := inbox.DeliveryID(src.RoutingKey, "k")
	got, unanswered := tryPush(t, address, "repos", "push", pushBody("app", sha), "k")
	if unanswered == nil && got != id {
		t.Errorf("delivery %s, want %s", got, id)
	}
	if dies == "before the work" {
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := child.Wait(); err == nil {
		t.Fatal("the server ended by itself")
	}

	p = openParts(t, o, base)
	defer p.db.Close()
	server := httptest.NewServer(p.ingest.Handler())
	defer server.Close()
	send := func() {
		if again := push(t, server.URL, "repos", "push", pushBody("app", sha), "k"); again != "" && again != id {
			t.Errorf("the redelivery was taken as %s", again)
		}
	}
	if unanswered != nil { // it may be there all the same
		send()
	}
	p.settle(t, 1)
	if row := p.logged(t, id); row.Status != inbox.StatusProcessed || row.Matched != 2 {
		t.Errorf("event log %+v", row)
	}
	var made int
	if err := p.db.Read().QueryRowContext(t.Context(), "SELECT count(*) FROM test_runs").Scan(&made); err != nil || made != 2 {
		t.Errorf("%d runs, %v; want one for each workflow", made, err)
	}
	send()
	if _, ok, err := p.inbox.Next(t.Context()); ok || err != nil {
		t.Errorf("the redelivery waits for work: %v, %v", ok, err)
	}
}

func openParts(t *testing.T, o store.Options, base string) *parts {
	t.Helper()
	db, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := assemble(db, base, rows{db: db})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.git.Close)
	return p
}

func startChild(t *testing.T, o store.Options, base, dies string) (child *exec.Cmd, address string) {
	t.Helper()
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childURL+"="+o.URL, childFile+"="+o.Path, childBase+"="+base, childDies+"="+dies)
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
