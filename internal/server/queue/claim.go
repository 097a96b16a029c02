package queue

import (
	"context"
	"fmt"
	"slices"

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
// job and no agent holds more than it can. Two nodes that both take an agent for theirs, as one that moves can be for a moment,
// may each fill it: the one that it has left cannot write the frame and takes the job back. A row that another transaction has
// locked is passed over, whatever becomes of it: one claim holds many rows, so it must not wait for any. Offers beyond MaxOffers
// are refused. It is the last of its transaction, with what else is asked.
func ClaimAll(ctx context.Context, tx *store.Tx, offers []Offer, nodeID string, at Moment, also ...store.Ask) (claimed []string, err error) {
	if len(offers) == 0 || len(offers) > MaxOffers {
		return nil, fmt.Errorf("claim %d jobs: between 1 and %d can be claimed at once", len(offers), MaxOffers)
	}
	if err := tx.PlanAnew(ctx); err != nil { // the queue grows and shrinks by orders of magnitude
		return nil, fmt.Errorf("claim jobs: %w", err)
	}
	free, among := "", ""
	if tx.Dialect == store.Postgres { // the single writer of the other meets no locked row
		free, among = claimFree, " AND id IN (SELECT free.id FROM free)"
		offers = padded(offers)
	}
	claim := store.Ask{Query: claimRows + store.Places(len(offers), 5, "(CAST($%d AS TEXT), CAST($%d AS TEXT), CAST($%d AS BIGINT))") + ")" + free +
		claimRowsSet + among + " RETURNING id",
		Args: []any{nodeID, at.Now, at.AckDeadline, at.AsOf}, Row: func(r store.Row) error {
			var id string
			err := r.Scan(&id)
			claimed = append(claimed, id)
			return err
		}}
	note := store.Ask{Query: insertAttempts + store.Places(len(offers), 3, "$%d") + ")", Args: []any{nodeID, at.Now}}
	for _, o := range offers {
		claim.Args = append(claim.Args, o.JobID, o.AgentID, o.Room)
		note.Args = append(note.Args, o.JobID)
	}
	if err := tx.Last(ctx, append([]store.Ask{claim, note}, also...)...); err != nil {
		return nil, fmt.Errorf("claim jobs: %w", err)
	}
	return claimed, nil
}

// padded adds offers of no job, which find no row, up to one of a few numbers: each number is a statement of its own, and
// PostgreSQL prepares it on every connection.
func padded(offers []Offer) []Offer {
	size := 4
	for size < len(offers) {
		size *= 2
	}
	return append(slices.Clip(offers), make([]Offer, size-len(offers))...)
}

const (
	// The offers are joined before any row changes, so the rows given in one statement do not count against each other.
	claimRows = `WITH offer (job, agent, room) AS (VALUES `

	claimFree = `, free (id) AS MATERIALIZED (
    SELECT q.id FROM offer JOIN dispatch_queue q ON q.id = offer.job WHERE q.status = 'pending' FOR UPDATE OF q SKIP LOCKED)`

	claimRowsSet = `
UPDATE dispatch_queue SET status = 'dispatched', agent_id = offer.agent, node_id = $1, claimed_at = $2,
    ack_deadline = $3, started = FALSE, recovery_deadline = NULL, last_provisioning_error = NULL
FROM offer WHERE id = offer.job AND status = 'pending' AND (expires_at IS NULL OR expires_at >= $4)
  AND (SELECT count(*) FROM dispatch_queue a WHERE a.agent_id = offer.agent AND a.status IN ('dispatched', 'recovering')) < offer.room`

	// The rows that have just been claimed are those of this moment that have no delivery under way. They are found by their
	// ids: the case keeps the engine from looking through all that the node has given out.
	insertAttempts = `INSERT INTO dispatch_attempts (job_id, attempt, agent_id, node_id, claimed_at)
SELECT q.id, 1 + coalesce((SELECT max(d.attempt) FROM dispatch_attempts d WHERE d.job_id = q.id), 0), q.agent_id, q.node_id, q.claimed_at
FROM dispatch_queue q WHERE CASE WHEN q.node_id = $1 AND q.claimed_at = $2 AND q.status = 'dispatched' THEN TRUE ELSE FALSE END
  AND NOT EXISTS (SELECT 1 FROM dispatch_attempts o WHERE o.job_id = q.id AND o.ended_at IS NULL) AND q.id IN (`
)
