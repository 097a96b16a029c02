package cache

import (
	"context"
	"errors"
	"fmt"
	"io"

	"kici/internal/kit/blob"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// kindLent are uploads of what another room keeps. Their target is never used.
const kindLent = "lent"

// Lend gives a job a link by which it puts something that another room keeps, and reads with Lent. What nobody asks for is
// removed as every upload is.
func (c *Cache) Lend(ctx context.Context, job engine.Owned, key string, maxSize int64) (link string, err error) {
	id, err := c.identity(ctx, job.JobID)
	if err != nil {
		return "", err
	}
	_, link, err = c.begin(ctx, space{kind: kindLent, org: id.OrgID, repo: id.RepoID, run: id.RunID}, job.JobID, key, maxSize)
	return link, err
}

// Lent reads what a job put, by the newest link of a key that it used. A Refusal says that there is nothing, or too much.
func (c *Cache) Lent(ctx context.Context, job engine.Owned, key string) ([]byte, error) {
	uploads, err := c.begun(ctx, kindLent, job.JobID, key)
	if err != nil {
		return nil, err
	}
	for _, u := range uploads {
		data, err := c.ReadAll(ctx, u.path, u.maxSize)
		if !errors.Is(err, blob.ErrNotFound) {
			return data, err
		}
	}
	return nil, refuse(ReasonNothingPut, "Nothing was put where the link leads")
}

// ReadAll reads a blob of at most that many bytes. Errors: blob.ErrNotFound, and a Refusal for one that is larger.
func (c *Cache) ReadAll(ctx context.Context, path string, most int64) ([]byte, error) {
	content, _, err := c.Blobs.Get(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", path, err)
	}
	defer content.Close()
	data, err := io.ReadAll(io.LimitReader(content, most+1))
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", path, err)
	}
	if int64(len(data)) > most {
		return nil, refuse(ReasonTooLarge, fmt.Sprintf("What was put exceeds the limit of %d bytes", most))
	}
	return data, nil
}

// EndLendingTx closes the uploads of a key.
func (c *Cache) EndLendingTx(ctx context.Context, tx *store.Tx, jobID, key string) error {
	uploads, err := uploadsOf(ctx, tx, selectLent, jobID, key)
	for _, u := range uploads {
		_, closeErr := c.closeUpload(ctx, tx, u)
		err = errors.Join(err, closeErr)
	}
	if err != nil {
		return fmt.Errorf("end uploads of job %s: %w", jobID, err)
	}
	return nil
}

// DiscardTx has the blob of another room removed, once links to it no longer hold.
func (c *Cache) DiscardTx(ctx context.Context, tx *store.Tx, path string) error {
	return c.discard(ctx, tx, path, c.Clock.Millis()+readGrace.Milliseconds())
}

const selectLent = `SELECT id, path, target FROM cache_uploads WHERE job_id = $1 AND key = $2 AND kind = 'lent'`
