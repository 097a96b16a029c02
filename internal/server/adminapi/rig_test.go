package adminapi_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/decide/plan"
	"kici/internal/kit/seal"
	"kici/internal/kit/service"
	"kici/internal/server/adminapi"
	"kici/internal/server/auth"
	"kici/internal/server/contexts"
	"kici/internal/server/engine"
	"kici/internal/server/events"
	"kici/internal/server/fleet"
	"kici/internal/server/forge"
	"kici/internal/server/forge/git"
	"kici/internal/server/forge/local"
	"kici/internal/server/inbox"
	"kici/internal/server/ingest"
	"kici/internal/server/live"
	"kici/internal/server/logs"
	"kici/internal/server/provenance"
	"kici/internal/server/queue"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// startTime is the time of a test server, until a test sets another.
const startTime = 1_767_225_600_000 // 2026-01-01T00:00:00Z

// scopedKey is the routing key that the token of Scoped is bound to.
const scopedKey = "generic:default:s"

// rig is the admin API with what is behind it: real rooms over a real database and a real socket, without the loops of a
// server, so that nothing changes behind a test's back.
type rig struct {
	URL     string
	DB      *store.DB
	API     *adminapi.API
	Tokens  *auth.Tokens
	Engine  *engine.Engine
	Sources *forge.Sources
	Secrets *secrets.Store
	Logs    *logs.Store
	LogRoot string
	Dropped atomic.Int64 // events that came too fast
	Kicked  atomic.Int64 // how many tokens' connections were closed
	Millis  atomic.Int64 // the time

	// What reruns were asked by, and are answered with.
	RerunBy  string
	RerunErr error

	// Whom a rotation was asked by, and what it is answered with.
	RotatedBy secrets.Actor
	RotateErr error

	// Tokens of each role, and an owner's that is bound to scopedKey.
	Owner, Admin, Auditor, Scoped string
}

// KickToken says that every token had two connections.
func (s *rig) KickToken(context.Context, string) int {
	s.Kicked.Add(1)
	return 2
}

// RotateKey does nothing, or fails as the test says.
func (s *rig) RotateKey(_ context.Context, by secrets.Actor) (adminwire.RotatedKey, error) {
	s.RotatedBy = by
	return adminwire.RotatedKey{ReEncrypted: 7, SkippedRunKeys: 1}, s.RotateErr
}

// Rerun makes runs called again, or what the test says.
func (s *rig) Rerun(_ context.Context, runID, by string) (string, error) {
	s.RerunBy = by
	return "again", s.RerunErr
}

// newRig starts a server for the life of the test. Repositories of local sources are where the test puts them.
func newRig(t testing.TB, db *store.DB) *rig {
	t.Helper()
	s := &rig{DB: db}
	s.Millis.Store(startTime)
	clock := service.Clock(func() time.Time { return time.UnixMilli(s.Millis.Load()) })
	log := slog.New(slog.DiscardHandler)
	keys, err := seal.NewKeyring(strings.Repeat("0f", 32), "")
	check(t, err)
	s.LogRoot = t.TempDir()
	s.Logs, err = logs.Open(t.Context(), logs.Options{Root: s.LogRoot})
	check(t, err)
	t.Cleanup(func() { check(t, s.Logs.Close()) })
	settings := engine.DefaultSettings()
	settings.NodeID = "n"
	room := live.New(live.Deps{DB: db, LogOf: s.logOf, Clock: clock, Log: log})
	t.Cleanup(room.Stop)
	s.Tokens, s.Sources, s.Secrets = auth.New(db, clock, log), forge.NewSources(db, keys, clock), secrets.New(db, keys, clock)
	rules := contexts.New(db, clock, s.Secrets, engine.PendingHolds)
	s.Engine = engine.New(engine.Deps{DB: db, Clock: clock, Log: log, Settings: settings, Dispatch: service.NewPoke(), Effects: service.NewPoke(), Changed: room.Changed,
		Contexts: rules, Outputs: s.Secrets})
	reader := git.NewReader(git.Options{})
	t.Cleanup(reader.Close)
	in := ingest.New(ingest.Deps{Sources: s.Sources, Inbox: inbox.New(db, clock, service.NewPoke(), inbox.Options{NodeID: "n"}), Clock: clock, Log: log,
		Refs: map[string]forge.Refs{forge.Local: local.New(reader)}})
	rate := events.DefaultSettings()
	rate.PerMinute = 3
	told := events.New(events.Deps{DB: db, Clock: clock, Log: log, Settings: rate, Wake: service.NewPoke(), Dropped: func(string, int) { s.Dropped.Add(1) }})
	s.API = adminapi.New(adminapi.Deps{DB: db, Tokens: s.Tokens, Engine: s.Engine, Trigger: in, Sources: s.Sources, Secrets: s.Secrets,
		Contexts: rules, Logs: func(*http.Request) (adminapi.Logs, error) { return s.Logs, nil }, Live: room, Holds: s.Engine, Reruns: s, Events: told, Rotation: s,
		Provenance: provenance.New(provenance.Deps{DB: db, Keys: keys, Access: s.Tokens, Clock: clock, Log: log, Issuer: "https://ci.test"}),
		Purge: func(ctx context.Context, key string) (done adminwire.Purged, err error) {
			done.RunsDeleted, done.JobsDeleted, err = s.Engine.PurgeOthers(ctx, key, nil)
			return done, err
		},
		Kicker: s, Clock: clock, Log: log, Build: adminapi.Build{Version: "1.2.3", Commit: "abc", Protocol: 1}})
	s.API.Booted()
	s.Owner, s.Admin, s.Auditor = s.token(t, auth.RoleOwner, ""), s.token(t, auth.RoleAdmin, ""), s.token(t, auth.RoleAuditor, "")
	s.Scoped = s.token(t, auth.RoleOwner, scopedKey)
	web := httptest.NewServer(s.API)
	t.Cleanup(web.Close)
	s.URL = web.URL
	return s
}

