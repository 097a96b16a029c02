package contexts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	decide "kici/internal/decide/contexts"
	"kici/internal/server/store"
)

// Binding is a stored binding.
type Binding struct {
	decide.Binding
	CreatedAt int64 // epoch ms
}

// Variable is a stored variable.
type Variable struct {
	decide.Variable
	UpdatedAt int64 // epoch ms
}

// Bind lets a context see the secrets of the scopes that a pattern selects. created is false when it does already.
func (s *Store) Bind(ctx context.Context, org, name string, b decide.Binding) (created bool, err error) {
	if b.HostPattern == "" {
		b.HostPattern = "**"
	}
	if err := b.Check(); err != nil {
		return false, fmt.Errorf("bind context %q: %w: %w", name, ErrInvalid, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		c, err := byName(ctx, tx, org, name, tx.ForUpdate())
		if err != nil {
			return err
		}
		if err := within(ctx, tx, maxBindings, "bindings", countBindings, c.ID, b.ScopePattern, b.HostPattern); err != nil {
			return err
		}
		created, err = store.Changed(tx.ExecContext(ctx, insertBinding, id.String(), c.ID, b.ScopePattern, b.HostPattern, s.clock.Millis()))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("bind context %q: %w", name, err)
	}
	return created, nil
}

// Bindings lists the bindings of a context in the order in which they were made.
func (s *Store) Bindings(ctx context.Context, contextID string) ([]Binding, error) {
	rows, err := s.db.Read().QueryContext(ctx, selectBindings, contextID)
	if err != nil {
		return nil, fmt.Errorf("list bindings: %w", err)
	}
	defer rows.Close()
	all := []Binding{}
	for rows.Next() {
		var b Binding
		if err := rows.Scan(&b.ScopePattern, &b.HostPattern, &b.CreatedAt); err != nil {
			return nil, fmt.Errorf("list bindings: %w", err)
		}
		all = append(all, b)
	}
	return all, rows.Err()
}

// MoveScopeTx has the bindings that name exactly a scope, with its backend or without, name another instead, or removes them where
// there is none. One that would come to be twice is one.
func (s *Store) MoveScopeTx(ctx context.Context, tx *store.Tx, org, from, to string) error {
	for _, head := range []string{"", backendHead} {
		if to != "" {
			if err := tx.Do(ctx, moveBindings, org, head+from, head+to); err != nil {
				return fmt.Errorf("move bindings of scope %s: %w", from, err)
			}
		}
		if err := tx.Do(ctx, deleteBindings, org, head+from); err != nil {
			return fmt.Errorf("remove bindings of scope %s: %w", from, err)
		}
	}
	return nil
}

// backendHead is what a binding may begin with: the only backend that there is.
const backendHead = "pg:"

// SetVariable stores a variable of a context. A locked one is not replaced by the overrides of a source.
func (s *Store) SetVariable(ctx context.Context, org, name string, v decide.Variable) error {
	return s.change(ctx, "set variable of", org, name, func(ctx context.Context, tx *store.Tx, id string) error {
		return s.setVariable(ctx, tx, id, v.Key, v.Value, v.Locked)
	})
}

// DeleteVariable removes a variable. It is no error when there is none.
func (s *Store) DeleteVariable(ctx context.Context, org, name, key string) error {
	return s.change(ctx, "delete variable of", org, name, func(ctx context.Context, tx *store.Tx, id string) error {
		return tx.Do(ctx, deleteVariable, id, key)
	})
}

// Bounds of what belongs to one context. A job that binds it reads all of it.
const (
	maxBindings  = 1000
	maxVariables = 1000
	maxOverrides = 10_000
)

// within refuses one more when there are enough without it, which the query counts.
func within(ctx context.Context, tx *store.Tx, most int, what, query string, args ...any) error {
	var others int
	if err := tx.QueryRowContext(ctx, query, args...).Scan(&others); err != nil {
		return err
	}
	if others >= most {
		return fmt.Errorf("%w: a context has at most %d %s; delete one first", ErrInvalid, most, what)
	}
	return nil
}

// maxRoutingKey bounds a routing key, which an index must take together with a variable's.
const maxRoutingKey = 1024

// Override gives a variable another value for the runs of one source, or adds one for them.
func (s *Store) Override(ctx context.Context, org, name string, o decide.Override) error {
	return s.change(ctx, "override variable of", org, name, func(ctx context.Context, tx *store.Tx, id string) error {
		if err := decide.CheckVariable(o.Key, o.Value); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if len(o.RoutingKey) > maxRoutingKey || o.RoutingKey != ci.CleanText(o.RoutingKey) {
			return fmt.Errorf("%w: routingKey must have at most %d bytes", ErrInvalid, maxRoutingKey)
		}
		if err := within(ctx, tx, maxOverrides, "values for sources", countOverrides, id, o.RoutingKey, o.Key); err != nil {
			return err
		}
		return tx.Do(ctx, upsertOverride, id, o.RoutingKey, o.Key, o.Value, s.clock.Millis())
	})
}

// DeleteOverride removes the value for a source. It is no error when there is none.
func (s *Store) DeleteOverride(ctx context.Context, org, name, routingKey, key string) error {
	return s.change(ctx, "delete override of", org, name, func(ctx context.Context, tx *store.Tx, id string) error {
		return tx.Do(ctx, deleteOverride, id, routingKey, key)
	})
}

// change runs a change of what belongs to a context, which stays while it does.
func (s *Store) change(ctx context.Context, what, org, name string, do func(ctx context.Context, tx *store.Tx, id string) error) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		c, err := byName(ctx, tx, org, name, tx.ForUpdate())
		if err != nil {
			return err
		}
		return do(ctx, tx, c.ID)
	})
	if err != nil {
		return fmt.Errorf("%s context %q: %w", what, name, err)
	}
	return nil
}

