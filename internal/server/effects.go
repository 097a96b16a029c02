package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/wire"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/fleet"
	"kici/internal/server/outbox"
	"kici/internal/server/store"
)

// effectTick is how often the outbox is looked at without a wake-up.
const effectTick = time.Second

// effectBatch bounds one look at the outbox.
const effectBatch = 200

// effectLife is how long another node may take to tell its agent something. An agent that comes back is told again by
// the reconciliation of its registration, so nothing is lost with a row that is dropped.
const effectLife = 10 * time.Minute

// carry tells this node's agents what the outbox holds for them.
func (s *Server) carry(ctx context.Context) error {
	return service.Every(ctx, s.log, "agent effects", effectTick, s.effects, s.carryOnce)
}

func (s *Server) carryOnce(ctx context.Context) error {
	now := s.clock.Millis()
	due, err := outbox.Due(ctx, s.db.Read(), engine.AgentTopic, now, effectBatch)
	if err != nil {
		return err
	}
	for _, effect := range due {
		if err := s.carryOne(ctx, effect, now); err != nil {
			return err
		}
	}
	return nil
}

// carryOne acts first and deletes then: an agent may be told twice, never not at all.
func (s *Server) carryOne(ctx context.Context, effect outbox.Effect, now int64) error {
	var what engine.AgentEffect
	if err := json.Unmarshal(effect.Payload, &what); err != nil {
		return fmt.Errorf("decode effect for agent %s: %w", effect.Target, err)
	}
	if !s.tell(effect.Target, what) {
		elsewhere, err := s.connectedElsewhere(ctx, effect.Target)
		if err != nil {
			return err
		}
		if elsewhere && now < effect.CreatedAt+effectLife.Milliseconds() {
			return nil // that node reads the same row
		}
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		_, err := outbox.Done(ctx, tx, effect.ID)
		return err
	})
}

// tell reports whether the agent is connected here.
func (s *Server) tell(agentID string, what engine.AgentEffect) bool {
	if what.JobID == "" {
		return s.hub.Drop(agentID, what.Reason)
	}
	return s.hub.Cancel(agentID, wire.JobCancel{MessageID: uuid.NewString(), RunID: what.RunID, JobID: what.JobID,
		Reason: what.Reason, Force: what.Force, GraceMs: what.GraceMs})
}

func (s *Server) connectedElsewhere(ctx context.Context, agentID string) (bool, error) {
	a, err := fleet.Get(ctx, s.db.Read(), agentID)
	if errors.Is(err, fleet.ErrUnknown) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return a.Connected() && a.NodeID != s.node.id, nil
}
