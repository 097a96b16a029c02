package forge

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"kici/internal/kit/service"
	"kici/internal/server/store"
)

// Sealer encrypts what verifies a source's deliveries. The text aad binds an envelope to its row.
type Sealer interface {
	Seal(plaintext []byte, aad string) (envelope string, version int64, err error)
	Open(envelope, aad string) ([]byte, error)
	Reseal(envelope, aad string) (string, error)
}

// Sources is the table of sources. Every read but Known goes to the database, and what Known gives is looked at again in the
// transaction that takes a delivery in, so a change is in force with the next delivery on every node.
type Sources struct {
	db    *store.DB
	seal  Sealer
	clock service.Clock
	known known
}

// NewSources gives access to the table.
func NewSources(db *store.DB, seal Sealer, clock service.Clock) *Sources {
	return &Sources{db: db, seal: seal, clock: clock, known: newKnown()}
}

// maxOrg bounds the name of an organisation, in bytes: indexes take it together with other names.
const maxOrg = 512

// Create adds a source to an organisation. Errors: InvalidError, ErrNameTaken.
func (s *Sources) Create(ctx context.Context, orgID string, settings Settings) (Source, error) {
	src := Source{ID: uuid.NewString(), OrgID: orgID, CreatedAt: s.clock.Millis()}
	src.RoutingKey = "generic:" + orgID + ":" + src.ID
	if orgID == "" || len(orgID) > maxOrg || strings.ContainsAny(orgID, ":/") || !plainText(orgID) {
		return Source{}, InvalidError{{"orgId", "must be a text without : and /"}}
	}
	version, err := s.fill(&src, settings, true)
	if err != nil {
		return Source{}, err
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Do(ctx, insertSource, append([]any{src.ID, src.OrgID, src.RoutingKey, src.CreatedAt}, src.columns(version)...)...)
	})
	if store.IsUnique(err) {
		return Source{}, fmt.Errorf("create source %q: %w", src.Name, ErrNameTaken)
	}
	if err != nil {
		return Source{}, fmt.Errorf("create source: %w", err)
	}
	return src, nil
}

// Update changes a source in one transaction: change gets the present settings and alters them. A verification that
// change leaves alone stays as it is stored, even when it cannot be read. Errors: ErrUnknownSource (also for a deleted
// source), InvalidError, ErrNameTaken, and whatever change returns.
func (s *Sources) Update(ctx context.Context, id string, change func(*Settings) error) (Source, error) {
	var src Source
	err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		var version int64
		var err error
		row := tx.QueryRowContext(ctx, selectSource+" WHERE id = $1 AND deleted_at IS NULL"+tx.ForUpdate(), id)
		src, version, err = scanSource(row, texts.decode) // its own copy, which change may alter
		if err != nil {
			return err
		}
		stored, err := s.Verification(src)
		if err != nil {
			stored = Verification{Method: src.Method} // a lost key: a new secret may replace the unreadable one
		}
		settings := Settings{Options: src.Options, Verification: stored}
		if err := change(&settings); err != nil {
			return err
		}
		settings.Verification.keepMasked(stored)
		reseal := !reflect.DeepEqual(settings.Verification, stored)
		if newVersion, err := s.fill(&src, settings, reseal); err != nil {
			return err
		} else if reseal {
			version = newVersion
		}
		return tx.Do(ctx, updateSource, append([]any{src.ID}, src.columns(version)...)...)
	})
	if store.IsUnique(err) {
		err = ErrNameTaken
	}
	if err != nil {
		return Source{}, fmt.Errorf("update source %s: %w", id, err)
	}
	return src, nil
}

// fill checks the settings and puts them into the row; reseal says whether the verification is among them.
func (s *Sources) fill(src *Source, settings Settings, reseal bool) (version int64, err error) {
	var problems InvalidError
	settings.Options.normalise()
	settings.Options.check(&problems)
	v := settings.Verification
	if reseal {
		if v.Secret == masked || v.Next == masked {
			problems.add("verificationConfig", "holds %s where a secret belongs, and there is no stored secret to keep", masked)
		}
		config, err := json.Marshal(v.config())
		if err != nil {
			return 0, fmt.Errorf("encode verification: %w", err)
		}
		v = parseVerification(v.Method, config, &problems)
	}
	if problems != nil {
		return 0, problems
	}
	src.Options, src.UpdatedAt, src.Provider = settings.Options, max(s.clock.Millis(), src.UpdatedAt+1), Generic
	if src.Local != nil {
		src.Provider = Local
	}
	if !reseal {
		return 0, nil
	}
	plain, err := json.Marshal(v.config())
	if err != nil {
		return 0, fmt.Errorf("encode verification: %w", err)
	}
	src.Method = v.Method
	if src.sealed, version, err = s.seal.Seal(plain, sealAAD(src.ID)); err != nil {
		return 0, fmt.Errorf("seal verification: %w", err)
	}
	return version, nil
}

