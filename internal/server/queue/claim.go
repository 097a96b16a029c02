package queue

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// Offer is a pending row and the agent that is to have it.
type Offer struct {
	JobID   string
	AgentID string
	Room    int // the agent takes it only while it holds fewer jobs than these; earlier offers of one call do not count
}

// MaxOffers bounds the offers of one call of ClaimAll.
const MaxOffers = 32

// Claim gives a pending row to an agent that has room for it, and reports whether it did.
func Claim(ctx context.Context, tx *store.Tx, jobID, agentID, nodeID string, room int, now, ackDeadline int64) (bool, error) {
	claimed, err := ClaimAll(ctx, tx, []Offer{{jobID, agentID, room}}, nodeID, Moment{now, now, ackDeadline})
	return len(claimed) == 1, err
}

// Moment is when rows are claimed, epoch milliseconds.
type Moment struct {
	Now         int64
	AsOf        int64 // rows whose time was up before it are not given; earlier than now when nobody could be given any
	AckDeadline int64
}

// ClaimAll gives pending rows to agents that have room for them, and lists the jobs that were given. A row, its owner and
// its ack deadline change in one statement, and the agent's room is counted in the same one, so two agents never hold one
// job and no agent holds more than it can. Offers beyond MaxOffers are refused.
func ClaimAll(ctx context.Context, tx *store.Tx, offers []Offer, nodeID string, at Moment) (claimed []string, err error) {
	if len(offers) == 0 || len(offers) > MaxOffers {
		return nil, fmt.Errorf("claim %d jobs: between 1 and %d can be claimed at once", len(offers), MaxOffers)
	}
	if err := tx.PlanAnew(ctx); err != nil { // the queue grows and shrinks by orders of magnitude
		return nil, fmt.Errorf("claim jobs: %w", err)
	}
	args := []any{nodeID, at.Now, at.AckDeadline, at.AsOf}
	for _, o := range offers {
		args = append(args, o.JobID, o.AgentID, o.Room)
	}
	statement := claimRows + store.Places(len(offers), 5, "(CAST($%d AS TEXT), CAST($%d AS TEXT), CAST($%d AS BIGINT))") + claimRowsSet
	if claimed, err = store.Texts(ctx, tx, statement, args...); err != nil {
		return nil, fmt.Errorf("claim jobs: %w", err)
	}
	if len(claimed) == 0 {
		return nil, nil
	}
	return claimed, beginAttempts(ctx, tx, claimed)
}

// beginAttempts notes the deliveries of rows that have just been claimed.
func beginAttempts(ctx context.Context, tx *store.Tx, claimed []string) error {
	args := make([]any, len(claimed))
	for i, id := range claimed {
		args[i] = id
	}
	if err := tx.Do(ctx, insertAttempts+store.Places(len(claimed), 1, "$%d")+")", args...); err != nil {
		return fmt.Errorf("note claims: %w", err)
	}
	return nil
}

const (
	// The offers are joined before any row changes, so the rows given in one statement do not count against each other.
	claimRows = `WITH offer (job, agent, room) AS (VALUES `

	claimRowsSet = `)
UPDATE dispatch_queue SET status = 'dispatched', agent_id = offer.agent, node_id = $1, claimed_at = $2,
    ack_deadline = $3, started = FALSE, recovery_deadline = NULL, last_provisioning_error = NULL
FROM offer WHERE id = offer.job AND status = 'pending' AND (expires_at IS NULL OR expires_at >= $4)
  AND (SELECT count(*) FROM dispatch_queue a WHERE a.agent_id = offer.agent AND a.status IN ('dispatched', 'recovering')) < offer.room
RETURNING id`

	insertAttempts = `INSERT INTO dispatch_attempts (job_id, attempt, agent_id, node_id, claimed_at)
SELECT q.id, 1 + coalesce((SELECT max(d.attempt) FROM dispatch_attempts d WHERE d.job_id = q.id), 0), q.agent_id, q.node_id, q.claimed_at
FROM dispatch_queue q WHERE q.id IN (`
)
