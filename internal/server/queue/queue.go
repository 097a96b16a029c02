// Package queue holds the dispatch queue: which jobs wait for an agent, who has them, and how often they were offered.
// It is statements only. Every change is conditional, and its transaction fails with store.ErrUnchanged when the row is no
// longer in the state that it asks for: follow-up effects belong to the one who changed it.
//
// A row does not carry what the job demands of an agent; it names an interned selector. The dispatcher decides once per
// agent and selector whether they fit, takes the oldest head among those that do, and claims it by id, so a claim costs
// the same with a hundred thousand rows ahead that fit nobody here.
package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/server/store"
)

// Row is a queue row. Times are milliseconds; 0 means unset.
type Row struct {
	JobID             string
	RunID             string
	SelectorID        string
	Status            ci.QueueStatus
	CreatedAt         int64
	ExpiresAt         int64
	Attempts          int // completed re-deliveries
	AgentID           string
	NodeID            string
	ClaimedAt         int64
	AckDeadline       int64
	Started           bool
	RecoveryDeadline  int64
	ProvisioningError string
}

// Intern stores a selector and gives its id, a hash of its canonical text: the same demand has the same id everywhere.
func Intern(ctx context.Context, tx *store.Tx, s label.Selector) (string, error) {
	text := s.Canonical()
	sum := sha256.Sum256([]byte(text))
	id := hex.EncodeToString(sum[:12])
	if err := tx.Do(ctx, insertSelector, id, text); err != nil {
		return "", fmt.Errorf("intern selector: %w", err)
	}
	return id, nil
}

// Selector reads an interned selector back.
func Selector(ctx context.Context, q store.Querier, id string) (label.Selector, error) {
	var text string
	if err := q.QueryRowContext(ctx, "SELECT canonical FROM selectors WHERE id = $1", id).Scan(&text); err != nil {
		return label.Selector{}, fmt.Errorf("read selector %s: %w", id, err)
	}
	return label.ParseSelector(text)
}

// Enqueue adds a pending row. createdAt is the place in the line, and position the place among the rows of one moment:
// the jobs of a run become ready together, and go out in the order in which their author wrote them. expiresAt 0 waits
// for ever. A row that exists stays, and the change fails.
func Enqueue(ctx context.Context, tx *store.Tx, jobID, runID, selectorID string, createdAt, position, expiresAt int64) error {
	return tx.DoOne(ctx, store.ErrUnchanged, insertRow, jobID, runID, selectorID, createdAt, position, nullMillis(expiresAt))
}

// New is a row that is to be pending.
type New struct {
	JobID, SelectorID string
	Position          int64 // see Enqueue
}

// EnqueueAll adds the pending rows of one run at one moment. See Enqueue.
func EnqueueAll(ctx context.Context, tx *store.Tx, runID string, rows []New, createdAt, expiresAt int64) error {
	values := make([][]any, len(rows))
	for i, r := range rows {
		values[i] = []any{r.JobID, runID, r.SelectorID, string(ci.QueuePending), createdAt, r.Position, nullMillis(expiresAt)}
	}
	if err := store.InsertAll(ctx, tx, insertRows, 7, "ON CONFLICT (id) DO NOTHING", values); err != nil {
		return fmt.Errorf("queue jobs of run %s: %w", runID, err)
	}
	return nil
}

// AskDepth counts the pending rows, up to limit, which bounds what the question costs.
func AskDepth(limit int, n *int) store.Ask {
	return store.Ask{Query: "SELECT count(*) FROM (SELECT 1 FROM dispatch_queue WHERE status = 'pending' LIMIT $1) p", Args: []any{limit},
		Row: func(r store.Row) error { return r.Scan(n) }}
}

// Head is the oldest pending row of one selector.
type Head struct {
	SelectorID string
	JobID      string
	CreatedAt  int64
	Position   int64 // of the job in its run
}

// Compare orders by the place in the line. The id only makes the answer the same everywhere.
func (h Head) Compare(other Head) int {
	return cmp.Or(cmp.Compare(h.CreatedAt, other.CreatedAt), cmp.Compare(h.Position, other.Position), cmp.Compare(h.JobID, other.JobID))
}

// Before tells whether the head comes first in the line.
func (h Head) Before(other Head) bool { return h.Compare(other) < 0 }

// Demand is what the pending rows ask for, and what is in the way.
type Demand struct {
	Selectors []string       // that some pending row asks for, by id
	Held      map[string]int // how many jobs each agent holds that holds some; left out while nothing is pending
}

// AskDemand asks for what is demanded. It skips from one selector to the next in the index, so its cost grows with the
// selectors and not with the rows.
func AskDemand(d *Demand) store.Ask {
	d.Held = map[string]int{}
	return store.Ask{Query: selectDemand, Row: func(r store.Row) error {
		var id string
		var held int
		err := r.Scan(&id, &held)
		if held > 0 {
			d.Held[id] = held
		} else {
			d.Selectors = append(d.Selectors, id)
		}
		return err
	}}
}

