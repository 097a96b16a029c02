package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"kici/internal/server/adminapi"
	"kici/internal/server/cluster"
	"kici/internal/server/live"
	"kici/internal/server/logs"
	"kici/internal/server/logs/joined"
	"kici/internal/server/logs/search"
	"kici/internal/server/queue"
	"kici/internal/server/report"
	"kici/internal/server/store"
)

// forwarded marks a request that another node makes for its caller. It is answered with what is here, so none goes in a
// circle.
const forwarded = "X-Kici-Forwarded-By"

// logsOf finds the log that a request is about: what is here, what the node has whose agent runs the job or ran it, or what
// several nodes have of it. Other nodes check who asks, as for every request: admin tokens hold on all nodes.
func (s *Server) logsOf(r *http.Request) (adminapi.Logs, error) {
	if s.db.Dialect != store.Postgres || r.Header.Get(forwarded) != "" {
		return s.logs, nil // there is no other node, or it asks
	}
	step, err := strconv.Atoi(r.PathValue("step"))
	if err != nil {
		return nil, fmt.Errorf("read the step of a log: %w", err)
	}
	return s.joinedLog(wantedLog{run: r.PathValue("run"), job: r.PathValue("job"), step: step, caller: r.Header.Get("Authorization")}), nil
}

// liveLog finds the log of a step for those who look at its run, in the name of one of them.
func (s *Server) liveLog(ctx context.Context, step live.Step, caller string) (live.Place, error) {
	here := live.Place{Log: s.logs}
	if s.db.Dialect != store.Postgres {
		return here, nil
	}
	stays, err := queue.Stays(ctx, s.db.Read(), step.JobID)
	away := slices.ContainsFunc(stays, func(stay queue.Stay) bool { return stay.NodeID != s.node.id })
	if err != nil || !away {
		return here, err
	}
	return live.Place{Log: s.joinedLog(wantedLog{step.RunID, step.JobID, step.Index, caller}), Away: true}, nil
}

// wantedLog is the log of a step that somebody wants to read.
type wantedLog struct {
	run, job string
	step     int
	caller   string // what their Authorization says
}

func (s *Server) joinedLog(w wantedLog) *joined.Log {
	return &joined.Log{Where: func(ctx context.Context) (joined.Parts, error) { return s.logParts(ctx, w) }}
}

// logParts are where the parts of a log are.
func (s *Server) logParts(ctx context.Context, w wantedLog) (joined.Parts, error) {
	stays, err := queue.Stays(ctx, s.db.Read(), w.job)
	if err != nil {
		return joined.Parts{}, err
	}
	if len(stays) == 0 {
		stays = []queue.Stay{{NodeID: s.node.id}}
	}
	nodes, err := cluster.Nodes(ctx, s.db.Read())
	if err != nil {
		return joined.Parts{}, err
	}
	if s.settings.Storage.S3 != nil {
		return s.storedLog(ctx, w, nodes, stays[len(stays)-1].NodeID)
	}
	began, ended, err := report.StepTimes(ctx, s.db.Read(), w.job, w.step)
	if err != nil {
		return joined.Parts{}, err
	}
	var out joined.Parts
	for i, stay := range stays {
		at := slices.IndexFunc(out.All, func(p joined.Part) bool { return p.Node == stay.NodeID })
		if at < 0 {
			at = len(out.All)
			out.All = append(out.All, joined.Part{Node: stay.NodeID, Log: s.logAt(w, nodes, stay.NodeID), Spare: true})
		}
		out.Stays = append(out.Stays, at)
		left := int64(0)
		if i+1 < len(stays) {
			left = stays[i+1].Since
		}
		if overlaps(stay.Since, left, began, ended) {
			out.All[at].Spare = false
		}
	}
	return out, nil
}

// clockSkew is how far the clocks of an agent and of nodes may be apart when a step is told to have run outside a stay.
const clockSkew = 10 * time.Second

// overlaps tells whether a step may have run during a stay. Times are epoch milliseconds; an end of 0 has not come, and
// a begin of 0 is not known.
func overlaps(since, left, began, ended int64) bool {
	skew := clockSkew.Milliseconds()
	return (left == 0 || began <= left+skew) && (ended == 0 || ended >= since-skew)
}

// logAt reads what a node has of a log.
func (s *Server) logAt(w wantedLog, nodes []cluster.Node, nodeID string) joined.Reader {
	if nodeID == s.node.id {
		return s.logs
	}
	at := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.ID == nodeID })
	if at < 0 {
		return awayLog{&joined.AwayError{Node: nodeID, Why: "is gone"}}
	}
	base, err := url.Parse(nodes[at].Address)
	if err != nil || nodes[at].Address == "" {
		return awayLog{&joined.AwayError{Node: nodeID, Why: "has not said where it can be reached (cluster.address)"}}
	}
	return &peerLog{client: s.peers, log: s.log, node: nodeID, from: s.node.id, caller: w.caller,
		base: base.JoinPath("api/v1/admin/runs", url.PathEscape(w.run), "jobs", url.PathEscape(w.job),
			"steps", strconv.Itoa(w.step), "logs")}
}

// storedLog is a log of an object store: read at the node whose agent has or had the job last, which holds the newest
// lines. What a node that cannot be asked has brought to the object store is read here.
func (s *Server) storedLog(ctx context.Context, w wantedLog, nodes []cluster.Node, nodeID string) (joined.Parts, error) {
	there := s.logAt(w, nodes, nodeID)
	if nodeID != s.node.id {
		_, _, _, err := there.Lines(ctx, "", 0, 0)
		if _, away := errors.AsType[*joined.AwayError](err); away {
			there = s.logs
		} else if err != nil && !errors.Is(err, logs.ErrExpired) {
			return joined.Parts{}, err
		}
	}
	return joined.Parts{All: []joined.Part{{Node: nodeID, Log: there}}, Stays: []int{0}}, nil
}

// awayLog is a part of a log that cannot be read.
type awayLog struct{ why *joined.AwayError }

func (a awayLog) Lines(context.Context, string, int64, int) ([]string, int64, int64, error) {
	return nil, 0, 0, a.why
}

func (a awayLog) Tail(context.Context, string, int) ([]string, int64, error) { return nil, 0, a.why }

func (a awayLog) Wait(context.Context, string, int64) (bool, error) { return false, a.why }

func (a awayLog) Search(context.Context, string, search.Query) (search.Found, error) {
	return search.Found{}, a.why
}

func (a awayLog) Open(context.Context, string) (logs.Content, error) { return logs.Content{}, a.why }