func (s *Store) setVariable(ctx context.Context, tx *store.Tx, id, key, value string, locked bool) error {
	if err := decide.CheckVariable(key, value); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := within(ctx, tx, maxVariables, "variables", countVariables, id, key); err != nil {
		return err
	}
	return tx.Do(ctx, upsertVariable, id, key, value, locked, s.clock.Millis())
}

// Variables lists the variables of a context by key.
func (s *Store) Variables(ctx context.Context, contextID string) ([]Variable, error) {
	rows, err := s.db.Read().QueryContext(ctx, selectVariables, contextID)
	if err != nil {
		return nil, fmt.Errorf("list variables: %w", err)
	}
	defer rows.Close()
	all := []Variable{}
	for rows.Next() {
		var v Variable
		if err := rows.Scan(&v.Key, &v.Value, &v.Locked, &v.UpdatedAt); err != nil {
			return nil, fmt.Errorf("list variables: %w", err)
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b Variable) int { return strings.Compare(a.Key, b.Key) }) // the engines order texts differently
	return all, rows.Err()
}

// Overrides lists the values for sources of a context, by routing key and key.
func (s *Store) Overrides(ctx context.Context, contextID string) ([]decide.Override, error) {
	rows, err := s.db.Read().QueryContext(ctx, selectOverrides, contextID)
	if err != nil {
		return nil, fmt.Errorf("list overrides: %w", err)
	}
	defer rows.Close()
	all := []decide.Override{}
	for rows.Next() {
		var o decide.Override
		if err := rows.Scan(&o.RoutingKey, &o.Key, &o.Value); err != nil {
			return nil, fmt.Errorf("list overrides: %w", err)
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b decide.Override) int {
		return cmp.Or(strings.Compare(a.RoutingKey, b.RoutingKey), strings.Compare(a.Key, b.Key))
	})
	return all, rows.Err()
}

const (
	insertBinding = `INSERT INTO context_bindings (id, context_id, scope_pattern, host_pattern, created_at)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (context_id, scope_pattern, host_pattern) DO NOTHING`
	selectBindings = `SELECT scope_pattern, host_pattern, created_at FROM context_bindings WHERE context_id = $1
		ORDER BY created_at, id`
	countBindings  = `SELECT count(*) FROM context_bindings WHERE context_id = $1 AND NOT (scope_pattern = $2 AND host_pattern = $3)`
	countVariables = `SELECT count(*) FROM context_variables WHERE context_id = $1 AND key <> $2`
	countOverrides = `SELECT count(*) FROM context_source_overrides WHERE context_id = $1 AND NOT (routing_key = $2 AND key = $3)`
	moveBindings   = `UPDATE context_bindings SET scope_pattern = $3
		WHERE scope_pattern = $2 AND context_id IN (SELECT id FROM contexts WHERE org_id = $1) AND NOT EXISTS (SELECT 1
		FROM context_bindings b WHERE b.context_id = context_bindings.context_id AND b.scope_pattern = $3 AND b.host_pattern = context_bindings.host_pattern)`
	deleteBindings = `DELETE FROM context_bindings WHERE scope_pattern = $2 AND context_id IN (SELECT id FROM contexts WHERE org_id = $1)`
	upsertVariable = `INSERT INTO context_variables (context_id, key, value, locked, updated_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (context_id, key) DO UPDATE SET value = $3, locked = $4, updated_at = $5`
	deleteVariable  = `DELETE FROM context_variables WHERE context_id = $1 AND key = $2`
	selectVariables = `SELECT key, value, locked, updated_at FROM context_variables WHERE context_id = $1`
	upsertOverride  = `INSERT INTO context_source_overrides (context_id, routing_key, key, value, updated_at)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (context_id, routing_key, key) DO UPDATE SET value = $4, updated_at = $5`
	deleteOverride  = `DELETE FROM context_source_overrides WHERE context_id = $1 AND routing_key = $2 AND key = $3`
	selectOverrides = `SELECT routing_key, key, value FROM context_source_overrides WHERE context_id = $1`
)
