package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"

	"kici/internal/core/adminwire"
	"kici/internal/server/cluster"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// logRoutes are the reads of a step's log. The log is a file of the node whose agent runs the job, or ran it last.
var logRoutes = []string{"GET /api/v1/admin/runs/{run}/jobs/{job}/steps/{step}/logs", "GET /api/v1/admin/runs/{run}/jobs/{job}/steps/{step}/logs/{more...}"}

// forwarded marks a request that another node has passed on. It is answered where it arrives, so none goes in a circle.
const forwarded = "X-Kici-Forwarded-By"

// peerLogs passes the read of a log on to the node that has it. That node checks who asks, as for every request: admin
// tokens hold on all nodes.
func (s *Server) peerLogs(here http.Handler) http.Handler {
	if s.db.Dialect != store.Postgres {
		return here // there is no other node
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(forwarded) != "" {
			here.ServeHTTP(w, r)
			return
		}
		nodeID, err := queue.HolderNode(r.Context(), s.db.Read(), r.PathValue("job"))
		if err != nil {
			s.log.Error("node of a log not found", "err", err)
			refuse(w, http.StatusInternalServerError, "Internal server error")
			return
		}
		if nodeID == "" || nodeID == s.node.id {
			here.ServeHTTP(w, r)
			return
		}
		s.passOn(w, r, nodeID, here)
	})
}

// passOn sends a request to another node and its answer back, or says which node the caller would have to ask. What a node
// that cannot be asked has brought to an object store is read here.
func (s *Server) passOn(w http.ResponseWriter, r *http.Request, nodeID string, here http.Handler) {
	without := func(w http.ResponseWriter, r *http.Request, status int, why string) {
		if s.settings.Storage.S3 != nil {
			here.ServeHTTP(w, r)
			return
		}
		refuse(w, status, fmt.Sprintf("The log is on node %s, which %s", nodeID, why))
	}
	address, why := s.addressOf(r.Context(), nodeID)
	if address == nil {
		without(w, r, http.StatusServiceUnavailable, why)
		return
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(address)
			p.SetXForwarded()
			p.Out.Header.Set(forwarded, s.node.id)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				s.log.Warn("node does not answer for a log", "node", nodeID, "err", err)
			}
			without(w, r, http.StatusBadGateway, "does not answer")
		},
	}
	proxy.ServeHTTP(w, r)
}

// addressOf finds where a node answers. When it cannot, why says it to whoever wants the log.
func (s *Server) addressOf(ctx context.Context, nodeID string) (address *url.URL, why string) {
	nodes, err := cluster.Nodes(ctx, s.db.Read())
	if err != nil {
		s.log.Error("nodes not listed", "err", err)
		return nil, "cannot be found now"
	}
	at := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.ID == nodeID })
	if at < 0 {
		return nil, "is gone"
	}
	address, err = url.Parse(nodes[at].Address)
	if err != nil || nodes[at].Address == "" {
		return nil, "has not said where it can be reached (cluster.address)"
	}
	return address, ""
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(adminwire.Error{Error: text}) // who asked may be gone
}
