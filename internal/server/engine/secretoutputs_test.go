package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kici/internal/core/ci"
	"kici/internal/kit/seal"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

const (
	masterKey  = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	anotherKey = "f00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
)

func (b *bench) keyring(current, previous string) *seal.Keyring {
	b.t.Helper()
	keys, err := seal.NewKeyring(current, previous)
	b.must(err)
	return keys
}

// keeping is an engine on the bench's store that keeps secret outputs.
func (b *bench) keeping() *engine.Engine {
	b.t.Helper()
	settings := engine.DefaultSettings()
	settings.NodeID = "node-1"
	clock := func() time.Time { return time.UnixMilli(b.now.Load()) }
	b.e = engine.New(engine.Deps{DB: b.db, Log: slog.New(slog.DiscardHandler), Settings: settings, Clock: clock,
		Dispatch: service.NewPoke(), Effects: service.NewPoke(), Outputs: secrets.New(b.db, b.keyring(masterKey, ""), clock)})
	return b.e
}

func (b *bench) publicKey(runID string) string {
	b.t.Helper()
	return b.text("SELECT public_key FROM execution_runs WHERE run_id = $1", runID)
}

func (b *bench) keyMade(runID string) (at int64) {
	b.t.Helper()
	at, exists, err := b.e.RunKeyMade(b.t.Context(), runID)
	b.must(err)
	if exists != (b.publicKey(runID) != "") || exists != (b.text("SELECT sealed_private_key FROM execution_runs WHERE run_id = $1", runID) != "") {
		b.t.Errorf("run %s has a key, it is said: %v", runID, exists)
	}
	return at
}

func TestARunHasAKeyUntilItEnds(t *testing.T) {
	each(t, func(b *bench) {
		b.register("before", job{name: "a"}) // by a server that keeps nothing
		b.keeping()
		born := b.now.Load()
		b.register("run", job{name: "a"}, job{name: "b", needs: []string{"a"}})
		b.register("other", job{name: "a"})
		b.now.Add(5)
		if b.keyMade("run") != born || b.keyMade("before") != 0 || b.publicKey("run") == b.publicKey("other") {
			t.Errorf("keys made at %d, and %d of a run without one", b.keyMade("run"), b.keyMade("before"))
		}
		for run, want := range map[string]string{"run": b.publicKey("run"), "none": ""} {
			if got, err := b.e.RunPublicKey(t.Context(), run); got != want || err != nil {
				t.Errorf("the key of run %s is %q, %v", run, got, err)
			}
		}
		given, err := b.e.RunPublicKey(t.Context(), "before")
		if b.must(err); given == "" || given != b.publicKey("before") || b.keyMade("before") != born+5 {
			t.Errorf("given %q at %d, stored %q", given, b.keyMade("before"), b.publicKey("before"))
		}
		b.run("agent-1", "run/a", ci.JobSuccess, "")
		if b.keyMade("run") != born {
			t.Error("the end of a job takes the key of its run")
		}
		b.run("agent-1", "run/b", ci.JobFailed, "")
		if at := b.keyMade("run"); at != 0 {
			t.Errorf("after the end there is a key of %d", at)
		}
		if late, err := b.e.RunPublicKey(t.Context(), "run"); late != "" || err != nil || b.keyMade("run") != 0 {
			t.Errorf("given after the end: %q, %v", late, err)
		}
	})
}

func TestNodesAgreeOnTheKeyOfARun(t *testing.T) {
	each(t, func(b *bench) {
		b.register("run", job{name: "a"})
		var keys [8]string
		var wg sync.WaitGroup
		for i := range keys {
			node := b.keeping()
			wg.Go(func() {
				key, err := node.RunPublicKey(context.Background(), "run")
				if err != nil {
					t.Error(err)
				}
				keys[i] = key
			})
		}
		wg.Wait()
		for _, key := range keys {
			if key == "" || key != keys[0] {
				t.Fatalf("nodes have different keys: %q", keys)
			}
		}
	})
}

func TestKeysOfRunsPassToAnotherMasterKey(t *testing.T) {
	each(t, func(b *bench) {
		b.keeping()
		for _, run := range []string{"a", "b", "damaged", "ended"} {
			b.register(run, job{name: "j"})
		}
		b.run("agent-1", "ended/j", ci.JobSuccess, "")
		b.write(func(ctx context.Context, tx *store.Tx) error {
			return tx.Do(ctx, "UPDATE execution_runs SET sealed_private_key = 'AAAA' WHERE run_id = 'damaged'")
		})
		for range 2 { // interrupted, it is called again
			done, err := b.e.RotateRunKeys(t.Context(), b.keyring(anotherKey, masterKey))
			if b.must(err); done != (secrets.Resealed{Done: 2, Skipped: 1}) {
				t.Errorf("sealed anew: %+v", done)
			}
		}
		for _, run := range []string{"a", "b"} {
			if _, err := b.keyring(anotherKey, "").Open(b.text("SELECT sealed_private_key FROM execution_runs WHERE run_id = $1", run), secrets.RunKeyPlace); err != nil {
				t.Errorf("the key of run %s: %v", run, err)
			}
		}
	})
}

// TestKeysMoveToTheirRuns takes the schema back to the time when keys had a table of their own.
func TestKeysMoveToTheirRuns(t *testing.T) {
	migration, err := os.ReadFile("../store/migrations/0020_run_keys.sql")
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(b *bench) {
		for _, run := range []string{"open", "ended", "keyless"} {
			b.register(run, job{name: "j"})
		}
		b.run("agent-1", "ended/j", ci.JobSuccess, "")
		b.write(func(ctx context.Context, tx *store.Tx) error {
			for statement := range strings.SplitSeq(strings.Join([]string{
				"ALTER TABLE execution_runs DROP COLUMN public_key",
				"ALTER TABLE execution_runs DROP COLUMN sealed_private_key",
				"ALTER TABLE execution_runs DROP COLUMN key_made_at",
				`CREATE TABLE run_ephemeral_keys (run_id TEXT PRIMARY KEY, public_key TEXT NOT NULL, encrypted_private_key TEXT NOT NULL,
					key_version BIGINT NOT NULL, created_at BIGINT NOT NULL)`,
				"INSERT INTO run_ephemeral_keys VALUES ('open', 'public', 'private', 1, 7), ('ended', 'public', 'private', 1, 7), ('gone', 'p', 'p', 1, 7)",
				strings.TrimSuffix(strings.TrimSpace(string(migration)), ";"),
			}, ";"), ";") {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("%s: %w", statement, err)
				}
			}
			return nil
		})
		got := b.list("SELECT run_id || ' ' || public_key || ' ' || sealed_private_key || ' ' || key_made_at FROM execution_runs WHERE public_key IS NOT NULL")
		if !slices.Equal(got, []string{"open public private 7"}) {
			t.Errorf("moved: %q", got)
		}
	})
}
