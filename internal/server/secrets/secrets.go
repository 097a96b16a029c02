// Package secrets keeps secret values by organisation, scope and key, sealed under the master key, and resolves them for
// jobs. No function but those of resolution gives a value, and no error, log or audit row holds one.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"kici/internal/core/ci"
	"kici/internal/kit/seal"
	"kici/internal/kit/service"
	"kici/internal/server/store"
)

// Limits of one secret.
const (
	MaxValue = 64 << 10 // bytes
	maxName  = 255      // characters of a scope or key

	// maxSecrets bounds those of one organisation: a job that binds a context looks at where all of them lie.
	maxSecrets = 10_000
)

// SystemOrg holds the server's own credentials; jobs never see it.
const SystemOrg = "__system__"

// DefaultScope is the scope of which every job of an organisation gets the secrets.
const DefaultScope = "default"

// sentinel is the key that keeps an empty scope alive. It is neither listed nor resolved.
const sentinel = "__empty__"

// backendHead is the only backend there is: the server's database. A scope may name it.
const backendHead = "pg:"

// Errors. The texts of ErrInvalid and ErrReserved name the rule and never a value.
var (
	ErrNotConfigured = errors.New("secret store not configured: the server has no master key")
	ErrInvalid       = errors.New("invalid secret")
	ErrReserved      = errors.New("reserved namespace")
	ErrNotFound      = errors.New("scope not found")
	ErrExists        = errors.New("scope already exists")
)

// Store owns the tables of secrets and of their audit log.
type Store struct {
	db       *store.DB
	keys     *seal.Keyring
	clock    service.Clock
	bindings Bindings // nil: nothing selects scopes by their names
}

// Bindings select secrets by their scopes.
type Bindings interface {
	// MoveScopeTx has the bindings that name exactly this scope name another, or where that is "" removes them.
	MoveScopeTx(ctx context.Context, tx *store.Tx, org, from, to string) error
}

// Follow has bindings follow their scopes from now on. It is called before the store is used.
func (s *Store) Follow(b Bindings) { s.bindings = b }

func (s *Store) moveBindings(ctx context.Context, tx *store.Tx, org, from, to string) error {
	if s.bindings == nil {
		return nil
	}
	return s.bindings.MoveScopeTx(ctx, tx, org, from, to)
}

// New makes the store. Without a keyring every call that needs one fails with ErrNotConfigured.
func New(db *store.DB, keys *seal.Keyring, clock service.Clock) *Store {
	return &Store{db: db, keys: keys, clock: clock}
}

// Actor is who asks for a change, for the audit log.
type Actor struct {
	UserID     string // admin token's id, or "system"
	Role       string
	RoutingKey string
}

// Set stores a value, any UTF-8 text of at most MaxValue bytes, the empty one too.
func (s *Store) Set(ctx context.Context, by Actor, org, scope, key, value string) error {
	return s.set(ctx, by, org, scope, key, value, checkScope)
}

// SetInternal stores a value in a scope of the server's own, such as __source__/<id>.
func (s *Store) SetInternal(ctx context.Context, by Actor, org, scope, key, value string) error {
	return s.set(ctx, by, org, scope, key, value, checkInternalScope)
}

func (s *Store) set(ctx context.Context, by Actor, org, scope, key, value string, check func(string) error) error {
	scope = strings.TrimPrefix(scope, backendHead)
	if err := errors.Join(checkOrg(org), check(scope), checkKey(key), checkValue(value)); err != nil {
		return fmt.Errorf("set secret: %w", err)
	}
	return s.change(ctx, by, "setSecret", scope, []string{key}, func(ctx context.Context, tx *store.Tx) error {
		if err := roomFor(ctx, tx, org, scope, key); err != nil {
			return err
		}
		return s.put(ctx, tx, upsertSecret, org, scope, key, value)
	})
}

// roomFor refuses a secret of an organisation that has enough others.
func roomFor(ctx context.Context, tx *store.Tx, org, scope, key string) error {
	var others int
	if err := tx.QueryRowContext(ctx, countSecrets, org, scope, key).Scan(&others); err != nil {
		return err
	}
	if others >= maxSecrets {
		return fmt.Errorf("%w: an organisation has at most %d secrets; delete one first", ErrInvalid, maxSecrets)
	}
	return nil
}

// Delete removes a value. It is no error when there is none.
func (s *Store) Delete(ctx context.Context, by Actor, org, scope, key string) error {
	scope = strings.TrimPrefix(scope, backendHead)
	if err := errors.Join(checkOrg(org), checkScope(scope), checkKey(key)); err != nil {
		return fmt.Errorf("delete secret: %w", err)
	}
	return s.change(ctx, by, "deleteSecret", scope, []string{key}, func(ctx context.Context, tx *store.Tx) error {
		return tx.Do(ctx, deleteSecret, org, scope, key)
	})
}

