package provenance

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"kici/internal/core/attest"
	"kici/internal/core/ci"
	"kici/internal/server/auth"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// The statuses of a signing key. One key at a time is active and signs. All that are not revoked are published, and what
// they signed is believed.
const (
	Active   = "active"
	Retiring = "retiring" // the one before the active key: its last tokens may be in use
	Retired  = "retired"
	Revoked  = "revoked" // nothing that it signed is believed any more
)

// keyPlace is where private keys lie, for their envelopes.
const keyPlace = "orchestrator-signing-key"

// Mistakes of who administers keys.
var (
	ErrUnknownKey = errors.New("no such signing key")
	ErrRaced      = errors.New("somebody else changed the signing keys at the same time, try again")
)

// SigningKey is a key as it may be shown.
type SigningKey struct {
	ID        string
	Status    string
	Reason    string // why it was revoked
	CreatedAt int64  // epoch ms, as the following; it is active from then on
	RetiredAt int64  // since it signs no more, 0 while it does
	RevokedAt int64  // 0 unless it is
}

// SigningKeys lists the keys, the newest first.
func (r *Room) SigningKeys(ctx context.Context) (out []SigningKey, err error) {
	rows, err := r.DB.Read().QueryContext(ctx, selectKeys)
	if err != nil {
		return nil, fmt.Errorf("list signing keys: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var k SigningKey
		var reason sql.NullString
		if err := rows.Scan(&k.ID, &k.Status, &reason, &k.CreatedAt, &k.RetiredAt, &k.RevokedAt); err != nil {
			return nil, fmt.Errorf("list signing keys: %w", err)
		}
		k.Reason = reason.String
		out = append(out, k)
	}
	return out, rows.Err()
}

// RotateSigningKey makes a new key, which signs from now on. What the previous ones signed is believed as before. by is
// who does so; the rest of the entry is filled in. Errors: ErrNotConfigured, ErrRaced.
func (r *Room) RotateSigningKey(ctx context.Context, by auth.Entry) (SigningKey, error) {
	if !r.Enabled() {
		return SigningKey{}, ErrNotConfigured
	}
	_, k, err := r.activate(ctx, by, true)
	return k, err
}

// RevokeSigningKey takes a key back for good, with all that it signed. Where it was the active one, the next token makes a
// new one. A key that is revoked already stays as it is, and revoked is false. Error: ErrUnknownKey.
func (r *Room) RevokeSigningKey(ctx context.Context, id, reason string, by auth.Entry) (revoked bool, err error) {
	by.Action, by.TargetType, by.TargetID, by.Meta = "signing_key.revoke", "signing_key", id, map[string]any{"reason": ci.CutText(reason)}
	err = r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		revoked, err = store.Changed(tx.ExecContext(ctx, revokeKey, id, ci.CutText(reason), r.Clock.Millis()))
		if err != nil {
			return fmt.Errorf("revoke signing key %s: %w", id, err)
		}
		if revoked {
			return r.Access.Record(ctx, tx, by)
		}
		var n int
		if err := tx.QueryRowContext(ctx, countKey, id).Scan(&n); err != nil {
			return fmt.Errorf("revoke signing key %s: %w", id, err)
		}
		if n == 0 {
			return ErrUnknownKey
		}
		return nil
	})
	return revoked, err
}

// system is who makes the first key.
var system = auth.Entry{ActorType: auth.ActorSystem, ActorID: "provenance", Source: auth.ActorSystem}

// activate makes a key the active one, in the place of another where replace says so. Of several nodes that do so at once
// one succeeds.
func (r *Room) activate(ctx context.Context, by auth.Entry, replace bool) (attest.Key, SigningKey, error) {
	key, err := attest.NewKey()
	if err != nil {
		return key, SigningKey{}, err
	}
	public, publicErr := key.PublicJWK()
	private, privateErr := key.PrivateJWK()
	if err := errors.Join(publicErr, privateErr); err != nil {
		return key, SigningKey{}, fmt.Errorf("encode signing key: %w", err)
	}
	envelope, version, err := r.Keys.Seal(private, keyPlace)
	if err != nil {
		return key, SigningKey{}, fmt.Errorf("seal signing key: %w", err)
	}
	now := r.Clock.Millis()
	by.Action, by.TargetType, by.TargetID = "signing_key.activate", "signing_key", key.ID()
	err = r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if replace {
			if err := retire(ctx, tx, now); err != nil {
				return err
			}
		}
		kept, err := store.Changed(tx.ExecContext(ctx, insertKey, key.ID(), string(public), envelope, version, now))
		if err == nil && !kept {
			err = ErrRaced
		}
		if err != nil {
			return err
		}
		return r.Access.Record(ctx, tx, by)
	})
	if err != nil {
		return key, SigningKey{}, fmt.Errorf("activate signing key: %w", err)
	}
	r.Log.Info("signing key activated", "kid", key.ID())
	return key, SigningKey{ID: key.ID(), Status: Active, CreatedAt: now}, nil
}

// retire makes room for a new active key.
func retire(ctx context.Context, tx *store.Tx, now int64) error {
	if err := tx.Do(ctx, retireEarlier); err != nil {
		return err
	}
	return tx.Do(ctx, retireActive, now)
}

// Check opens the active key, if there is one, so that the log of a start says when it cannot be opened.
func (r *Room) Check(ctx context.Context) {
	if !r.Enabled() {
		return
	}
	if _, _, err := r.active(ctx); err != nil && !r.sealed.Load() {
		r.Log.Warn("the signing key could not be looked for", "err", err)
	}
}