// Verification opens what verifies a source's deliveries. An error means that it cannot be read: a lost key, a damaged
// row.
func (s *Sources) Verification(src Source) (Verification, error) {
	key := sealed{src.ID, src.Method, src.sealed}
	if v, ok := s.known.verifications.Get(key); ok {
		return v, nil
	}
	plain, err := s.seal.Open(src.sealed, sealAAD(src.ID))
	if err != nil {
		return Verification{}, fmt.Errorf("open verification of source %s: %w", src.ID, err)
	}
	v, err := ParseVerification(src.Method, plain)
	if err == nil {
		s.known.verifications.Add(key, v)
	}
	return v, err
}

func sealAAD(id string) string { return "source:" + id }

// Get returns the source of that id, also a deleted one. Error: ErrUnknownSource.
func (s *Sources) Get(ctx context.Context, id string) (Source, error) {
	src, _, err := scanSource(s.db.Read().QueryRowContext(ctx, selectSource+" WHERE id = $1", id), s.known.decode)
	if err != nil {
		return Source{}, fmt.Errorf("source %s: %w", id, err)
	}
	return src, nil
}

// ByRoutingKey returns the source with that routing key that is not deleted. Error: ErrUnknownSource.
func (s *Sources) ByRoutingKey(ctx context.Context, key string) (Source, error) {
	src, _, err := scanSource(s.db.Read().QueryRowContext(ctx, selectSource+" WHERE routing_key = $1 AND deleted_at IS NULL", key), s.known.decode)
	if err != nil {
		return Source{}, fmt.Errorf("source of routing key %q: %w", key, err)
	}
	return src, nil
}

// ByName returns the organisation's source of that name that is not deleted. Error: ErrUnknownSource.
func (s *Sources) ByName(ctx context.Context, orgID, name string) (Source, error) {
	src, _, err := scanSource(s.db.Read().QueryRowContext(ctx, selectSource+" WHERE org_id = $1 AND name = $2 AND deleted_at IS NULL", orgID, name), s.known.decode)
	if err != nil {
		return Source{}, fmt.Errorf("source %q of %q: %w", name, orgID, err)
	}
	s.known.named.Add(nameOf{orgID, name}, src)
	return src, nil
}

// Known is what ByName last gave here. The source may have changed since: whoever acts on it makes Unchanged a condition of
// the statement that does so, or asks Holds.
func (s *Sources) Known(orgID, name string) (src Source, ok bool) {
	return s.known.named.Get(nameOf{orgID, name})
}

// Holds tells whether a source is as it was read.
func (s *Sources) Holds(ctx context.Context, src Source) (bool, error) {
	return Holds(ctx, s.db.Read(), src)
}

// Holds is the same within a transaction.
func Holds(ctx context.Context, q store.Querier, src Source) (holds bool, err error) {
	if err := q.QueryRowContext(ctx, "SELECT "+Unchanged(1), src.ID, src.UpdatedAt).Scan(&holds); err != nil {
		return false, fmt.Errorf("look whether source %s has changed: %w", src.ID, err)
	}
	return holds, nil
}

// Unchanged is a condition for SQL: the source whose ID is the n-th parameter, and its UpdatedAt the next, is as it was read.
// Whatever changes a source makes its UpdatedAt larger, also in the millisecond of another change.
func Unchanged(n int) string {
	return fmt.Sprintf("EXISTS (SELECT 1 FROM sources WHERE id = $%d AND updated_at = $%d)", n, n+1)
}

// List returns an organisation's sources by name, with the deleted ones where asked for.
func (s *Sources) List(ctx context.Context, orgID string, deleted bool) ([]Source, error) {
	rows, err := s.db.Read().QueryContext(ctx, selectSource+" WHERE org_id = $1 AND (deleted_at IS NULL OR $2) ORDER BY name, created_at, id", orgID, deleted)
	if err != nil {
		return nil, fmt.Errorf("list sources: %w", err)
	}
	defer rows.Close()
	var out []Source
	for rows.Next() {
		src, _, err := scanSource(rows, texts.decode)
		if err != nil {
			return nil, fmt.Errorf("list sources: %w", err)
		}
		out = append(out, src)
	}
	return out, rows.Err()
}

// SetEnabled turns a source on or off. Error: ErrUnknownSource.
func (s *Sources) SetEnabled(ctx context.Context, id string, enabled bool) error {
	return s.exec(ctx, "enable source", id, "UPDATE sources SET enabled = $2, updated_at = "+laterThan("$3")+" WHERE id = $1 AND deleted_at IS NULL",
		id, enabled, s.clock.Millis())
}

