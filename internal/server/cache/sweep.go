package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kici/internal/kit/service"
	"kici/internal/server/store"
)

const (
	sweepPeriod = 5 * time.Minute
	sweepBatch  = 200 // rows of one transaction
)

// Sweep removes, until ctx ends, what has expired, what was never confirmed and what is to be removed. Every server may
// run it: whatever two of them do at once is done once, or twice without harm.
func (c *Cache) Sweep(ctx context.Context) error {
	return service.Every(ctx, c.Log, "cache sweep", sweepPeriod, nil, c.sweepOnce)
}

func (c *Cache) sweepOnce(ctx context.Context) error {
	return errors.Join(c.expire(ctx), c.forget(ctx), c.clear(ctx), c.Blobs.Tidy(ctx, c.Clock().Add(-uploadGrace)))
}

// expire removes entries that nobody has used for as long as their organisation keeps them.
func (c *Cache) expire(ctx context.Context) error {
	kinds, err := c.kindsInUse(ctx)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		after := c.after(c.limits(ctx, k.org).ttl(k.kind))
		err := c.inBatches(ctx, func(ctx context.Context, tx *store.Tx) (int, error) {
			old, err := entries(ctx, tx, selectExpired, k.kind, k.org, after, sweepBatch)
			for _, e := range old {
				err = errors.Join(err, c.remove(ctx, tx, e))
			}
			return len(old), err
		})
		if err != nil {
			return fmt.Errorf("expire cache entries: %w", err)
		}
	}
	return nil
}

// kindsInUse are the organisations that keep something, with what they keep; run and repository are empty.
func (c *Cache) kindsInUse(ctx context.Context) (out []space, err error) {
	rows, err := c.DB.Read().QueryContext(ctx, "SELECT DISTINCT kind, org_id FROM cache_entries")
	if err != nil {
		return nil, fmt.Errorf("list who keeps cache entries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s space
		if err := rows.Scan(&s.kind, &s.org); err != nil {
			return nil, fmt.Errorf("list who keeps cache entries: %w", err)
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// forget ends uploads that nobody confirmed. Their blobs may lie in either place.
func (c *Cache) forget(ctx context.Context) error {
	err := c.inBatches(ctx, func(ctx context.Context, tx *store.Tx) (int, error) {
		old, err := uploadsOf(ctx, tx, selectOldUploads, c.after(uploadGrace), sweepBatch)
		for _, u := range old {
			err = errors.Join(err, c.abandon(ctx, tx, u))
		}
		return len(old), err
	})
	if err != nil {
		return fmt.Errorf("forget uploads: %w", err)
	}
	return nil
}

// abandon ends an upload that nobody will confirm.
func (c *Cache) abandon(ctx context.Context, tx *store.Tx, u upload) error {
	_, err := c.closeUpload(ctx, tx, u)
	return errors.Join(err, c.discard(ctx, tx, u.target, c.Clock.Millis()))
}

// uploadsOf reads the ids and places of uploads.
func uploadsOf(ctx context.Context, tx *store.Tx, query string, args ...any) (out []upload, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var u upload
		if err := rows.Scan(&u.id, &u.path, &u.target); err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, rows.Err()
}

// inBatches runs transactions until one finds less than a batch of rows.
func (c *Cache) inBatches(ctx context.Context, do func(ctx context.Context, tx *store.Tx) (found int, err error)) error {
	for {
		var n int
		err := c.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			n, err = do(ctx, tx)
			return err
		})
		if err != nil || n < sweepBatch {
			return err
		}
	}
}

// clear removes the blobs whose time has come. A row goes only after its blob, so a failure is made good by the next turn.
func (c *Cache) clear(ctx context.Context) error {
	for {
		paths, err := c.dueDiscards(ctx)
		if err != nil {
			return fmt.Errorf("clear blobs: %w", err)
		}
		for _, path := range paths {
			if err := c.Blobs.Delete(ctx, path); err != nil {
				return err
			}
		}
		err = c.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
			for _, path := range paths {
				if err := tx.Do(ctx, "DELETE FROM cache_discards WHERE path = $1", path); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(paths) < sweepBatch {
			return err
		}
	}
}

func (c *Cache) dueDiscards(ctx context.Context) (paths []string, err error) {
	rows, err := c.DB.Read().QueryContext(ctx, "SELECT path FROM cache_discards WHERE due_at <= $1 ORDER BY due_at LIMIT $2", c.Clock.Millis(), sweepBatch)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var path string
		if err := rows.Scan(&path); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, rows.Err()
}

const selectExpired = `SELECT ` + entryColumns + ` FROM cache_entries WHERE kind = $1 AND org_id = $2 AND accessed_at <= $3
	ORDER BY accessed_at LIMIT $4`

const selectOldUploads = `SELECT id, path, target FROM cache_uploads WHERE created_at <= $1 ORDER BY created_at LIMIT $2`
