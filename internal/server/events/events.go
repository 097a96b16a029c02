// Package events keeps what runs and jobs tell other workflows. An event is a row, written in the transaction that makes
// it true, with a wake-up for those that act on events. It alone writes the table kici_events.
package events

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/kit/service"
	"kici/internal/server/store"
)

// Settings are the limits of events.
type Settings struct {
	MaxChainDepth int           // events at this depth are refused
	PerMinute     int           // events of one name from one workflow within a minute
	TTL           time.Duration // how long an event is kept, a minute at least: the rate is counted in the rows
	SweepEvery    time.Duration // how often events that are too old are looked for
}

// DefaultSettings are those of a server without configuration.
func DefaultSettings() Settings {
	return Settings{MaxChainDepth: 10, PerMinute: 100, TTL: 7 * 24 * time.Hour, SweepEvery: time.Hour}
}

// Deps are what the room needs.
type Deps struct {
	DB       *store.DB
	Clock    service.Clock
	Log      *slog.Logger
	Settings Settings
	// Wake is of who acts on events: one was committed.
	Wake service.Poke
	// Dropped counts events that nobody will ever act on, by reason.
	Dropped func(reason string, n int)
}

// Room is where events are kept. It owns no goroutine; Sweep is the loop to run.
type Room struct {
	Deps
	breaker breaker
}

// New makes the room.
func New(d Deps) *Room {
	return &Room{Deps: d, breaker: breaker{maxDepth: d.Settings.MaxChainDepth, perMinute: d.Settings.PerMinute}}
}

// Event is something that somebody tells the workflows of an organisation.
type Event struct {
	Name    string
	Payload json.RawMessage // an object; nil is {}
	OrgID   string
	Source  Source
	// TargetRepos are the repositories whose workflows may hear of it; empty is every one.
	TargetRepos []string
	ChainDepth  int // 0 for what no run caused

	life time.Duration // how long it is kept, 0 for as long as most
}

// Source is who tells it. What is not known is empty.
type Source struct {
	RoutingKey string
	Repo       string
	Workflow   string
	RunID      string
	JobID      string
}

// EmitTx writes an event of somebody other than the server, and wakes those that act on events once the transaction is
// committed. Error: *Refusal for one that must not be.
func (r *Room) EmitTx(ctx context.Context, tx *store.Tx, e Event) (id string, err error) {
	if err := e.check(); err != nil {
		return "", err
	}
	if err := r.breaker.chain(e.ChainDepth); err != nil {
		return "", err
	}
	now, key := r.Clock.Millis(), e.rateKey()
	crowding, err := r.crowding(ctx, tx, key, now)
	if err != nil {
		return "", err
	}
	if err := r.breaker.rate(e.Name, crowding, now); err != nil {
		return "", err
	}
	return r.insert(ctx, tx, e, key, now)
}

// insert writes the row. Ids rise with time, so that an index of them grows at its end.
func (r *Room) insert(ctx context.Context, tx *store.Tx, e Event, rateKey string, now int64) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("write event %s: %w", e.Name, err)
	}
	var targets sql.NullString
	if len(e.TargetRepos) > 0 {
		raw, err := json.Marshal(e.TargetRepos)
		if err != nil {
			return "", fmt.Errorf("write event %s: %w", e.Name, err)
		}
		targets = optional(ci.CleanText(string(raw)))
	}
	payload := "{}"
	if len(e.Payload) > 0 {
		payload = ci.CleanText(string(e.Payload))
	}
	life := cmp.Or(e.life, r.Settings.TTL)
	err = tx.Do(ctx, insertEvent, id.String(), e.Name, payload, e.OrgID, e.Source.Repo, e.Source.RoutingKey, optional(e.Source.RunID),
		optional(e.Source.JobID), targets, e.ChainDepth, optional(rateKey), now, now+life.Milliseconds())
	if err != nil {
		return "", fmt.Errorf("write event %s: %w", e.Name, err)
	}
	tx.After(r.Wake.Wake)
	return id.String(), nil
}

func optional(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

const insertEvent = `INSERT INTO kici_events (id, event_name, payload, org_id, source_repo, source_routing_key, source_run_id,
    source_job_id, target_repos, chain_depth, rate_key, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`
