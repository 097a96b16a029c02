package auth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/kit/seal"
	"kici/internal/server/store"
)

const maxTokenLabel = 255 // characters

// Admin is who stands behind the text of an admin token: not revoked and not expired. Errors: ErrInvalidToken, or one
// that says that the lookup could not be done. The use is noted, at most once a minute.
func (t *Tokens) Admin(ctx context.Context, token string) (Identity, error) {
	now := t.clock.Millis()
	found, err := scanAdminToken(t.db.Read().QueryRowContext(ctx, selectAdminByHash, seal.HashToken(token), now))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Identity{}, ErrInvalidToken
	case err != nil:
		return Identity{}, fmt.Errorf("look up admin token: %w", err)
	}
	t.touch(ctx, touchAdmin, found.ID, found.LastUsedAt, now)
	return Identity{TokenID: found.ID, Label: found.Label, Role: found.Role, RoutingKey: found.RoutingKey}, nil
}

// NewAdminToken describes an admin token to make.
type NewAdminToken struct {
	Label      string // 1 to 255 characters
	Role       Role
	RoutingKey string // "" for all
	Subject    string
	ExpiresAt  *int64 // epoch ms, in the future; nil for never
}

// CreateAdminTx makes an admin token. Its text is given here and never again. An error that wraps ErrInvalid says what
// is wrong with the input.
func (t *Tokens) CreateAdminTx(ctx context.Context, tx *store.Tx, n NewAdminToken) (token, id string, err error) {
	if err := t.checkNewAdmin(n); err != nil {
		return "", "", err
	}
	token, id = seal.NewAdminToken(), uuid.NewString()
	if err := t.insertAdmin(ctx, tx, id, token, n); err != nil {
		return "", "", err
	}
	return token, id, nil
}

// CreateAdmin is CreateAdminTx in a transaction of its own.
func (t *Tokens) CreateAdmin(ctx context.Context, n NewAdminToken) (token, id string, err error) {
	err = t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		token, id, err = t.CreateAdminTx(ctx, tx, n)
		return err
	})
	return token, id, err
}

func (t *Tokens) checkNewAdmin(n NewAdminToken) error {
	switch {
	case n.Label == "" || utf8.RuneCountInString(n.Label) > maxTokenLabel || n.Label != ci.CleanText(n.Label):
		return fmt.Errorf("%w: label must have 1 to %d characters", ErrInvalid, maxTokenLabel)
	case !n.Role.Valid():
		return fmt.Errorf("%w: role must be owner, admin or auditor", ErrInvalid)
	case n.ExpiresAt != nil && *n.ExpiresAt <= t.clock.Millis():
		return fmt.Errorf("%w: expiresAt must be in the future", ErrInvalid)
	case n.RoutingKey != ci.CleanText(n.RoutingKey) || n.Subject != ci.CleanText(n.Subject):
		return fmt.Errorf("%w: routingKey and subject must be valid text", ErrInvalid)
	}
	return nil
}

func (t *Tokens) insertAdmin(ctx context.Context, tx *store.Tx, id, token string, n NewAdminToken) error {
	_, err := tx.ExecContext(ctx, insertAdminToken, id, n.Label, seal.HashToken(token), n.Role,
		orNull(n.RoutingKey), orNull(n.Subject), t.clock.Millis(), n.ExpiresAt)
	if store.IsUnique(err) {
		return fmt.Errorf("create admin token: %w", ErrExists)
	}
	if err != nil {
		return fmt.Errorf("create admin token: %w", err)
	}
	return nil
}

// AdminTokens lists all admin tokens, revoked ones too, newest first.
func (t *Tokens) AdminTokens(ctx context.Context) ([]AdminToken, error) {
	rows, err := t.db.Read().QueryContext(ctx, listAdminTokens)
	if err != nil {
		return nil, fmt.Errorf("list admin tokens: %w", err)
	}
	defer rows.Close()
	out := []AdminToken{}
	for rows.Next() {
		one, err := scanAdminToken(rows)
		if err != nil {
			return nil, fmt.Errorf("list admin tokens: %w", err)
		}
		out = append(out, one)
	}
	return out, rows.Err()
}

// RevokeAdminTx revokes an admin token. ErrNotFound says that there is none with that id; revoking one twice is no
// error. ErrLastOwner refuses to revoke the last token that can manage tokens: nobody could make another.
func (t *Tokens) RevokeAdminTx(ctx context.Context, tx *store.Tx, id string) error {
	owners, err := usableOwners(ctx, tx, t.clock.Millis())
	if err != nil {
		return fmt.Errorf("revoke admin token %s: %w", id, err)
	}
	if len(owners) == 1 && owners[0] == id {
		return ErrLastOwner
	}
	changed, err := store.Changed(tx.ExecContext(ctx, revokeAdminToken, id))
	if err != nil {
		return fmt.Errorf("revoke admin token %s: %w", id, err)
	}
	if !changed {
		return ErrNotFound
	}
	return nil
}

// RevokeAdmin is RevokeAdminTx in a transaction of its own.
func (t *Tokens) RevokeAdmin(ctx context.Context, id string) error {
	return t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return t.RevokeAdminTx(ctx, tx, id) })
}

// usableOwners locks and lists the tokens that may manage tokens. The lock makes two revocations at once see each other.
func usableOwners(ctx context.Context, tx *store.Tx, now int64) ([]string, error) {
	return store.Texts(ctx, tx, selectOwners+tx.ForUpdate(), now)
}

func scanAdminToken(row interface{ Scan(...any) error }) (AdminToken, error) {
	var t AdminToken
	var key, subject sql.NullString
	err := row.Scan(&t.ID, &t.Label, &t.Role, &key, &subject, &t.CreatedAt, &t.ExpiresAt, &t.LastUsedAt, &t.Revoked)
	t.RoutingKey, t.Subject = key.String, subject.String
	return t, err
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

const adminColumns = `id, label, role, routing_key, subject, created_at, expires_at, last_used_at, revoked`

const (
	selectAdminByHash = `SELECT ` + adminColumns + ` FROM admin_tokens
		WHERE token_hash = $1 AND NOT revoked AND (expires_at IS NULL OR expires_at > $2)`
	insertAdminToken = `INSERT INTO admin_tokens (id, label, token_hash, role, routing_key, subject, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
	listAdminTokens  = `SELECT ` + adminColumns + ` FROM admin_tokens ORDER BY created_at DESC, id LIMIT 10000`
	touchAdmin       = `UPDATE admin_tokens SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at <= $3)`
	revokeAdminToken = `UPDATE admin_tokens SET revoked = TRUE WHERE id = $1`
	selectOwners     = `SELECT id FROM admin_tokens WHERE role = 'owner' AND routing_key IS NULL AND NOT revoked
		AND (expires_at IS NULL OR expires_at > $1) ORDER BY id`
)