// CreateScope makes a scope that holds nothing yet. It is no error when it exists.
func (s *Store) CreateScope(ctx context.Context, by Actor, org, scope string) error {
	scope = strings.TrimPrefix(scope, backendHead)
	if err := errors.Join(checkOrg(org), checkScope(scope)); err != nil {
		return fmt.Errorf("create scope: %w", err)
	}
	return s.change(ctx, by, "createScope", scope, nil, func(ctx context.Context, tx *store.Tx) error {
		if err := roomFor(ctx, tx, org, scope, sentinel); err != nil {
			return err
		}
		return s.put(ctx, tx, insertSentinel, org, scope, sentinel, "")
	})
}

// DeleteScope removes a scope, all its secrets, and the bindings that name exactly it. It is no error when there is none.
func (s *Store) DeleteScope(ctx context.Context, by Actor, org, scope string) error {
	scope = strings.TrimPrefix(scope, backendHead)
	if err := errors.Join(checkOrg(org), checkScope(scope)); err != nil {
		return fmt.Errorf("delete scope: %w", err)
	}
	return s.change(ctx, by, "deleteScope", scope, nil, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Do(ctx, deleteScope, org, scope); err != nil {
			return err
		}
		return s.moveBindings(ctx, tx, org, scope, "")
	})
}

// RenameScope moves all secrets of a scope to a name that is not taken: ErrNotFound when the scope has no rows, ErrExists
// when the new one has some. Each value is sealed again, since it is bound to its place. Bindings that name exactly the scope
// go with it.
func (s *Store) RenameScope(ctx context.Context, by Actor, org, from, to string) error {
	from, to = strings.TrimPrefix(from, backendHead), strings.TrimPrefix(to, backendHead)
	if err := errors.Join(checkOrg(org), checkScope(from), checkScope(to)); err != nil {
		return fmt.Errorf("rename scope: %w", err)
	}
	return s.change(ctx, by, "renameScope", from, nil, func(ctx context.Context, tx *store.Tx) error {
		rows, err := readScope(ctx, tx, org, from, tx.ForUpdate())
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return ErrNotFound
		}
		taken, err := readScope(ctx, tx, org, to, "")
		if err != nil {
			return err
		}
		if len(taken) > 0 {
			return ErrExists
		}
		for _, r := range rows {
			if err := s.move(ctx, tx, org, from, to, r); err != nil {
				return err
			}
		}
		return s.moveBindings(ctx, tx, org, from, to)
	})
}

func (s *Store) move(ctx context.Context, tx *store.Tx, org, from, to string, r row) error {
	value, err := s.keys.Open(r.envelope, place(org, from, r.key))
	if err != nil {
		return err
	}
	envelope, version, err := s.keys.Seal(value, place(org, to, r.key))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, moveSecret, org, from, r.key, to, envelope, version, s.clock.Millis())
	if store.IsUnique(err) {
		return ErrExists
	}
	return err
}

// change runs a mutation and its audit row in one transaction: a change that nobody could trace does not happen.
func (s *Store) change(ctx context.Context, by Actor, action, scope string, keys []string, fn func(ctx context.Context, tx *store.Tx) error) error {
	if s.keys == nil {
		return ErrNotConfigured
	}
	err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return s.auditTx(ctx, tx, AuditEntry{
			Action: action, Context: scope, Keys: keys, Outcome: outcomeAllowed,
			UserID: by.UserID, Role: by.Role, RoutingKey: by.RoutingKey,
		})
	})
	if err != nil {
		return fmt.Errorf("%s in scope %s: %w", action, scope, err)
	}
	return nil
}

func (s *Store) put(ctx context.Context, tx *store.Tx, statement, org, scope, key, value string) error {
	envelope, version, err := s.keys.Seal([]byte(value), place(org, scope, key))
	if err != nil {
		return err
	}
	return tx.Do(ctx, statement, org, scope, key, envelope, version, s.clock.Millis())
}

// Scopes lists the scopes of an organisation, sorted, without those of the server's own.
func (s *Store) Scopes(ctx context.Context, org string) ([]string, error) {
	scopes, err := s.texts(ctx, selectScopes, org)
	if err != nil {
		return nil, fmt.Errorf("list scopes: %w", err)
	}
	return slices.DeleteFunc(scopes, internal), nil
}

// Keys lists the keys of a scope, sorted.
func (s *Store) Keys(ctx context.Context, org, scope string) ([]string, error) {
	scope = strings.TrimPrefix(scope, backendHead)
	if err := errors.Join(checkOrg(org), checkScope(scope)); err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	keys, err := s.texts(ctx, selectKeys, org, scope, sentinel)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return keys, nil
}

