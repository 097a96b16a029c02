package adminapi

import (
	"context"
	"net/http"
	"time"

	"kici/internal/core/adminwire"
)

// readyTime is how long the database may take to show that it is there.
const readyTime = 2 * time.Second

// health answers as long as the process lives. It touches nothing, so that a bad moment of the database does not get a
// server killed that would recover.
func (a *API) health(*http.Request) (answer, error) {
	now := a.Clock()
	return ok(adminwire.Health{Status: "ok", Timestamp: adminwire.At(now.UnixMilli()), Uptime: now.Sub(a.started).Seconds(),
		Version: a.Build.Version, BuildDate: a.Build.Date, BuildCommit: a.Build.Commit, SDKVersion: a.Build.SDK})
}

// ready follows the database once the server has started. A server that drains stays ready: deliveries must still land.
func (a *API) ready(r *http.Request) (answer, error) {
	checks := map[string]string{"boot": "ok", "database": "ok"}
	status := http.StatusOK
	if !a.booted.Load() {
		checks["boot"], status = "starting", http.StatusServiceUnavailable
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	if err := a.DB.Ping(ctx); err != nil {
		// The cause may hold an address or a user name, and anybody may ask.
		a.Log.Warn("database does not answer", "err", err)
		checks["database"], status = "unavailable", http.StatusServiceUnavailable
	}
	body := adminwire.Readiness{Status: "ready", Checks: checks}
	if status != http.StatusOK {
		body.Status = "not ready"
	}
	return answer{status, body}, nil
}

// capabilities let an agent or a client know before it connects whether it will be understood.
func (a *API) capabilities(*http.Request) (answer, error) {
	return ok(adminwire.Capabilities{OrchestratorVersion: a.Build.Version, ProtocolVersion: a.Build.Protocol, MinProtocolVersion: 1})
}
