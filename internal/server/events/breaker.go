package events

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"kici/internal/server/store"
)

// Refusal says, for whoever emitted an event, why it was not taken.
type Refusal struct {
	reason string // counted under it, "" for what was never an event
	text   string
}

func (e *Refusal) Error() string { return e.text }

// TooFast tells that the same event would be taken a while later.
func (e *Refusal) TooFast() bool { return e.reason == reasonRateLimit }

func refuse(text string) error { return &Refusal{text: text} }

// What events are dropped for.
const (
	reasonChainDepth = "chain_depth"
	reasonRateLimit  = "rate_limit"
	reasonExpired    = "expired" // nothing acted on it
)

// DropReasons are all values that Deps.Dropped is called with.
var DropReasons = []string{reasonChainDepth, reasonRateLimit, reasonExpired}

// window is the time in which events are counted, milliseconds.
const window = 60_000

// breaker stops events that cause one another without end, and those that come too fast. It has no memory: what counts
// is in the rows, so that it holds for all nodes and over a restart.
type breaker struct {
	maxDepth  int
	perMinute int
}

// chain refuses an event that is too many events away from the first.
func (b breaker) chain(depth int) error {
	if depth < b.maxDepth {
		return nil
	}
	return &Refusal{reasonChainDepth, fmt.Sprintf("Circuit breaker tripped: Event chain depth %d exceeds maximum %d", depth, b.maxDepth)}
}

// rate refuses an event when there were enough of its kind in the window that ends now. crowding is when the oldest of
// the last perMinute ones was written, 0 when there are fewer: once it leaves the window, there is room again.
func (b breaker) rate(name string, crowding, now int64) error {
	wait := crowding + window - now
	if crowding == 0 || wait <= 0 {
		return nil
	}
	return &Refusal{reasonRateLimit, fmt.Sprintf("Rate limit exceeded for event '%s'. Retry after %dms", name, wait)}
}

// rateKey is what an event is counted under: its name, and the workflow that emits it. Its length is bounded, for the
// index.
func (e Event) rateKey() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{e.OrgID, e.Source.RoutingKey, e.Source.Repo, e.Source.Workflow, e.Name}, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// crowding reads what rate needs to know. Transactions that run at once on PostgreSQL do not see each other's events, so
// that a few more than the limit may get through.
func (r *Room) crowding(ctx context.Context, tx *store.Tx, key string, now int64) (at int64, err error) {
	err = tx.QueryRowContext(ctx, selectCrowding, key, now-window, r.breaker.perMinute-1).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	return at, nil
}

const selectCrowding = `SELECT created_at FROM kici_events WHERE rate_key = $1 AND created_at > $2
ORDER BY created_at DESC LIMIT 1 OFFSET $3`
