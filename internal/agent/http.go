package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"kici/internal/kit/telemetry"
)

// serveHTTP opens the endpoints for probes and Prometheus. They end with ctx.
func (a *Agent) serveHTTP(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", ":"+strconv.Itoa(a.cfg.Port))
	if err != nil {
		return fmt.Errorf("open the HTTP port: %w", err)
	}
	a.address.Store(ln.Addr().String())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", a.health)
	mux.HandleFunc("GET /ready", a.ready)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", telemetry.TextType)
		_ = a.metrics.Write(w) // fails only for a caller that has gone
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	a.closing.Go(func() { _ = server.Serve(ln) })
	a.closing.Go(func() {
		<-ctx.Done()
		_ = server.Close()
	})
	a.log.Info("listening", "address", ln.Addr().String())
	return nil
}

// health is 200 as long as the process lives: a lost connection is not mended by a restart.
func (a *Agent) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"status": "ok", "agentId": a.cfg.AgentID, "activeJobs": a.metrics.Active.Load(), "connected": a.registered(),
		"version": a.cfg.Version,
	})
}

// ready is 200 while the agent is registered.
func (a *Agent) ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	ready := a.registered()
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"ready": ready})
}
