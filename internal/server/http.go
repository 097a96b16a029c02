package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"kici/internal/kit/version"
	"kici/internal/server/adminapi"
	"kici/internal/server/cluster"
	"kici/internal/server/dispatch"
	"kici/internal/server/live"
	"kici/internal/server/logs"
	"kici/internal/server/store"
)

// protocolVersion is the newest version of the agents' protocol that this server speaks.
const protocolVersion = 1

// openAPI builds the API of administration.
func (s *Server) openAPI() {
	v := version.Read()
	s.api = adminapi.New(adminapi.Deps{DB: s.db, Tokens: s.tokens, Engine: s.engine, Trigger: s.ingest, Sources: s.sources,
		Secrets: s.secrets, Contexts: s.contexts, Logs: s.logsOf, Live: s.live, Holds: s.engine, Reruns: s.pipeline,
		Artifacts: s.cache, Provenance: s.proof, Events: s.events, Kicker: s, Rotation: s, Purge: s.purgeOthers, Dispatcher: drains{s.dispatch, s}, Metrics: s.metrics.Handler(), Clock: s.clock, Log: s.log,
		Build: adminapi.Build{Version: v.Version, Commit: v.Commit, Date: v.Date, SDK: v.Version, Protocol: protocolVersion}})
}

// serve starts answering. Agents, senders and administration each check who comes.
func (s *Server) serve() {
	mux := http.NewServeMux()
	mux.Handle("GET /ws", s.hub)
	mux.Handle("/webhook/", s.ingest.Handler())
	s.proof.Mount(mux)
	mux.Handle("/", s.api)
	s.http = &http.Server{
		Handler:           http.StripPrefix(s.settings.BasePath, s.withBlobs(mux)),
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

// cleanBasePath gives a prefix with a slash before it and none behind, or nothing.
func cleanBasePath(p string) string {
	p = strings.Trim(p, "/")
	if p == "" {
		return ""
	}
	return "/" + p
}

// watchedLogs tells those who look at a run that it has written something.
type watchedLogs struct {
	*logs.Store
	live *live.Room
}

// Append stores a chunk.
func (l watchedLogs) Append(ctx context.Context, c logs.Chunk) error {
	err := l.Store.Append(ctx, c)
	if err == nil {
		l.live.Changed(c.RunID)
	}
	return err
}

// AppendAlong stores the first chunk of a log with what is said of its job.
func (l watchedLogs) AppendAlong(ctx context.Context, c logs.Chunk, write func(logs.Along) error) (stored bool) {
	if stored = l.Store.AppendAlong(ctx, c, write); stored {
		l.live.Changed(c.RunID)
	}
	return stored
}

// drains is the dispatcher, whose drain the other nodes are told of: a job may wait there for an agent of this one.
type drains struct {
	*dispatch.Dispatcher
	s *Server
}

// Drain stops or resumes the giving out of jobs on this node.
func (d drains) Drain(ctx context.Context, on bool) error {
	d.Dispatcher.Drain(on)
	d.s.telling.Lock()
	defer d.s.telling.Unlock()
	return d.s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return cluster.SetDraining(ctx, tx, d.s.node.id, d.Draining()) // as it is by now
	})
}