// Heads gives the oldest pending row of every selector that has one.
func Heads(ctx context.Context, q store.Querier) ([]Head, error) {
	rows, err := q.QueryContext(ctx, selectHeads)
	if err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	defer rows.Close()
	var heads []Head
	for rows.Next() {
		var h Head
		if err := rows.Scan(&h.SelectorID, &h.JobID, &h.CreatedAt, &h.Position); err != nil {
			return nil, err
		}
		heads = append(heads, h)
	}
	return heads, rows.Err()
}

// AskLine gives the oldest pending rows of one selector that have not expired as of a time, up to limit.
func AskLine(selectorID string, asOf int64, limit int, take func(Head)) store.Ask {
	return store.Ask{Query: selectLine, Args: []any{selectorID, asOf, limit}, Row: func(r store.Row) error {
		h := Head{SelectorID: selectorID}
		err := r.Scan(&h.JobID, &h.CreatedAt, &h.Position)
		take(h)
		return err
	}}
}

// After gives the pending row that follows a head in the line of its selector.
func After(ctx context.Context, q store.Querier, h Head) (next Head, ok bool, err error) {
	next.SelectorID = h.SelectorID
	err = q.QueryRowContext(ctx, selectAfter, h.SelectorID, h.CreatedAt, h.Position, h.JobID).Scan(&next.JobID, &next.CreatedAt, &next.Position)
	if err == sql.ErrNoRows {
		return Head{}, false, nil
	}
	if err != nil {
		return Head{}, false, fmt.Errorf("read row after job %s: %w", h.JobID, err)
	}
	return next, true, nil
}

