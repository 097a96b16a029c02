//go:build linux

package chaos_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"kici/internal/cli"
	"kici/internal/server/chaos"
	"kici/internal/server/store/storetest"
)

// TestMain makes the test binary the program itself when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "server" || os.Args[1] == "agent" || os.Args[1] == "__runner") {
		os.Exit(cli.Run(context.Background(), os.Args, cli.Process{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ()}))
	}
	storetest.Main(m)
}

// TestNothingIsLostHoweverMuchIsKilled is the killing test in its short form. KICI_TEST_CHAOS_SEED repeats a plan.
func TestNothingIsLostHoweverMuchIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	t.Run("one server on SQLite", func(t *testing.T) { torment(t, chaos.Options{Servers: 1}) })
	t.Run("three servers on PostgreSQL", func(t *testing.T) {
		torment(t, chaos.Options{Servers: 3, Postgres: storetest.PostgresURL(t)})
	})
}

func TestASystemThatCannotBeBuiltIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := chaos.Run(t.Context(), chaos.Options{Servers: 1, Logs: filepath.Join(file, "logs")}); err == nil {
		t.Error("no error")
	}
}

func torment(t *testing.T, o chaos.Options) {
	o.Seed = seed(t)
	o.Duration, o.Agents, o.Settle = 12*time.Second, 3, time.Minute
	o.Progress = func(text string) { t.Log(text) }
	r, err := chaos.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	for _, v := range r.Violations {
		t.Errorf("%s: %s", v.Promise, v.What)
	}
	if r.Executions == 0 || r.AckedLines == 0 {
		t.Error("nothing was done, so nothing was tested")
	}
}

// seed is a new one each time: the plan is one of many, and the failure names it.
func seed(t *testing.T) uint64 {
	text := cmp.Or(os.Getenv("KICI_TEST_CHAOS_SEED"), strconv.FormatInt(time.Now().UnixNano()%1_000_000, 10))
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("KICI_TEST_CHAOS_SEED must be a whole number, not %q", text)
	}
	return n
}
