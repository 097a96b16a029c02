package secrets

import (
	"context"
	"errors"
	"fmt"

	"kici/internal/server/store"
)

// Purge deletes all secrets of an organisation, or with "" of all, and tells how many there were. The server's own scopes stay
// unless their organisation is named.
func (s *Store) Purge(ctx context.Context, by Actor, org string) (deleted int64, err error) {
	if org != "" {
		if err := checkOrg(org); err != nil {
			return 0, fmt.Errorf("purge secrets: %w", err)
		}
	}
	about := org
	if org == "" {
		about = "*"
	}
	err = s.change(ctx, by, "purgeSecrets", about, nil, func(ctx context.Context, tx *store.Tx) error {
		deleted, err = purge(ctx, tx, org)
		return err
	})
	return deleted, err
}

// purge goes by scopes: which of them are the server's own no statement can tell.
func purge(ctx context.Context, tx *store.Tx, org string) (deleted int64, err error) {
	scopes, err := scopesOf(ctx, tx, org)
	if err != nil {
		return 0, err
	}
	for _, one := range scopes {
		if org != SystemOrg && (one.org == SystemOrg || internal(one.scope)) {
			continue
		}
		n, err := purgeScope(ctx, tx, one)
		if err != nil {
			return 0, err
		}
		deleted += n
	}
	return deleted, nil
}

// orgScope is a scope of an organisation.
type orgScope struct{ org, scope string }

func scopesOf(ctx context.Context, tx *store.Tx, org string) (scopes []orgScope, err error) {
	rows, err := tx.QueryContext(ctx, selectOrgScopes, org)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one orgScope
		if err := rows.Scan(&one.org, &one.scope); err != nil {
			return nil, err
		}
		scopes = append(scopes, one)
	}
	return scopes, rows.Err()
}

// purgeScope counts secrets alone, not what keeps an empty scope alive.
func purgeScope(ctx context.Context, tx *store.Tx, one orgScope) (deleted int64, err error) {
	res, err := tx.ExecContext(ctx, purgeSecrets, one.org, one.scope, sentinel)
	if err != nil {
		return 0, err
	}
	deleted, errCount := res.RowsAffected()
	err = tx.Do(ctx, deleteScope, one.org, one.scope)
	return deleted, errors.Join(err, errCount)
}

const (
	selectOrgScopes = `SELECT DISTINCT org_id, scope FROM scoped_secrets WHERE $1 = '' OR org_id = $1`
	purgeSecrets    = `DELETE FROM scoped_secrets WHERE org_id = $1 AND scope = $2 AND key <> $3`
)