// Held counts, for every agent that holds jobs, how many.
func Held(ctx context.Context, q store.Querier) (map[string]int, error) {
	held := map[string]int{}
	err := q.All(ctx, store.Ask{Query: countHeld + heldByAgent, Row: func(r store.Row) error {
		var agent string
		var n int
		err := r.Scan(&agent, &n)
		held[agent] = n
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("count held jobs: %w", err)
	}
	return held, nil
}

// ByJob reads the row of a job, locked for the transaction.
func ByJob(ctx context.Context, tx *store.Tx, jobID string) (row Row, ok bool, err error) {
	err = tx.All(ctx, AskByJob(tx, jobID, func(r Row) { row, ok = r, true }))
	return row, ok, err
}

// AskByJob is ByJob among other questions. A job without a row gives none.
func AskByJob(tx *store.Tx, jobID string, found func(Row)) store.Ask {
	return store.Ask{Query: selectRow + " WHERE id = $1" + tx.ForUpdate(), Args: []any{jobID}, Row: func(r store.Row) error {
		row, err := scanRow(r)
		found(row)
		return err
	}}
}

// OfAgent lists the jobs that an agent holds or may come back with.
func OfAgent(ctx context.Context, q store.Querier, agentID string) ([]Row, error) {
	return list(ctx, q, selectRow+withAgents+" AND agent_id = $1 ORDER BY claimed_at, id", agentID)
}

// UnansweredSince lists up to limit dispatches whose ack deadline passed before now.
func UnansweredSince(ctx context.Context, q store.Querier, now int64, limit int) ([]Row, error) {
	return list(ctx, q, selectRow+withAgents+" AND status = 'dispatched' AND ack_deadline < $1 ORDER BY ack_deadline LIMIT $2", now, limit)
}

// UnrecoveredSince lists up to limit rows whose recovery deadline passed before now.
func UnrecoveredSince(ctx context.Context, q store.Querier, now int64, limit int) ([]Row, error) {
	return list(ctx, q, selectRow+withAgents+" AND status = 'recovering' AND recovery_deadline < $1 ORDER BY recovery_deadline LIMIT $2", now, limit)
}

// FirstExpiry is when the time of a pending row passes first, 0 for never. It reads all of them in the index.
func FirstExpiry(ctx context.Context, q store.Querier) (int64, error) {
	var at sql.NullInt64
	if err := q.QueryRowContext(ctx, "SELECT min(expires_at) FROM dispatch_queue WHERE status = 'pending'").Scan(&at); err != nil {
		return 0, fmt.Errorf("find the first queue row to expire: %w", err)
	}
	return at.Int64, nil
}

// ExpiredSince lists up to limit pending rows whose time passed before now, line by line. It may read all of them in the
// index: ask when there are some.
func ExpiredSince(ctx context.Context, q store.Querier, now int64, limit int) ([]Row, error) {
	return list(ctx, q, selectRow+" WHERE status = 'pending' AND expires_at < $1 ORDER BY selector_id, created_at, position, id LIMIT $2", now, limit)
}

// DispatchedBy lists the rows that a node gave out, for its own boot or for taking over its work.
func DispatchedBy(ctx context.Context, q store.Querier, nodeID string) ([]Row, error) {
	return list(ctx, q, selectRow+withAgents+" AND status = 'dispatched' AND node_id = $1 ORDER BY claimed_at, id", nodeID)
}

// WasHeldBy tells whether the job was ever given to that agent.
func WasHeldBy(ctx context.Context, q store.Querier, jobID, agentID string) (bool, error) {
	var yes bool
	err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM dispatch_attempts WHERE job_id = $1 AND agent_id = $2)", jobID, agentID).Scan(&yes)
	return yes, err
}

func list(ctx context.Context, q store.Querier, query string, args ...any) ([]Row, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list queue rows: %w", err)
	}
	defer rows.Close()
	var out []Row
	for rows.Next() {
		row, err := scanRow(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

func scanRow(s interface{ Scan(...any) error }) (Row, error) {
	var r Row
	var agent, node, provisioning sql.NullString
	var expires, claimed, ack, recovery sql.NullInt64
	err := s.Scan(&r.JobID, &r.RunID, &r.SelectorID, &r.Status, &r.CreatedAt, &expires, &r.Attempts, &agent, &node,
		&claimed, &ack, &r.Started, &recovery, &provisioning)
	r.ExpiresAt, r.ClaimedAt, r.AckDeadline, r.RecoveryDeadline = expires.Int64, claimed.Int64, ack.Int64, recovery.Int64
	r.AgentID, r.NodeID, r.ProvisioningError = agent.String, node.String, provisioning.String
	return r, err
}

func nullMillis(at int64) sql.NullInt64 { return sql.NullInt64{Int64: at, Valid: at != 0} }

const (
	insertSelector = `INSERT INTO selectors (id, canonical) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`

	insertRows = `INSERT INTO dispatch_queue (id, run_id, selector_id, status, created_at, position, expires_at) VALUES`

	insertRow = `INSERT INTO dispatch_queue (id, run_id, selector_id, status, created_at, position, expires_at)
VALUES ($1, $2, $3, 'pending', $4, $5, $6) ON CONFLICT (id) DO NOTHING`

	selectRow = `SELECT id, run_id, selector_id, status, created_at, expires_at, attempts, agent_id, node_id,
claimed_at, ack_deadline, started, recovery_deadline, last_provisioning_error FROM dispatch_queue`

	// The rows that are with agents, in the words of their index: SQLite takes an index that has a condition for a query that
	// repeats it. They are few, whatever has ended.
	withAgents = ` WHERE status IN ('dispatched', 'recovering')`

	// It says by the order that the index is to be walked: for a minimum PostgreSQL reads all pending rows where it takes them
	// for few.
	demanded = `WITH RECURSIVE s (id) AS (
    SELECT selector_id FROM (SELECT selector_id FROM dispatch_queue WHERE status = 'pending' ORDER BY selector_id LIMIT 1) f
    UNION ALL
    SELECT (SELECT q.selector_id FROM dispatch_queue q WHERE q.status = 'pending' AND q.selector_id > s.id ORDER BY q.selector_id LIMIT 1)
    FROM s WHERE s.id IS NOT NULL
)
`

	// The row is found by its id alone: asked for its status as well, PostgreSQL reads all pending rows to join them.
	selectHeads = demanded + `SELECT q.selector_id, q.id, q.created_at, q.position FROM s JOIN dispatch_queue q ON q.id = (
    SELECT h.id FROM dispatch_queue h WHERE h.status = 'pending' AND h.selector_id = s.id
    ORDER BY h.created_at, h.position, h.id LIMIT 1)
WHERE s.id IS NOT NULL`

	selectLine = `SELECT id, created_at, position FROM dispatch_queue
WHERE status = 'pending' AND selector_id = $1 AND (expires_at IS NULL OR expires_at >= $2)
ORDER BY created_at, position, id LIMIT $3`

	selectAfter = `SELECT id, created_at, position FROM dispatch_queue WHERE status = 'pending' AND selector_id = $1
  AND (created_at, position, id) > ($2, $3, $4) ORDER BY created_at, position, id LIMIT 1`

	countHeld   = `SELECT agent_id, count(*) FROM dispatch_queue` + withAgents
	heldByAgent = ` GROUP BY agent_id`

	// A selector is told from an agent by its count. While nothing is pending there is no name to begin with, so that the
	// engine does not count what many agents hold for nothing.
	selectDemand = demanded + `SELECT id, 0 FROM s WHERE id IS NOT NULL UNION ALL
` + countHeld + ` AND agent_id >= (SELECT '' FROM dispatch_queue WHERE status = 'pending' ORDER BY selector_id LIMIT 1)` + heldByAgent
)
