package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kici/internal/kit/seal"
	"kici/internal/kit/service"
	"kici/internal/server/cluster"
	"kici/internal/server/dispatch"
	"kici/internal/server/fleet"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// The times of the node's own loops.
const (
	beatPeriod  = 5 * time.Second
	deadAfter   = 20 * time.Second // silence of a node after which its work is taken over
	purgePeriod = 10 * time.Minute
	purgeBatch  = 1000
)

// recover takes up what this node left behind when it ended: its agents may come back with their jobs, and deliveries
// under work are worked on again.
func (s *Server) recover(ctx context.Context) error {
	if err := s.takeOver(ctx, s.node.id); err != nil {
		return err
	}
	if err := s.inbox.Recover(ctx); err != nil {
		return fmt.Errorf("take up deliveries: %w", err)
	}
	return s.beatOnce(ctx)
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

// beat says that this node is alive, and takes over the work of nodes that no longer do.
func (s *Server) beat(ctx context.Context) error {
	return service.Every(ctx, s.log, "node", beatPeriod, nil, func(ctx context.Context) error {
		if err := s.beatOnce(ctx); err != nil {
			return err
		}
		dead, err := cluster.Dead(ctx, s.db.Read(), s.node.id, s.clock.Millis()-deadAfter.Milliseconds())
		if err != nil {
			return err
		}
		for _, id := range dead {
			s.log.Warn("node is gone, taking over its work", "node", id)
			if err := s.takeOver(ctx, id); err != nil {
				return err
			}
			if err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return cluster.Bury(ctx, tx, id) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Server) beatOnce(ctx context.Context) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return cluster.Beat(ctx, tx, s.node.id, s.started.UnixMilli(), s.clock.Millis())
	})
}

// purge forgets deliveries whose claim has run out.
func (s *Server) purge(ctx context.Context) error {
	return service.Every(ctx, s.log, "purge", purgePeriod, nil, func(ctx context.Context) error {
		for {
			n, err := s.inbox.Purge(ctx, purgeBatch)
			if err != nil || n < purgeBatch {
				return err
			}
		}
	})
}

// jobSecrets gives a job the secrets of its organisation's flat scope. What would fail again at the next try ends the
// job; a store that does not answer does not.
type jobSecrets struct{ store *secrets.Store }

// ForJob resolves at the moment of dispatch.
func (s jobSecrets) ForJob(ctx context.Context, orgID string, _ []string, runID, jobID string) (map[string]string, error) {
	values, err := s.store.ResolveFor(ctx, secrets.Job{RunID: runID, JobID: jobID}, orgID, []string{secrets.DefaultScope})
	if errors.Is(err, seal.ErrUnreadable) || errors.Is(err, secrets.ErrReserved) {
		return nil, dispatch.Permanent(err)
	}
	return values, err
}
