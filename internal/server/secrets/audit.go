package secrets

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"kici/internal/server/store"
)

const (
	outcomeAllowed = "allowed"
	outcomeDenied  = "denied"
)

// AuditEntry is one row of the audit log of secrets. It names keys and never holds values. Empty texts are unknown.
type AuditEntry struct {
	ID         string
	At         int64 // epoch ms
	Action     string
	Context    string // the scope, or what was resolved
	RoutingKey string
	Keys       []string
	Outcome    string // allowed or denied
	RunID      string
	JobID      string
	UserID     string
	Role       string
}

// AuditFilter chooses audit entries. Empty fields choose all.
type AuditFilter struct {
	Context    string
	RoutingKey string
	Action     string
	From       int64 // epoch ms, inclusive
	To         int64 // epoch ms, exclusive; 0 for no end
	Limit      int   // 1 to 1000, 100 otherwise
	Offset     int
}

// Audit lists audit entries, newest first.
func (s *Store) Audit(ctx context.Context, f AuditFilter) ([]AuditEntry, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	if f.To <= 0 {
		f.To = 1<<63 - 1
	}
	rows, err := s.db.Read().QueryContext(ctx, selectAudit, f.Context, f.RoutingKey, f.Action, f.From, f.To,
		min(f.Limit, 1000), max(f.Offset, 0))
	if err != nil {
		return nil, fmt.Errorf("read secret audit: %w", err)
	}
	defer rows.Close()
	out := []AuditEntry{}
	for rows.Next() {
		e, err := scanAudit(rows)
		if err != nil {
			return nil, fmt.Errorf("read secret audit: %w", err)
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// RecordTx writes an audit entry of another room, such as the revealing of a webhook secret, in that room's transaction.
func (s *Store) RecordTx(ctx context.Context, tx *store.Tx, e AuditEntry) error {
	if e.Outcome == "" {
		e.Outcome = outcomeAllowed
	}
	return s.auditTx(ctx, tx, e)
}

func (s *Store) auditTx(ctx context.Context, tx *store.Tx, e AuditEntry) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if e.Keys == nil {
		e.Keys = []string{}
	}
	keys, err := json.Marshal(e.Keys)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	err = tx.Do(ctx, insertAudit, id.String(), s.clock.Millis(), e.Action, orNull(e.Context),
		orNull(e.RoutingKey), string(keys), e.Outcome, orNull(e.RunID), orNull(e.JobID), orNull(e.UserID), orNull(e.Role))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func scanAudit(rows store.Row) (AuditEntry, error) {
	var e AuditEntry
	var keys string
	var scope, routing, run, job, user, role sql.NullString
	err := rows.Scan(&e.ID, &e.At, &e.Action, &scope, &routing, &keys, &e.Outcome, &run, &job, &user, &role)
	if err != nil {
		return AuditEntry{}, err
	}
	e.Context, e.RoutingKey, e.RunID, e.JobID = scope.String, routing.String, run.String, job.String
	e.UserID, e.Role = user.String, role.String
	if err := json.Unmarshal([]byte(keys), &e.Keys); err != nil {
		return AuditEntry{}, fmt.Errorf("entry %s: %w", e.ID, err)
	}
	return e, nil
}

// PurgeAudit removes entries that have been kept for long enough: denials for 180 days, resolutions for 30, changes for a
// year. It removes at most limit and tells how many went.
func (s *Store) PurgeAudit(ctx context.Context, limit int) (removed int64, err error) {
	const day = 24 * 60 * 60 * 1000
	now := s.clock().UnixMilli()
	err = s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		res, err := tx.ExecContext(ctx, purgeAudit, now-180*day, now-30*day, now-365*day, limit)
		if err != nil {
			return err
		}
		removed, err = res.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("purge audit log of secrets: %w", err)
	}
	return removed, nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

const (
	insertAudit = `INSERT INTO secret_audit_log
		(id, at, action, context_name, routing_key, secret_keys, outcome, run_id, job_id, user_id, role)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	selectAudit = `SELECT id, at, action, context_name, routing_key, secret_keys, outcome, run_id, job_id, user_id, role
		FROM secret_audit_log WHERE (context_name = $1 OR $1 = '') AND (routing_key = $2 OR $2 = '')
		AND (action = $3 OR $3 = '') AND at >= $4 AND at < $5 ORDER BY at DESC, id DESC LIMIT $6 OFFSET $7`
	purgeAudit = `DELETE FROM secret_audit_log WHERE id IN (SELECT id FROM secret_audit_log WHERE at < CASE
		WHEN outcome <> 'allowed' THEN CAST($1 AS BIGINT)
		WHEN action IN ('resolve', 'resolve_named') THEN CAST($2 AS BIGINT)
		ELSE CAST($3 AS BIGINT) END ORDER BY at LIMIT $4)`
)