func (s *Store) texts(ctx context.Context, query string, args ...any) ([]string, error) {
	if s.keys == nil {
		return nil, ErrNotConfigured
	}
	rows, err := s.db.Read().QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []string{}
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	slices.Sort(out) // the engines order texts differently
	return out, rows.Err()
}

// place binds an envelope to where it lies. Its parts hold no colon, so no two places read alike.
func place(org, scope, key string) string { return org + ":" + scope + ":" + key }

var (
	segmentPattern  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]+$`) })
	reservedPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^__.*__$`) })
)

// internal tells whether a scope has a segment of the form __name__, or begins like one.
func internal(scope string) bool {
	return strings.HasPrefix(scope, "__") || slices.ContainsFunc(strings.Split(scope, "/"), reservedPattern().MatchString)
}

func checkOrg(org string) error {
	if org == "" || utf8.RuneCountInString(org) > maxName || strings.Contains(org, ":") || org != ci.CleanText(org) {
		return fmt.Errorf("%w: organisation must be a text of 1 to %d characters without \":\"", ErrInvalid, maxName)
	}
	return nil
}

func checkScope(scope string) error {
	if internal(scope) {
		return fmt.Errorf("%w: scopes of the form __name__ belong to the server", ErrReserved)
	}
	return checkInternalScope(scope)
}

func checkInternalScope(scope string) error {
	if scope == "" || len(scope) > maxName {
		return fmt.Errorf("%w: scope must have 1 to %d characters", ErrInvalid, maxName)
	}
	for segment := range strings.SplitSeq(scope, "/") {
		if !segmentPattern().MatchString(segment) || segment == "." || segment == ".." {
			return fmt.Errorf("%w: scope must be segments of A-Z a-z 0-9 . _ - joined by /", ErrInvalid)
		}
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case key == "" || len(key) > maxName || !segmentPattern().MatchString(key):
		return fmt.Errorf("%w: key must be 1 to %d of A-Z a-z 0-9 . _ -", ErrInvalid, maxName)
	case key == sentinel:
		return fmt.Errorf("%w: key %s belongs to the server", ErrReserved, sentinel)
	}
	return nil
}

func checkValue(value string) error {
	if len(value) > MaxValue {
		return fmt.Errorf("%w: value has more than %d bytes", ErrInvalid, MaxValue)
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("%w: value is not UTF-8 text", ErrInvalid)
	}
	return nil
}

// row is one sealed secret.
type row struct {
	key      string
	envelope string
}

// readScope reads all rows of a scope, the sentinel too, in the order of their keys.
func readScope(ctx context.Context, q store.Querier, org, scope, lock string) (out []row, err error) {
	err = q.All(ctx, askScope(org, scope, lock, &out))
	return out, err
}

// askScope is readScope among other questions.
func askScope(org, scope, lock string, into *[]row) store.Ask {
	return store.Ask{Query: selectScope + lock, Args: []any{org, scope}, Row: func(r store.Row) error {
		var one row
		err := r.Scan(&one.key, &one.envelope)
		*into = append(*into, one)
		return err
	}}
}

const (
	upsertSecret = `INSERT INTO scoped_secrets (org_id, scope, key, encrypted_value, key_version, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $6)
		ON CONFLICT (org_id, scope, key) DO UPDATE SET encrypted_value = $4, key_version = $5, updated_at = $6`
	insertSentinel = `INSERT INTO scoped_secrets (org_id, scope, key, encrypted_value, key_version, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (org_id, scope, key) DO NOTHING`
	deleteSecret = `DELETE FROM scoped_secrets WHERE org_id = $1 AND scope = $2 AND key = $3`
	deleteScope  = `DELETE FROM scoped_secrets WHERE org_id = $1 AND scope = $2`
	moveSecret   = `UPDATE scoped_secrets SET scope = $4, encrypted_value = $5, key_version = $6, updated_at = $7
		WHERE org_id = $1 AND scope = $2 AND key = $3`
	selectScopes = `SELECT DISTINCT scope FROM scoped_secrets WHERE org_id = $1 LIMIT 10000`
	countSecrets = `SELECT count(*) FROM scoped_secrets WHERE org_id = $1 AND NOT (scope = $2 AND key = $3)`
	selectKeys   = `SELECT key FROM scoped_secrets WHERE org_id = $1 AND scope = $2 AND key <> $3 LIMIT 10000`
	selectScope  = `SELECT key, encrypted_value FROM scoped_secrets WHERE org_id = $1 AND scope = $2 ORDER BY key`
)
