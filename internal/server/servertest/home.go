// Package servertest starts servers for tests, in the test's process and as processes of their own that can be killed,
// and gives them what they need from outside: repositories, deliveries, agents that run nothing.
package servertest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kici/internal/kit/seal"
	"kici/internal/kit/service"
	"kici/internal/server"
	"kici/internal/server/auth"
	"kici/internal/server/forge"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// Org is the organisation of every source that this package makes.
const Org = "default"

// Source is the name of the local source that every home has from the start. It takes deliveries unsigned.
const Source = "repos"

// Home is what outlives a server: its data folder, its database, its repositories and tokens. Any number of servers may
// be started in it, one after the other.
type Home struct {
	Settings server.Settings
	// DB is the test's own connection to the servers' database. It sees what they have committed.
	DB *store.DB
	// Repos is the folder below which the local source finds its repositories.
	Repos string
	// Token admits any agent.
	Token string

	t       testing.TB
	sources *forge.Sources
	mu      sync.Mutex
	url     string
}

// Each runs the test on SQLite and on PostgreSQL, each time in a home of its own. change may adjust the settings.
func Each(t *testing.T, change func(*server.Settings), test func(t *testing.T, h *Home)) {
	t.Run("sqlite", func(t *testing.T) { test(t, New(t, change)) })
	t.Run("postgres", func(t *testing.T) {
		url := storetest.PostgresURL(t)
		test(t, New(t, func(s *server.Settings) {
			s.DatabaseURL = url
			if change != nil {
				change(s)
			}
		}))
	})
}

// New makes a home with a local source and an agent token. change may adjust the settings, whose data folder is fresh.
func New(t testing.TB, change func(*server.Settings)) *Home {
	t.Helper()
	s := server.DefaultSettings()
	s.Port, s.DataDir, s.MasterKey = 0, filepath.Join(t.TempDir(), "data"), strings.Repeat("0f", 32)
	if change != nil {
		change(&s)
	}
	h := &Home{t: t, Settings: s, Repos: filepath.Join(t.TempDir(), "git")}
	must(t, os.MkdirAll(s.DataDir, 0o700))
	must(t, os.MkdirAll(h.Repos, 0o755))
	db, err := store.Open(t.Context(), store.Options{URL: s.DatabaseURL, Path: filepath.Join(s.DataDir, "kici.db")})
	must(t, err)
	h.DB = db
	t.Cleanup(func() { must(t, db.Close()) })
	h.furnish()
	return h
}

// furnish makes the source and the token, as an administrator would.
func (h *Home) furnish() {
	h.t.Helper()
	keys, err := seal.NewKeyring(h.Settings.MasterKey, "")
	must(h.t, err)
	h.sources = forge.NewSources(h.DB, keys, time.Now)
	h.AddSource(Source, forge.Verification{Method: forge.MethodNone})
	tokens := auth.New(h.DB, time.Now, slog.New(slog.DiscardHandler))
	h.Token, _, err = tokens.CreateStatic(h.t.Context(), auth.NewAgentToken{CreatedBy: "test"})
	must(h.t, err)
}

// AddSource makes a local source of the home's repositories.
func (h *Home) AddSource(name string, v forge.Verification) {
	h.t.Helper()
	settings := forge.Settings{Options: forge.DefaultOptions(), Verification: v}
	settings.Name, settings.RateLimitRPM = name, 100_000
	settings.Local = &forge.LocalConfig{RepoBasePath: h.Repos}
	_, err := h.sources.Create(h.t.Context(), Org, settings)
	must(h.t, err)
}

// Start runs a server in this process until the test ends or Stop is called. Its log goes to the test's output.
func (h *Home) Start(t testing.TB) *Running {
	t.Helper()
	s, err := h.Open(t)
	must(t, err)
	must(t, s.Start(context.Background()))
	r := &Running{Server: s, t: t}
	t.Cleanup(r.Stop)
	h.setURL(s.URL())
	return r
}

// Open opens a server in this home without starting it. It is the caller's to start and stop.
func (h *Home) Open(t testing.TB) (*server.Server, error) {
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	return server.Open(t.Context(), h.Settings, log, t.Output())
}

// Running is a server in this process.
type Running struct {
	*server.Server
	t    testing.TB
	once sync.Once
}

// Stop ends the server. Calls after the first do nothing.
func (r *Running) Stop() {
	r.once.Do(func() {
		if err := r.Server.Stop(); err != nil {
			r.t.Errorf("stop server: %v", err)
		}
	})
}

// URL is where the newest server of this home answers, or did.
func (h *Home) URL() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.url
}

func (h *Home) setURL(url string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.url = url
}

// AgentURL is the WebSocket endpoint of that server.
func (h *Home) AgentURL() string { return "ws" + strings.TrimPrefix(h.URL(), "http") + "/ws" }

// awaitLimit bounds every wait of a test. It is long, since a busy machine is no failure; nobody waits so long for what
// comes true.
const awaitLimit = 60 * time.Second

// awaitStep is the pause between two looks.
const awaitStep = 5 * time.Millisecond

// Await looks until done reports true, and fails the test when that takes too long. describe tells for the failure how
// far things are; it may be nil.
func Await(t testing.TB, what string, done func() bool, describe func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), awaitLimit)
	defer cancel()
	for !done() {
		if service.Sleep(ctx, awaitStep) {
			continue
		}
		state := ""
		if describe != nil {
			state = ": " + describe()
		}
		t.Fatalf("%s did not come true within %s%s", what, awaitLimit, state)
	}
}

// Count gives the number that a query reads.
func (h *Home) Count(t testing.TB, query string, args ...any) int {
	t.Helper()
	var n int
	if err := h.DB.Read().QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("count: %v", err)
	}
	return n
}

// AwaitRuns waits until there are so many runs and all of them have ended.
func (h *Home) AwaitRuns(t testing.TB, n int) {
	t.Helper()
	const ended = "SELECT count(*) FROM execution_runs WHERE completed_at IS NOT NULL"
	Await(t, fmt.Sprintf("the end of %d runs", n), func() bool {
		return h.Count(t, ended) >= n && h.Count(t, "SELECT count(*) FROM execution_runs WHERE completed_at IS NULL") == 0
	}, h.describe)
}

// describe lists the jobs that have not ended, for a test that waited in vain.
func (h *Home) describe() string {
	rows, err := h.DB.Read().QueryContext(context.Background(), `SELECT j.job_id, j.status, coalesce(q.status, '-'), coalesce(q.agent_id, '-'),
coalesce(j.reason, '-') FROM execution_jobs j LEFT JOIN dispatch_queue q ON q.id = j.job_id WHERE j.completed_at IS NULL LIMIT 10`)
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	var out strings.Builder
	for rows.Next() {
		var id, status, row, agent, reason string
		if err := rows.Scan(&id, &status, &row, &agent, &reason); err != nil {
			return err.Error()
		}
		fmt.Fprintf(&out, "\njob %s %s, row %s, agent %s, %s", id, status, row, agent, reason)
	}
	return out.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
