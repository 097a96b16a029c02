package server

import (
	"context"
	"encoding/json"
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

// effectBatch bounds one look at the outbox.
const effectBatch = 200

// effectLife is how long another node may take to tell its agent something. An agent that comes back is told again by
// the reconciliation of its registration, so nothing is lost with a row that is dropped.
const effectLife = 10 * time.Minute

// agentEffect is what the outbox holds for an agent: a word of the engine, or that its token no longer holds.
type agentEffect struct {
	engine.AgentEffect
	TokenID string `json:"tokenId,omitempty"` // its connections are closed for good
}

// carry tells this node's agents what the outbox holds for them. It is woken by the engine of every node, and when an
// agent has connected.
func (s *Server) carry(ctx context.Context) error {
	return service.Every(ctx, s.log, "agent effects", s.settings.Poll, s.effects, s.carryOnce)
}

func (s *Server) carryOnce(ctx context.Context) error {
	now := s.clock.Millis()
	var last outbox.Effect
	for {
		due, err := outbox.Next(ctx, s.db.Read(), engine.AgentTopic, now, last, effectBatch)
		if err != nil || len(due) == 0 {
			return err
		}
		if err := s.carryBatch(ctx, due, now); err != nil {
			return err
		}
		last = due[len(due)-1]
	}
}

// carryBatch acts first and deletes then: an agent may be told twice, never not at all.
func (s *Server) carryBatch(ctx context.Context, due []outbox.Effect, now int64) error {
	var done []string
	elsewhere := map[string][]outbox.Effect{} // by agent
	for _, effect := range due {
		if s.tell(effect) {
			done = append(done, effect.ID)
		} else {
			elsewhere[effect.Target] = append(elsewhere[effect.Target], effect)
		}
	}
	homeless, err := s.homeless(ctx, elsewhere, now)
	if err != nil {
		return err
	}
	if done = append(done, homeless...); len(done) == 0 {
		return nil
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		for _, id := range done {
			if _, err := outbox.Done(ctx, tx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// homeless lists the effects that no node will carry: their agents are connected nowhere, or their node takes too long.
// What is for another node's agent is left to that node, which reads the same rows.
func (s *Server) homeless(ctx context.Context, elsewhere map[string][]outbox.Effect, now int64) (ids []string, err error) {
	agents := make([]string, 0, len(elsewhere))
	for id := range elsewhere {
		agents = append(agents, id)
	}
	homes, err := fleet.Homes(ctx, s.db.Read(), agents)
	if err != nil {
		return nil, err
	}
	for agent, effects := range elsewhere {
		home, connected := homes[agent]
		for _, effect := range effects {
			if !connected || home == s.node.id || now >= effect.CreatedAt+effectLife.Milliseconds() {
				ids = append(ids, effect.ID)
			}
		}
	}
	return ids, nil
}

// tell carries an effect and reports whether its agent is connected here. What cannot be read now cannot be read later,
// so it counts as carried.
func (s *Server) tell(effect outbox.Effect) bool {
	var what agentEffect
	if err := json.Unmarshal(effect.Payload, &what); err != nil {
		s.log.Error("effect for an agent dropped", "agent", effect.Target, "err", err)
		return true
	}
	switch {
	case what.TokenID != "":
		return s.hub.Kick(what.TokenID)
	case what.Frame != nil:
		frame, err := wire.DecodeFromServer(what.Frame)
		if err != nil {
			s.log.Error("frame for an agent dropped", "agent", effect.Target, "err", err)
			return true
		}
		return s.hub.Send(effect.Target, frame)
	case what.JobID == "":
		return s.hub.Drop(effect.Target, what.Reason)
	}
	return s.hub.Send(effect.Target, wire.JobCancel{MessageID: cancelID(what.JobID, what.Force), RunID: what.RunID, JobID: what.JobID,
		Reason: what.Reason, Force: what.Force, GraceMs: what.GraceMs})
}

// cancelID is the same for the same wish, so that an agent that is told once more does not take it for a second one, which
// would cut its hooks short.
func cancelID(jobID string, force bool) string {
	return uuid.NewSHA1(uuid.Nil, fmt.Appendf(nil, "cancel %s %v", jobID, force)).String()
}

// KickToken closes, on every node, the connections of a token that was revoked. It counts those of other nodes, too, which
// end a moment later.
func (s *Server) KickToken(ctx context.Context, tokenID string) int {
	kicked := s.hub.KickToken(ctx, tokenID)
	var elsewhere []string
	err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		if elsewhere, err = fleet.Elsewhere(ctx, tx, tokenID, s.node.id); err != nil {
			return err
		}
		for _, agent := range elsewhere {
			if err := outbox.Put(ctx, tx, engine.AgentTopic, agent, agentEffect{TokenID: tokenID}, s.clock.Millis()); err != nil {
				return err
			}
		}
		tx.After(s.spread.Wake)
		return nil
	})
	if err != nil {
		s.log.Error("other nodes not told of a revoked agent token, they refuse its agents only when they connect again", "token", tokenID, "err", err)
		return kicked
	}
	return kicked + len(elsewhere)
}
