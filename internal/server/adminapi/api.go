// Package adminapi is the HTTP API by which people and programs administer a server, with the public routes that say how
// the server is. It decides nothing: it authenticates, checks input, calls the room that owns the matter and answers.
package adminapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/kit/service"
	"kici/internal/server/auth"
	"kici/internal/server/contexts"
	"kici/internal/server/engine"
	"kici/internal/server/forge"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// Engine ends runs, and knows of their keys.
type Engine interface {
	RunKeyMade(ctx context.Context, runID string) (at int64, exists bool, err error)
	Cancel(ctx context.Context, runID, by, why string, force bool) (engine.CancelResult, error)
}

// Trigger starts what a push of a ref would start.
type Trigger interface {
	Trigger(ctx context.Context, sourceID, repo, ref, actor string) (deliveryID, sha string, err error)
}

// Sources is the table of sources.
type Sources interface {
	Create(ctx context.Context, orgID string, settings forge.Settings) (forge.Source, error)
	Update(ctx context.Context, id string, change func(*forge.Settings) error) (forge.Source, error)
	Get(ctx context.Context, id string) (forge.Source, error)
	ByRoutingKey(ctx context.Context, key string) (forge.Source, error)
	List(ctx context.Context, orgID string, deleted bool) ([]forge.Source, error)
	Verification(src forge.Source) (forge.Verification, error)
	SetEnabled(ctx context.Context, id string, enabled bool) error
	Delete(ctx context.Context, id string) error
	DeleteHard(ctx context.Context, id string) error
}

// Secrets stores secrets, which it has no way to read, and the secret outputs of runs, which it has.
type Secrets interface {
	Set(ctx context.Context, by secrets.Actor, org, scope, key, value string) error
	Delete(ctx context.Context, by secrets.Actor, org, scope, key string) error
	CreateScope(ctx context.Context, by secrets.Actor, org, scope string) error
	RenameScope(ctx context.Context, by secrets.Actor, org, from, to string) error
	DeleteScope(ctx context.Context, by secrets.Actor, org, scope string) error
	Scopes(ctx context.Context, org string) ([]string, error)
	Keys(ctx context.Context, org, scope string) ([]string, error)
	Audit(ctx context.Context, f secrets.AuditFilter) ([]secrets.AuditEntry, error)
	Purge(ctx context.Context, by secrets.Actor, org string) (deleted int64, err error)
	Outputs(ctx context.Context, runID, key string) ([]secrets.Output, error)
	Reveal(ctx context.Context, by secrets.Actor, runID, key string) ([]secrets.Output, error)
}

// Purge deletes the ended runs of every other routing key.
type Purge func(ctx context.Context, routingKey string) (adminwire.Purged, error)

// KeyRotation seals everything with the current master key.
type KeyRotation interface {
	RotateKey(ctx context.Context, by secrets.Actor) (adminwire.RotatedKey, error)
}

// Kicker closes the connections of an agent token and tells how many there were.
type Kicker interface {
	KickToken(ctx context.Context, tokenID string) int
}

// Build says what is running.
type Build struct {
	Version  string
	Commit   string
	Date     string
	SDK      string
	Protocol int // newest version of the agents' protocol
}

// Deps are what an API works with. A nil Logs, Live, Holds, Reruns, Trigger, Kicker, Rotation, Purge or Secrets makes its routes answer 503.
type Deps struct {
	DB       *store.DB
	Tokens   *auth.Tokens
	Engine   Engine
	Trigger  Trigger
	Sources  Sources
	Secrets  Secrets
	Contexts *contexts.Store
	// Logs finds the log that a request is about, whose caller may read it.
	Logs       func(r *http.Request) (Logs, error)
	Live       Live
	Holds      Holds
	Reruns     Reruns
	Kicker     Kicker
	Rotation   KeyRotation
	Purge      Purge
	Artifacts  Artifacts  // nil: their routes answer 503
	Provenance Provenance // nil: its routes answer 503
	Events     Events     // nil: its route does not exist
	// Nil: the node gives out no jobs, and the routes about that do not exist.
	Dispatcher Dispatcher
	Metrics    http.Handler // of /metrics; nil does not serve it
	Clock      service.Clock
	Log        *slog.Logger
	Build      Build
}