// Delete hides a source: its name is free again and its deliveries are refused, while runs may still name it.
// Error: ErrUnknownSource.
func (s *Sources) Delete(ctx context.Context, id string) error {
	return s.exec(ctx, "delete source", id, "UPDATE sources SET deleted_at = $2, updated_at = "+laterThan("$2")+" WHERE id = $1 AND deleted_at IS NULL",
		id, s.clock.Millis())
}

// DeleteHard removes the row, also of a source that was deleted before. Error: ErrUnknownSource.
func (s *Sources) DeleteHard(ctx context.Context, id string) error {
	return s.exec(ctx, "remove source", id, "DELETE FROM sources WHERE id = $1", id)
}

// laterThan is the time of a change: see Unchanged.
func laterThan(now string) string {
	return "CASE WHEN updated_at < " + now + " THEN " + now + " ELSE updated_at + 1 END"
}

func (s *Sources) exec(ctx context.Context, what, id, statement string, args ...any) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		changed, err := store.Changed(tx.ExecContext(ctx, statement, args...))
		if err == nil && !changed {
			return ErrUnknownSource
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	return nil
}

const sourceColumns = `id, org_id, routing_key, created_at, name, provider_type, verification_method, verification_config,
	key_version, event_type_header, event_type_path, idempotency_key_header, idempotency_key_path, dedup_window_seconds,
	max_payload_bytes, allowed_events, strip_headers, rate_limit_rpm, local_config, enabled, updated_at`

const selectSource = "SELECT " + sourceColumns + ", deleted_at FROM sources"

const insertSource = "INSERT INTO sources (" + sourceColumns + `)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`

const updateSource = `UPDATE sources SET name = $2, provider_type = $3, verification_method = $4,
	verification_config = $5, key_version = $6, event_type_header = $7, event_type_path = $8, idempotency_key_header = $9,
	idempotency_key_path = $10, dedup_window_seconds = $11, max_payload_bytes = $12, allowed_events = $13,
	strip_headers = $14, rate_limit_rpm = $15, local_config = $16, enabled = $17, updated_at = $18 WHERE id = $1`

// columns are the values of the columns that an update changes, in the order of sourceColumns.
func (src *Source) columns(keyVersion int64) []any {
	return []any{src.Name, src.Provider, src.Method, src.sealed, keyVersion, null(src.EventTypeHeader), null(src.EventTypePath),
		null(src.IdempotencyKeyHeader), null(src.IdempotencyKeyPath), int64(src.DedupWindow / time.Second),
		src.MaxPayloadBytes, document(src.AllowedEvents == nil, src.AllowedEvents), document(false, src.StripHeaders),
		src.RateLimitRPM, document(src.Local == nil, src.Local), src.Enabled, src.UpdatedAt}
}

func null(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func document(absent bool, v any) sql.NullString {
	raw, err := json.Marshal(v)
	if absent || err != nil { // lists and structs of texts always marshal
		return sql.NullString{}
	}
	return sql.NullString{String: string(raw), Valid: true}
}

func scanSource(row interface{ Scan(...any) error }, decode func(texts) (documents, error)) (src Source, keyVersion int64, err error) {
	var eventHeader, eventPath, keyHeader, keyPath sql.NullString
	var stored texts
	var window int64
	var deleted sql.NullInt64
	err = row.Scan(&src.ID, &src.OrgID, &src.RoutingKey, &src.CreatedAt, &src.Name, &src.Provider, &src.Method, &src.sealed,
		&keyVersion, &eventHeader, &eventPath, &keyHeader, &keyPath, &window, &src.MaxPayloadBytes, &stored.allowed, &stored.strip,
		&src.RateLimitRPM, &stored.local, &src.Enabled, &src.UpdatedAt, &deleted)
	if errors.Is(err, sql.ErrNoRows) {
		return Source{}, 0, ErrUnknownSource
	}
	if err != nil {
		return Source{}, 0, err
	}
	src.EventTypeHeader, src.EventTypePath = eventHeader.String, eventPath.String
	src.IdempotencyKeyHeader, src.IdempotencyKeyPath = keyHeader.String, keyPath.String
	src.DedupWindow, src.DeletedAt = time.Duration(window)*time.Second, deleted.Int64
	d, err := decode(stored)
	if err != nil {
		return Source{}, 0, fmt.Errorf("source %s: %w", src.ID, err)
	}
	src.StripHeaders, src.AllowedEvents, src.Local = d.strip, d.allowed, d.local
	return src, keyVersion, nil
}
