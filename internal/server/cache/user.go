package cache

import (
	"context"
	"errors"
	"fmt"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// maxRestoreKeys bounds the prefixes that one request has looked for. Those behind it are not.
const maxRestoreKeys = 64

// Restore answers with the entry of the key, else with the newest one that begins with one of the prefixes, tried in
// their order, else with a miss.
func (c *Cache) Restore(ctx context.Context, job engine.Owned, m wire.UserCacheRestoreRequest) (wire.UserCacheRestoreResponse, error) {
	id, err := c.identity(ctx, job.JobID)
	if err != nil {
		return wire.UserCacheRestoreResponse{}, err
	}
	f, ok, err := c.restore(ctx, id, m.Key, m.RestoreKeys[:min(len(m.RestoreKeys), maxRestoreKeys)])
	if err != nil || !ok {
		return wire.UserCacheRestoreResponse{}, err
	}
	return wire.UserCacheRestoreResponse{Hit: true, MatchedKey: f.key, DownloadURL: f.link, TarHash: f.hash}, nil
}

func (c *Cache) restore(ctx context.Context, id Identity, key string, prefixes []string) (found, bool, error) {
	wanted := []wish{{text: key}}
	for _, prefix := range prefixes {
		wanted = append(wanted, wish{text: prefix, prefix: true})
	}
	after := c.after(c.limits(ctx, id.OrgID).UserTTL)
	for _, w := range wanted {
		if f, ok, err := c.grant(ctx, id.readable(kindUser), w, after); err != nil || ok {
			return f, ok, err
		}
	}
	return found{}, false, nil
}

// Save tells a job where to put an entry of the user cache, or to skip that: the key has been saved, or it cannot be.
func (c *Cache) Save(ctx context.Context, job engine.Owned, m wire.UserCacheSaveRequest) (wire.UserCacheSaveResponse, error) {
	skip := wire.UserCacheSaveResponse{Skip: true}
	id, err := c.identity(ctx, job.JobID)
	if err != nil {
		return skip, err
	}
	if !goodKey(m.Key) {
		return skip, refuse(ReasonBadKey, fmt.Sprintf("The key of a cache is a text of 1 to %d bytes", maxKey))
	}
	limits := c.limits(ctx, id.OrgID)
	_, there, err := find(ctx, c.DB.Read(), id.own(kindUser), wish{text: m.Key}, c.after(limits.UserTTL))
	if err != nil || there {
		return skip, err
	}
	_, link, err := c.begin(ctx, id.own(kindUser), job.JobID, m.Key, limits.UserQuota)
	if err != nil {
		return skip, err
	}
	return wire.UserCacheSaveResponse{UploadURL: link}, nil
}

// Saved confirms what a job put: when it returns nil, the next restore finds the entry, this one or the one of who was
// faster. The size that the agent reports is not looked at. A confirmation that comes again changes nothing.
func (c *Cache) Saved(ctx context.Context, job engine.Owned, m wire.UserCacheSaveComplete) error {
	uploads, err := c.begun(ctx, kindUser, job.JobID, m.Key)
	if err != nil || len(uploads) == 0 {
		return err
	}
	limits := c.limits(ctx, uploads[0].org)
	_, err = c.confirmNewest(ctx, uploads, m.TarHash, func(ctx context.Context, tx *store.Tx, u upload, size int64) error {
		if err := lockOrg(ctx, tx, u.org); err != nil {
			return err
		}
		if err := c.vacate(ctx, tx, u, limits.UserTTL); err != nil {
			return err
		}
		return c.makeRoom(ctx, tx, u, size, limits.UserQuota)
	})
	if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.Code == ReasonExists {
		return nil
	}
	return err
}

// makeRoom removes what was used longest ago until a new entry fits. A run that only itself can read never displaces what
// others share: a stranger's pull request would else empty everybody's cache.
func (c *Cache) makeRoom(ctx context.Context, tx *store.Tx, u upload, size, quota int64) error {
	used, err := kept(ctx, tx, u.kind, u.org)
	if err != nil || used+size <= quota {
		return err
	}
	query := leastUsed
	if u.run != "" {
		query = leastUsedOfRuns
	}
	v := eviction{excess: used + size - quota}
	if err := eachEntry(ctx, tx, v.take, query, u.kind, u.org); err != nil {
		return err
	}
	if v.excess > 0 {
		return refuse(ReasonQuota, fmt.Sprintf("A cache of %d bytes does not fit the organisation's quota of %d bytes", size, quota))
	}
	for _, e := range v.victims {
		if err := c.remove(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}

// eviction collects entries to remove until enough bytes are free.
type eviction struct {
	excess  int64 // bytes that are still to be freed
	victims []entry
}

// take takes the next entry, of those that were used longest ago first, and tells whether more are needed.
func (v *eviction) take(e entry) (more bool) {
	v.victims = append(v.victims, e)
	v.excess -= e.size
	return v.excess > 0
}

// kept is how many bytes an organisation keeps of a kind.
func kept(ctx context.Context, q store.Querier, kind, org string) (bytes int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM cache_entries WHERE kind = $1 AND org_id = $2", kind, org).Scan(&bytes)
	if err != nil {
		return 0, fmt.Errorf("count what %s keeps: %w", org, err)
	}
	return bytes, nil
}

const leastUsed = `SELECT ` + entryColumns + ` FROM cache_entries WHERE kind = $1 AND org_id = $2 ORDER BY accessed_at, created_at, id`

const leastUsedOfRuns = `SELECT ` + entryColumns + ` FROM cache_entries WHERE kind = $1 AND org_id = $2 AND run_id <> ''
	ORDER BY accessed_at, created_at, id`
