package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"kici/internal/kit/version"
)

// readyTimeout bounds the query behind /ready.
const readyTimeout = 2 * time.Second

// serve starts answering. The routes of administration check their own tokens; the rest is public by design.
func (s *Server) serve() {
	mux := http.NewServeMux()
	mux.Handle("GET /ws", s.hub)
	mux.Handle("/webhook/", s.ingest.Handler())
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /ready", s.readiness)
	mux.Handle("GET /metrics", s.metrics.Handler())
	mux.Handle("/api/v1/", s.admin())
	s.http = &http.Server{
		Handler:           http.StripPrefix(s.settings.BasePath, mux),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	s.loops.Go("http", func(context.Context) error {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// health says that the process answers. It touches nothing else.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	now := s.clock()
	v := version.Read()
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "timestamp": now.UTC().Format(time.RFC3339Nano),
		"uptime": now.Sub(s.started).Seconds(), "version": v.Version, "buildDate": v.Date, "buildCommit": v.Commit, "sdkVersion": v.Version})
}

// readiness says whether work can be taken in: boot has finished and the database answers.
func (s *Server) readiness(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	checks := map[string]string{"boot": "ok", "database": "ok"}
	status, word := http.StatusOK, "ready"
	if !s.ready.Load() {
		status, word, checks["boot"] = http.StatusServiceUnavailable, "not ready", "not finished"
	}
	if err := s.db.Ping(ctx); err != nil {
		s.log.Warn("readiness: the database does not answer", "err", err)
		status, word, checks["database"] = http.StatusServiceUnavailable, "not ready", "unreachable"
	}
	writeJSON(w, status, map[string]any{"status": word, "checks": checks})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone, which is its own affair
}

// cleanBasePath gives a prefix with a slash before it and none behind, or nothing.
func cleanBasePath(p string) string {
	p = strings.Trim(p, "/")
	if p == "" {
		return ""
	}
	return "/" + p
}