// logOf finds every log here.
func (s *rig) logOf(context.Context, live.Step, string) (live.Place, error) {
	return live.Place{Log: s.Logs}, nil
}

func (s *rig) token(t testing.TB, role auth.Role, key string) string {
	token, _, err := s.Tokens.CreateAdmin(t.Context(), auth.NewAdminToken{Label: string(role) + key, Role: role, RoutingKey: key})
	check(t, err)
	return token
}

// Run registers a run of scopedKey with a job that agent a-1 has taken, one that waits for it, one behind the busy agent
// and one that nobody fits. Job ids are <run>-<name>.
func (s *rig) Run(t testing.TB, id string) {
	t.Helper()
	s.Register(t, id, scopedKey)
	s.employ(t)
	s.give(t, id+"-build", id)
}

// employ connects agent a-1, which has one place.
func (s *rig) employ(t testing.TB) {
	t.Helper()
	check(t, s.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		return fleet.Seen(ctx, tx, fleet.Agent{ID: "a-1", Labels: []string{"linux"}, Lifecycle: fleet.Static, MaxConcurrency: 1,
			NodeID: "n", ConnectionID: "c", LastSeenAt: startTime, Platform: "linux", Arch: "x64"})
	}))
}

// give has a-1 take a job.
func (s *rig) give(t testing.TB, job, run string) {
	t.Helper()
	check(t, s.DB.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := queue.Claim(ctx, tx, job, "a-1", "n", 1, startTime, startTime+10_000)
		return err
	}))
	_, err := s.Engine.Acked(t.Context(), "a-1", run, job)
	check(t, err)
}

// Register registers the run alone, without an agent.
func (s *rig) Register(t testing.TB, id, routingKey string) {
	t.Helper()
	job := func(name string, labels ...string) plan.Job {
		return plan.Job{ID: id + "-" + name, Name: name, BaseName: name, Selector: label.Selector{Labels: labels}, Config: json.RawMessage(`{}`)}
	}
	check(t, s.Engine.Register(t.Context(), engine.Registration{RunID: id, OrgID: "default", RoutingKey: routingKey, Provider: "local",
		Repo: "app", Ref: "main", SHA: "0123456789abcdef0123456789abcdef01234567", TriggerEvent: "push", Plan: plan.Plan{Workflow: "ci",
			Jobs:  []plan.Job{job("build", "linux"), job("test", "linux"), job("other", "linux"), job("gpu", "linux", "gpu")},
			Edges: []plan.Edge{{Job: "test", Upstream: "build", RunOn: []ci.JobStatus{ci.JobSuccess}}}}}))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
