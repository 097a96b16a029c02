package server

import (
	"context"
	"fmt"
	"net"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/kit/service"
	"kici/internal/server/cluster"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// The times of the node's own loops.
const (
	deadBeats   = 4                // missed ones after which a node's work is taken over
	burialTime  = 10 * time.Second // for which one survivor has the others' leave to take over
	purgePeriod = 10 * time.Minute
	purgeBatch  = 1000
)

// burials is the lease of the survivor that takes over the work of dead nodes.
const burials = "burials"

// recover takes up what this node left behind when it ended: its agents may come back with their jobs, and deliveries
// under work are worked on again.
func (s *Server) recover(ctx context.Context) error {
	if err := s.noteAbsence(ctx); err != nil {
		return err
	}
	if err := s.takeOver(ctx, s.node.id); err != nil {
		return err
	}
	if err := s.inbox.Recover(ctx); err != nil {
		return fmt.Errorf("take up deliveries: %w", err)
	}
	_, err := s.beatOnce(ctx)
	return err
}

// noteAbsence tells the pulse since when no node was there, so that what became due meanwhile is not held against agents
// that had nobody to report to.
func (s *Server) noteAbsence(ctx context.Context) error {
	nodes, err := cluster.Nodes(ctx, s.db.Read())
	if err != nil {
		return err
	}
	var last int64
	for _, n := range nodes {
		last = max(last, n.SeenAt)
	}
	if last != 0 && s.clock.Millis()-last > s.deadAfter().Milliseconds() {
		s.pulse.Absent(last)
	}
	return nil
}

// takeOver treats a node's connections as ended and its dispatches as waiting for their agents.
func (s *Server) takeOver(ctx context.Context, nodeID string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return fleet.Abandon(ctx, tx, nodeID, s.clock.Millis())
	})
	if err != nil {
		return err
	}
	if err := s.engine.Adopt(ctx, nodeID); err != nil {
		return fmt.Errorf("take over the jobs of node %s: %w", nodeID, err)
	}
	return nil
}

// deadAfter is the silence of a node after which its work is taken over.
func (s *Server) deadAfter() time.Duration { return deadBeats * s.settings.Beat }

// address is where other nodes reach this one: as configured, else where it listens, unless that is every address of the
// machine, which names none.
func (s *Server) address() string {
	if s.settings.Address != "" || s.listener == nil {
		return s.settings.Address
	}
	if listens, ok := s.listener.Addr().(*net.TCPAddr); ok && listens.IP.IsUnspecified() {
		return ""
	}
	return s.URL()
}

// beat says that this node is alive, and takes over the work of nodes that no longer do.
func (s *Server) beat(ctx context.Context) error {
	watch, last := cluster.NewWatch(s.deadAfter()), s.clock()
	return service.Every(ctx, s.log, "node", s.settings.Beat, nil, func(ctx context.Context) error {
		forgotten, err := s.beatOnce(ctx)
		if err != nil {
			return err
		}
		if forgotten || s.clock().Sub(last) > s.deadAfter()/2 {
			// Others may have taken this node for dead and its connections for ended.
			s.log.Warn("this node gave no sign of life for a while, taking up its connections again", "forgotten", forgotten)
			if err := s.hub.Resume(ctx); err != nil {
				return err
			}
		}
		last = s.clock()
		nodes, err := cluster.Nodes(ctx, s.db.Read())
		if err != nil {
			return err
		}
		s.bell.Alone(len(nodes) == 1)
		return s.bury(ctx, watch.Dead(nodes, s.node.id, s.clock()))
	})
}

// bury takes over the work of dead nodes, if no other survivor does. Two that do so do no harm: every step is
// conditional.
func (s *Server) bury(ctx context.Context, dead []cluster.Node) error {
	if len(dead) == 0 {
		return nil
	}
	mine, err := s.acquire(ctx, burials, burialTime)
	if err != nil || !mine {
		return err
	}
	for _, n := range dead {
		s.log.Warn("node is gone, taking over its work", "node", n.ID)
		if err := s.takeOver(ctx, n.ID); err != nil {
			return err
		}
		if err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return cluster.Bury(ctx, tx, n.ID) }); err != nil {
			return err
		}
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return cluster.Release(ctx, tx, burials, s.node.id)
	})
}

func (s *Server) acquire(ctx context.Context, lease string, life time.Duration) (mine bool, err error) {
	now := s.clock.Millis()
	err = s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		mine, err = cluster.Acquire(ctx, tx, lease, s.node.id, now, now+life.Milliseconds())
		return err
	})
	return mine, err
}

func (s *Server) beatOnce(ctx context.Context) (forgotten bool, err error) {
	s.telling.Lock()
	defer s.telling.Unlock()
	n := cluster.Node{ID: s.node.id, Address: s.address(), StartedAt: s.started.UnixMilli(), SeenAt: s.clock.Millis(), Draining: s.dispatch.Draining()}
	err = s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		forgotten, err = cluster.Beat(ctx, tx, n)
		return err
	})
	return forgotten, err
}

// retention says which runs are kept. The rooms that it names are those that the engine cannot reach.
func (s *Server) retention() engine.Retention {
	return engine.Retention{MaxAge: s.settings.RunMaxAge, Keepers: []engine.RunKeeper{s.cache, s.events, s.proof, s.logs, secrets.Names{}}}
}

func (s *Server) retainRuns(ctx context.Context) error { return s.engine.Retain(ctx, s.retention()) }

// purgeOthers deletes the ended runs of every routing key but one.
func (s *Server) purgeOthers(ctx context.Context, routingKey string) (done adminwire.Purged, err error) {
	done.RunsDeleted, done.JobsDeleted, err = s.engine.PurgeOthers(ctx, routingKey, s.retention().Keepers)
	return done, err
}

// purge forgets deliveries whose claim has run out, and what logs have kept for long enough.
func (s *Server) purge(ctx context.Context) error {
	return service.Every(ctx, s.log, "purge", purgePeriod, nil, s.purgeOnce)
}

func (s *Server) purgeOnce(ctx context.Context) error {
	for _, some := range []func(ctx context.Context, limit int) (int64, error){s.inbox.Purge, s.secrets.PurgeAudit, s.purgeAccess} {
		for {
			n, err := some(ctx, purgeBatch)
			if err != nil {
				return err
			}
			if n < purgeBatch {
				break
			}
		}
	}
	return nil
}

// purgeAccess takes the room's own limit, which is larger.
func (s *Server) purgeAccess(ctx context.Context, _ int) (n int64, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		n, err = s.tokens.PurgeAccessTx(ctx, tx)
		return err
	})
	return n, err
}
