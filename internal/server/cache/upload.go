package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"kici/internal/kit/blob"
	"kici/internal/server/store"
)

const (
	// uploadGrace is how long an upload may take. A link is only asked for when the transfer begins, so a slow one lasts
	// longer than its link.
	uploadGrace = 24 * time.Hour
	// readGrace is how long the blob of a removed entry stays for those who have just been given a link to it.
	readGrace = blob.ReadLifetime
	// maxUploads bounds what one job has begun to put and not confirmed.
	maxUploads = 100
)

// upload is a row of cache_uploads.
type upload struct {
	space
	id      string
	jobID   string
	key     string
	path    string
	target  string
	maxSize int64
}

// begin writes down that a job may put something, and gives the link to put it by.
func (c *Cache) begin(ctx context.Context, s space, jobID, key string, maxSize int64) (u upload, link string, err error) {
	u = upload{space: s, id: uuid.NewString(), jobID: jobID, key: key, maxSize: maxSize}
	u.path, u.target = s.paths(key, u.id)
	err = c.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		var open int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM cache_uploads WHERE job_id = $1", jobID).Scan(&open); err != nil {
			return err
		}
		if open >= maxUploads {
			return refuse(ReasonTooMany, fmt.Sprintf("The job has %d uploads open", open))
		}
		return tx.Do(ctx, insertUpload, u.id, s.kind, s.org, s.repo, s.run, jobID, key, u.path, u.target, maxSize, c.Clock.Millis())
	})
	if err != nil {
		return u, "", fmt.Errorf("begin upload of %s %q: %w", s.kind, key, err)
	}
	link, err = c.Agents.WriteLink(ctx, u.path)
	return u, link, err
}

// begun reads the uploads of a key that a job has begun, newest first. There is none when it never did, or when they were
// confirmed before.
func (c *Cache) begun(ctx context.Context, kind, jobID, key string) (out []upload, err error) {
	rows, err := c.DB.Read().QueryContext(ctx, selectUploads, jobID, kind, key)
	if err != nil {
		return nil, fmt.Errorf("look for uploads of %s %q: %w", kind, key, err)
	}
	defer rows.Close()
	for rows.Next() {
		u := upload{space: space{kind: kind}, jobID: jobID, key: key}
		if err := rows.Scan(&u.id, &u.org, &u.repo, &u.run, &u.path, &u.target, &u.maxSize); err != nil {
			return nil, fmt.Errorf("look for uploads of %s %q: %w", kind, key, err)
		}
		out = append(out, u)
	}
	return out, rows.Err()
}

// admission decides, within the transaction that would write an entry, whether it may be, and makes room for it. A
// Refusal is a decision; any other error ends the transaction.
type admission func(ctx context.Context, tx *store.Tx, u upload, size int64) error

// confirmNewest makes an entry of what a job put under a key. It may have asked for several links, in steps side by side or
// after a failure; the newest that was used counts.
func (c *Cache) confirmNewest(ctx context.Context, uploads []upload, hash string, admit admission) (e entry, err error) {
	for _, u := range uploads {
		e, err = c.confirm(ctx, u, hash, admit)
		if refusal, ok := errors.AsType[*Refusal](err); !ok || refusal.Code != ReasonNothingPut {
			break
		}
	}
	return e, err
}

// confirm makes an entry of what was put. After a Refusal nothing of the upload is left but what the sweep removes; after
// any other error it can be confirmed again.
func (c *Cache) confirm(ctx context.Context, u upload, hash string, admit admission) (entry, error) {
	size, err := c.settle(ctx, u)
	if err != nil {
		return entry{}, fmt.Errorf("confirm upload of %s %q: %w", u.kind, u.key, err)
	}
	now := c.Clock.Millis()
	e := entry{id: u.id, org: u.org, key: u.key, path: u.target, size: size, hash: hashOf(hash), jobID: u.jobID, createdAt: now, accessedAt: now}
	var refusal *Refusal
	err = c.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if closed, err := c.closeUpload(ctx, tx, u); err != nil || !closed {
			refusal = refuse(ReasonNothingPut, "Another confirmation was faster, or the upload took too long")
			return err
		}
		err := admit(ctx, tx, u, size)
		if refused, ok := errors.AsType[*Refusal](err); ok {
			refusal = refused
			return c.discard(ctx, tx, u.target, now)
		}
		if err != nil {
			return err
		}
		return tx.Do(ctx, insertEntry, e.id, u.kind, u.org, u.repo, u.run, e.key, e.path, e.size, e.hash, e.jobID, now)
	})
	if err == nil && refusal != nil {
		err = refusal
	}
	if err != nil {
		return entry{}, fmt.Errorf("confirm upload of %s %q: %w", u.kind, u.key, err)
	}
	return e, nil
}

// settle moves what was put to where its link does not lead, and only then measures it: until then somebody may put
// something else. What was moved before a crash is found in its place.
func (c *Cache) settle(ctx context.Context, u upload) (size int64, err error) {
	if err := c.Blobs.Move(ctx, u.path, u.target); err != nil && !errors.Is(err, blob.ErrNotFound) {
		return 0, err
	}
	info, err := c.Blobs.Stat(ctx, u.target)
	if errors.Is(err, blob.ErrNotFound) {
		return 0, refuse(ReasonNothingPut, "Nothing was put where the link leads")
	}
	if err != nil || info.Size <= u.maxSize {
		return info.Size, err
	}
	err = c.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		_, err := c.closeUpload(ctx, tx, u)
		return errors.Join(err, c.discard(ctx, tx, u.target, c.Clock.Millis()))
	})
	if err != nil {
		return 0, err
	}
	return 0, refuse(ReasonTooLarge, fmt.Sprintf("%s exceeds max size: %d bytes > %d bytes limit", kindNames[u.kind], info.Size, u.maxSize))
}

var kindNames = map[string]string{kindSource: "Source tarball", kindDeps: "Dep tarball", kindUser: "Cache", kindArtifact: "Artifact"}

// closeUpload ends an upload and reports whether it was open. The link may be used for a while still, so what it leads to
// is removed only afterwards.
func (c *Cache) closeUpload(ctx context.Context, tx *store.Tx, u upload) (closed bool, err error) {
	closed, err = store.Changed(tx.ExecContext(ctx, "DELETE FROM cache_uploads WHERE id = $1", u.id))
	if err != nil || !closed {
		return closed, err
	}
	return true, c.discard(ctx, tx, u.path, c.Clock.Millis()+uploadGrace.Milliseconds())
}

// vacate removes an entry of the key that has expired, and refuses for one that has not: who saves first wins.
func (c *Cache) vacate(ctx context.Context, tx *store.Tx, u upload, ttl time.Duration) error {
	e, ok, err := find(ctx, tx, u.space, wish{text: u.key}, neverUsed)
	if err != nil || !ok {
		return err
	}
	if e.accessedAt > c.after(ttl) {
		return refuse(ReasonExists, fmt.Sprintf("%q has been saved already", u.key))
	}
	return c.remove(ctx, tx, e)
}

// after is the time after which an entry must have been used to be alive.
func (c *Cache) after(ttl time.Duration) int64 { return c.Clock.Millis() - ttl.Milliseconds() }

// neverUsed is before every access.
const neverUsed = -1

const insertUpload = `INSERT INTO cache_uploads (id, kind, org_id, repo_id, run_id, job_id, key, path, target, max_bytes, created_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

const selectUploads = `SELECT id, org_id, repo_id, run_id, path, target, max_bytes FROM cache_uploads
	WHERE job_id = $1 AND kind = $2 AND key = $3 ORDER BY created_at DESC, id DESC`