// signer gives the active key, which it makes when there is none: before the first token, and after a revocation.
func (r *Room) signer(ctx context.Context) (attest.Key, error) {
	for range 2 {
		key, ok, err := r.active(ctx)
		if err != nil || ok {
			return key, err
		}
		key, _, err = r.activate(ctx, system, false)
		if !errors.Is(err, ErrRaced) {
			return key, err
		}
	}
	return attest.Key{}, ErrRaced
}

// active opens the active key, or ok=false when there is none. One that only the previous master key opens is sealed anew.
func (r *Room) active(ctx context.Context) (key attest.Key, ok bool, err error) {
	var id, envelope string
	err = r.DB.Read().QueryRowContext(ctx, selectActive).Scan(&id, &envelope)
	if errors.Is(err, sql.ErrNoRows) {
		r.sealed.Store(false)
		return key, false, nil
	}
	if err != nil {
		return key, false, fmt.Errorf("read signing key: %w", err)
	}
	private, aged, err := r.Keys.OpenAged(envelope, keyPlace)
	if err == nil {
		key, err = attest.ParseKey(private)
	}
	if before := r.sealed.Swap(err != nil); err != nil {
		if !before { // said once, and not for every job
			r.Log.Error("the signing key cannot be opened, no identity tokens are issued until it can or is revoked", "kid", id, "err", err)
		}
		return key, false, fmt.Errorf("open signing key %s: %w", id, err)
	}
	if aged {
		r.sealAnew(ctx, id, envelope, private)
	}
	return key, true, nil
}

// sealAnew moves a key to the present master key. A failure costs nothing as long as the previous one is there.
func (r *Room) sealAnew(ctx context.Context, id, old string, private []byte) {
	envelope, version, err := r.Keys.Seal(private, keyPlace)
	if err == nil {
		err = r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			return tx.Do(ctx, sealedKeys.Update, envelope, version, old, id)
		})
	}
	r.Log.Warn("the signing key was sealed with the previous master key and is sealed with the present one now", "kid", id, "err", err)
}

// keySet is what others verify with.
type keySet struct {
	Keys []attest.PublishedKey `json:"keys"`
}

// published reads the keys that are believed, the newest first. Nothing private ever leaves, whatever a row holds.
func (r *Room) published(ctx context.Context) (set keySet, err error) {
	docs, err := store.Texts(ctx, r.DB.Read(), selectPublished)
	if err != nil {
		return set, fmt.Errorf("read published keys: %w", err)
	}
	set.Keys = []attest.PublishedKey{}
	for _, doc := range docs {
		k, err := attest.Publish([]byte(doc))
		if err != nil {
			return set, fmt.Errorf("read published keys: %w", err)
		}
		set.Keys = append(set.Keys, k)
	}
	return set, nil
}

// keySet is the set as a verifier takes it.
func (r *Room) keySet(ctx context.Context) ([]byte, error) {
	set, err := r.published(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(set)
}

// KeyVersion is the highest version of a master key in the table of signing keys, 0 when it is empty.
func (r *Room) KeyVersion(ctx context.Context) (int64, error) {
	version, err := sealedKeys.Version(ctx, r.DB)
	if err != nil {
		return 0, fmt.Errorf("read key versions of signing keys: %w", err)
	}
	return version, nil
}

// Rotate seals signing keys that are of an earlier version with the current master key.
func (r *Room) Rotate(ctx context.Context, version int64) (secrets.Resealed, error) {
	done, err := sealedKeys.Rotate(ctx, r.DB, r.Keys, version)
	if err != nil {
		return done, fmt.Errorf("rotate signing keys: %w", err)
	}
	return done, nil
}

var sealedKeys = secrets.Sealed{Keys: 1, Latest: `SELECT max(key_version) FROM orchestrator_signing_keys`,
	Page: `SELECT kid, encrypted_private_jwk FROM orchestrator_signing_keys WHERE key_version < $1 AND kid > $3 ORDER BY kid LIMIT $2`,
	Update: `UPDATE orchestrator_signing_keys SET encrypted_private_jwk = $1, key_version = $2
		WHERE encrypted_private_jwk = $3 AND kid = $4`,
	Place: func([]string) string { return keyPlace }}

const (
	selectKeys = `SELECT kid, status, revocation_reason, activated_at, coalesce(retired_at, 0), coalesce(revoked_at, 0)
		FROM orchestrator_signing_keys ORDER BY activated_at DESC, kid`
	selectActive    = `SELECT kid, encrypted_private_jwk FROM orchestrator_signing_keys WHERE status = 'active'`
	selectPublished = `SELECT public_jwk FROM orchestrator_signing_keys WHERE status <> 'revoked' ORDER BY activated_at DESC, kid`
	countKey        = `SELECT count(*) FROM orchestrator_signing_keys WHERE kid = $1`
	retireEarlier   = `UPDATE orchestrator_signing_keys SET status = 'retired' WHERE status = 'retiring'`
	retireActive    = `UPDATE orchestrator_signing_keys SET status = 'retiring', retired_at = $1 WHERE status = 'active'`
	revokeKey       = `UPDATE orchestrator_signing_keys SET status = 'revoked', revocation_reason = $2, revoked_at = $3,
		retired_at = coalesce(retired_at, $3) WHERE kid = $1 AND status <> 'revoked'`
	insertKey = `INSERT INTO orchestrator_signing_keys (kid, public_jwk, encrypted_private_jwk, key_version, status, created_at, activated_at)
		VALUES ($1, $2, $3, $4, 'active', $5, $5) ON CONFLICT DO NOTHING`
)