// API serves the routes.
type API struct {
	Deps
	started time.Time
	booted  atomic.Bool
	handler http.Handler
	live    context.Context // ends with Stop
	stop    context.CancelFunc
}

// New makes an API. It is not ready until Booted is called.
func New(d Deps) *API {
	a := &API{Deps: d, started: d.Clock()}
	a.live, a.stop = context.WithCancel(context.Background())
	a.handler = a.observed(bounded(a.mux()))
	return a
}

// Booted says that the server has started for good; /ready then follows the database.
func (a *API) Booted() { a.booted.Store(true) }

// Stop answers the followers that wait for log lines, so that they do not hold up the end of the HTTP server. Other
// requests are served as before.
func (a *API) Stop() { a.stop() }

// ServeHTTP serves a path below the server's base path. A log page that is waited for may take 30 s to answer.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// handler answers a request whose caller may make it. What it returns is either the answer or why there is none.
type handler func(r *http.Request) (answer, error)

// route is one route that needs a token.
type route struct {
	pattern    string // as http.ServeMux takes it
	permission auth.Permission
	unscoped   bool // tokens that are bound to one routing key are refused
	do         handler
}

const base = "/api/v1/admin"

// routes is every route that needs a token. It is a table so that a test can go through all of them.
func (a *API) routes() []route {
	return append([]route{
		{"POST " + base + "/tokens", auth.TokenManage, true, a.createToken},
		{"GET " + base + "/tokens", auth.TokenManage, true, a.listTokens},
		{"DELETE " + base + "/tokens/{id}", auth.TokenManage, true, a.revokeToken},
		{"POST /api/v1/agent-tokens", auth.TokenManage, true, a.createAgentToken},
		{"GET /api/v1/agent-tokens", auth.TokenManage, true, a.listAgentTokens},
		{"DELETE /api/v1/agent-tokens/{id}", auth.TokenManage, true, a.revokeAgentToken},

		{"GET " + base + "/secrets/scopes", auth.SecretRead, true, a.listScopes},
		{"GET " + base + "/secrets/keys", auth.SecretRead, true, a.listKeys},
		{"POST " + base + "/secrets/scopes", auth.SecretWrite, true, a.createScope},
		{"PUT " + base + "/secrets/scopes/rename", auth.SecretWrite, true, a.renameScope},
		{"DELETE " + base + "/secrets/scopes/{org}/{scope}", auth.SecretDelete, true, a.deleteScope},
		{"PUT " + base + "/secrets/{org}/{scope}/{key}", auth.SecretWrite, true, a.setSecret},
		{"DELETE " + base + "/secrets/{org}/{scope}/{key}", auth.SecretDelete, true, a.deleteSecret},
		{"POST " + base + "/secrets/purge", auth.SecretDelete, true, a.purgeSecrets},
		{"POST " + base + "/rotate-key", auth.KeyRotate, true, a.rotateKey},
		{"GET " + base + "/audit", auth.AuditRead, false, a.listAudit},
		{"GET " + base + "/access-log", auth.AccessLogRead, true, a.listAccess},
		{"GET " + base + "/access-log/{id}", auth.AccessLogRead, true, a.showAccess},

		{"POST " + base + "/generic-sources", auth.ContextCreate, true, a.createSource},
		{"GET " + base + "/generic-sources", auth.ContextRead, true, a.listSources},
		{"GET " + base + "/generic-sources/{id}", auth.ContextRead, true, a.showSource},
		{"PATCH " + base + "/generic-sources/{id}", auth.ContextUpdate, true, a.changeSource},
		{"DELETE " + base + "/generic-sources/{id}", auth.ContextDelete, true, a.deleteSource},
		{"POST " + base + "/generic-sources/{id}/enable", auth.ContextUpdate, true, a.enableSource},
		{"POST " + base + "/generic-sources/{id}/disable", auth.ContextUpdate, true, a.disableSource},
		{"POST " + base + "/generic-sources/{id}/trigger", auth.ContextCreate, true, a.trigger},

		{"GET " + base + "/runs", auth.RunRead, false, a.listRuns},
		{"GET " + base + "/runs/{run}", auth.RunRead, false, a.showRun},
		{"GET " + base + "/runs/{run}/jobs", auth.RunRead, false, a.listJobs},
		{"GET " + base + "/runs/{run}/structured", auth.RunRead, false, a.showResult},
		{"GET " + base + "/runs/{run}/explain", auth.RunRead, false, a.explainRun},
		{"GET " + base + "/runs/{run}/artifacts", auth.RunRead, false, a.listArtifacts},
		{"GET " + base + "/runs/{run}/artifacts/download", auth.RunRead, false, a.linkArtifact},
		{"GET " + base + "/runs/{run}/ephemeral-key", auth.RunRead, false, a.showRunKey},
		{"GET " + base + "/runs/{run}/secret-outputs", auth.RunRead, false, a.listSecretOutputs},
		{"POST " + base + "/runs/{run}/cancel", auth.RunCancel, false, a.cancelRun},
		{"GET " + base + "/runs/{run}/jobs/{job}/steps/{step}/logs", auth.RunRead, false, a.readLog},
		{"GET " + base + "/runs/{run}/jobs/{job}/steps/{step}/logs/search", auth.RunRead, false, a.searchLog},
		{"GET " + base + "/runs/{run}/jobs/{job}/steps/{step}/logs/raw", auth.RunRead, false, a.rawLog},

		{"GET " + base + "/runs/{run}/events", auth.RunRead, false, a.listEvents},
		{"GET " + base + "/runs/{run}/events/stream", auth.RunRead, false, a.watchRun},
		{"GET " + base + "/runs/{run}/jobs/{job}/context", auth.RunRead, false, a.showContext},

		{"POST " + base + "/runs/{run}/rerun", auth.RunCancel, false, a.rerun},
		{"GET " + base + "/held-runs", auth.RunRead, false, a.listHolds},
		{"POST " + base + "/held-runs/decision", auth.ContextUpdate, false, a.decideHold},

		{"GET " + base + "/executions", auth.RunRead, false, a.listExecutions},
		{"GET " + base + "/executions/{run}", auth.RunRead, false, a.showExecution},
		{"POST " + base + "/execution/purge-stale", auth.RunCancel, true, a.purgeStale},
		{"POST " + base + "/events/emit", auth.ContextCreate, false, a.emitEvent},
		{"POST " + base + "/queue/clear", auth.RunCancel, true, a.clearQueue},
		{"GET " + base + "/queue", auth.RunRead, false, a.listQueue},
		{"GET " + base + "/queue/{id}", auth.RunRead, false, a.showQueued},
		{"GET " + base + "/orchestrator/drain", auth.OrchestratorDrain, true, a.showDrain},
		{"POST " + base + "/orchestrator/drain", auth.OrchestratorDrain, true, a.changeDrain},
		{"GET " + base + "/event-log", auth.EventLogRead, false, a.listDeliveries},
		{"GET " + base + "/event-log/{delivery}", auth.EventLogRead, false, a.showDelivery},
	}, slices.Concat(a.hostRoutes(), a.contextRoutes(), a.orgRoutes(), a.provenanceRoutes())...)
}

// mux puts the gate before every route that needs a token. Which one is decided by the table alone.
func (a *API) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		gate := a.Tokens.Require
		if r.unscoped {
			gate = a.Tokens.RequireUnscoped
		}
		mux.Handle(r.pattern, gate(r.permission, a.answering(a.logged(r))))
	}
	// What does not exist below the protected prefixes is nobody's business without a token either. Every role may read
	// runs, so this asks for a valid token and no more.
	for _, prefix := range []string{base, base + "/", "/api/v1/agent-tokens", "/api/v1/agent-tokens/", "/admin", "/admin/"} {
		mux.Handle(prefix, a.Tokens.Require(auth.RunRead, a.answering(notFound)))
	}
	for pattern, do := range map[string]handler{"GET /health": a.health, "GET /ready": a.ready, "GET /api/v1/capabilities": a.capabilities, "/": notFound} {
		mux.Handle(pattern, a.answering(do))
	}
	if a.Metrics != nil {
		mux.Handle("GET /metrics", a.Metrics)
	}
	return mux
}

func notFound(*http.Request) (answer, error) {
	return answer{}, refuse(http.StatusNotFound, "Not found")
}
