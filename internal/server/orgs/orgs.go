// Package orgs keeps what organisations decide for themselves where the server has a default. What is read holds from then
// on: nobody keeps it in memory.
package orgs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"kici/internal/core/ci"
	"kici/internal/decide/contexts"
	"kici/internal/kit/service"
	"kici/internal/server/store"
)

// ErrInvalid is followed by what is wrong with which field.
var ErrInvalid = errors.New("invalid settings of an organisation")

// Bounds. No sum of times or bytes overflows within them.
const (
	maxName    = 255
	maxSeconds = 1<<31 - 1 // some 68 years
	maxCacheMs = maxSeconds * 1000
	maxBytes   = 1<<53 - 1 // what a program in JavaScript can say exactly
)

// Settings are those of one organisation.
type Settings struct {
	AllowSelfApproval     bool   // whoever started a run may approve its holds
	AllowHTTPRegistries   bool   // registries of packages may be anywhere without TLS
	ApprovalExpirySeconds int64  // of approvals that workflows ask for and of which they say nothing
	UserCacheQuota        *int64 // bytes; nil: the server's
	UserCacheTTLMs        *int64 // since the last use; nil: the server's
	CreatedAt, UpdatedAt  int64  // epoch ms; 0 while nobody has decided anything
}

// Defaults are those of an organisation that has decided nothing.
func Defaults() Settings {
	return Settings{AllowSelfApproval: true, ApprovalExpirySeconds: int64(contexts.DefaultApprovalExpiry / time.Second)}
}

// ApprovalExpiry is ApprovalExpirySeconds as a duration.
func (s Settings) ApprovalExpiry() time.Duration {
	return time.Duration(s.ApprovalExpirySeconds) * time.Second
}

func (s Settings) check() error {
	var errs []error
	if s.ApprovalExpirySeconds < 1 || s.ApprovalExpirySeconds > maxSeconds {
		errs = append(errs, fmt.Errorf("approvalExpirySeconds must be from 1 to %d", maxSeconds))
	}
	if q := s.UserCacheQuota; q != nil && (*q < 1 || *q > maxBytes) {
		errs = append(errs, fmt.Errorf("userCacheQuotaBytes must be from 1 to %d, or null", int64(maxBytes)))
	}
	if ttl := s.UserCacheTTLMs; ttl != nil && (*ttl < 1 || *ttl > maxCacheMs) {
		errs = append(errs, fmt.Errorf("userCacheTtlMs must be from 1 to %d, or null", int64(maxCacheMs)))
	}
	return errors.Join(errs...)
}

// Read gives the settings of an organisation, which may be one that nobody knows.
func Read(ctx context.Context, q store.Querier, orgID string) (Settings, error) {
	return read(ctx, q, orgID, "")
}

func read(ctx context.Context, q store.Querier, orgID, lock string) (Settings, error) {
	s := Defaults()
	err := q.QueryRowContext(ctx, selectSettings+lock, orgID).Scan(&s.AllowSelfApproval, &s.AllowHTTPRegistries, &s.ApprovalExpirySeconds,
		&s.UserCacheQuota, &s.UserCacheTTLMs, &s.CreatedAt, &s.UpdatedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read settings of organisation %s: %w", orgID, err)
	}
	return s, nil
}

// Change changes settings of an organisation and gives them as they were and as they are. Changes of two callers follow one
// another, so that neither undoes the other's.
func Change(ctx context.Context, db *store.DB, clock service.Clock, orgID string, change func(*Settings) error) (before, after Settings, err error) {
	if orgID == "" || utf8.RuneCountInString(orgID) > maxName || orgID != ci.CleanText(orgID) {
		return before, after, fmt.Errorf("%w: customerId must be a text of 1 to %d characters", ErrInvalid, maxName)
	}
	err = db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		d, now := Defaults(), clock.Millis()
		err := tx.Do(ctx, insertDefaults, orgID, d.AllowSelfApproval, d.AllowHTTPRegistries, d.ApprovalExpirySeconds, now)
		if err != nil {
			return err
		}
		if before, err = read(ctx, tx, orgID, tx.ForUpdate()); err != nil {
			return err
		}
		after = before
		if err := change(&after); err != nil {
			return err
		}
		if err := after.check(); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		after.UpdatedAt = now
		return tx.Do(ctx, updateSettings, orgID, after.AllowSelfApproval, after.AllowHTTPRegistries,
			after.ApprovalExpirySeconds, after.UserCacheQuota, after.UserCacheTTLMs, now)
	})
	if err != nil {
		return before, after, fmt.Errorf("change settings of organisation %s: %w", orgID, err)
	}
	return before, after, nil
}

const (
	selectSettings = `SELECT allow_self_approval, allow_http_npm_registries, approval_expiry_seconds, user_cache_quota_bytes, user_cache_ttl_ms,
		created_at, updated_at FROM org_settings WHERE org_id = $1`
	insertDefaults = `INSERT INTO org_settings (org_id, allow_self_approval, allow_http_npm_registries, approval_expiry_seconds, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (org_id) DO NOTHING`
	updateSettings = `UPDATE org_settings SET allow_self_approval = $2, allow_http_npm_registries = $3, approval_expiry_seconds = $4,
		user_cache_quota_bytes = $5, user_cache_ttl_ms = $6, updated_at = $7 WHERE org_id = $1`
)
