package cache

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"unicode/utf8"

	"kici/internal/server/store"
)

// entry is a row of cache_entries.
type entry struct {
	id         string
	org        string
	key        string
	path       string
	size       int64
	hash       string
	jobID      string
	createdAt  int64
	accessedAt int64
}

func scanEntry(row interface{ Scan(...any) error }) (e entry, err error) {
	return e, row.Scan(&e.id, &e.org, &e.key, &e.path, &e.size, &e.hash, &e.jobID, &e.createdAt, &e.accessedAt)
}

// wish is what somebody looks for: an entry with exactly this key, or the newest one that begins so.
type wish struct {
	text   string
	prefix bool
}

// find reads the entry that fulfils a wish in one space and was used after a time.
func find(ctx context.Context, q store.Querier, s space, w wish, after int64) (e entry, ok bool, err error) {
	if w.prefix {
		return one(q.QueryRowContext(ctx, selectPrefix, s.kind, s.org, s.repo, s.run, utf8.RuneCountInString(w.text), w.text, after))
	}
	return one(q.QueryRowContext(ctx, selectEntry, s.kind, s.org, s.repo, s.run, w.text, after))
}

func one(row store.Row) (e entry, ok bool, err error) {
	e, err = scanEntry(row)
	if errors.Is(err, sql.ErrNoRows) {
		return e, false, nil
	}
	if err != nil {
		return e, false, fmt.Errorf("look for cache entry: %w", err)
	}
	return e, true, nil
}

// eachEntry reads entries until visit wants no more.
func eachEntry(ctx context.Context, q store.Querier, visit func(entry) (more bool), query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("list cache entries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		e, err := scanEntry(rows)
		if err != nil {
			return fmt.Errorf("list cache entries: %w", err)
		}
		if !visit(e) {
			return nil
		}
	}
	return rows.Err()
}

// entries reads all entries of a query, which must be bounded.
func entries(ctx context.Context, q store.Querier, query string, args ...any) (out []entry, err error) {
	err = eachEntry(ctx, q, func(e entry) bool {
		out = append(out, e)
		return true
	}, query, args...)
	return out, err
}

// use notes that an entry was used, and reports whether it is still there.
func (c *Cache) use(ctx context.Context, id string) (used bool, err error) {
	err = c.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		used, err = store.Changed(tx.ExecContext(ctx, "UPDATE cache_entries SET accessed_at = $2 WHERE id = $1", id, c.Clock.Millis()))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("note the use of cache entry %s: %w", id, err)
	}
	return used, nil
}

// remove takes an entry away. Its blob goes once nobody can be reading it by a link any more.
func (c *Cache) remove(ctx context.Context, tx *store.Tx, e entry) error {
	if err := tx.Do(ctx, "DELETE FROM cache_entries WHERE id = $1", e.id); err != nil {
		return fmt.Errorf("remove cache entry %s: %w", e.id, err)
	}
	return c.discard(ctx, tx, e.path, c.Clock.Millis()+readGrace.Milliseconds())
}

// discard has the sweep remove a blob once the time has come.
func (c *Cache) discard(ctx context.Context, tx *store.Tx, path string, due int64) error {
	if err := tx.Do(ctx, insertDiscard, path, due); err != nil {
		return fmt.Errorf("discard blob %s: %w", path, err)
	}
	return nil
}

// lockOrg lets one transaction at a time count what an organisation keeps.
func lockOrg(ctx context.Context, tx *store.Tx, org string) error {
	if err := tx.Do(ctx, "INSERT INTO cache_orgs (org_id) VALUES ($1) ON CONFLICT (org_id) DO NOTHING", org); err != nil {
		return fmt.Errorf("lock cache of %s: %w", org, err)
	}
	err := tx.QueryRowContext(ctx, "SELECT org_id FROM cache_orgs WHERE org_id = $1"+tx.ForUpdate(), org).Scan(&org)
	if err != nil {
		return fmt.Errorf("lock cache of %s: %w", org, err)
	}
	return nil
}

const entryColumns = `id, org_id, key, path, size_bytes, hash, job_id, created_at, accessed_at`

const selectEntry = `SELECT ` + entryColumns + ` FROM cache_entries
	WHERE kind = $1 AND org_id = $2 AND repo_id = $3 AND run_id = $4 AND key = $5 AND accessed_at > $6`

// selectPrefix compares characters: LIKE would know wildcards and, on one of the engines, no case.
const selectPrefix = `SELECT ` + entryColumns + ` FROM cache_entries
	WHERE kind = $1 AND org_id = $2 AND repo_id = $3 AND run_id = $4 AND substr(key, 1, $5) = $6 AND accessed_at > $7
	ORDER BY created_at DESC, id DESC LIMIT 1`

const insertEntry = `INSERT INTO cache_entries (id, kind, org_id, repo_id, run_id, key, path, size_bytes, hash, job_id, created_at, accessed_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11)`

const insertDiscard = `INSERT INTO cache_discards (path, due_at) VALUES ($1, $2) ON CONFLICT (path) DO NOTHING`
