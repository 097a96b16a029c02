package cache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// Built is what the cache has of a build.
type Built struct {
	SourceURL string // "" when it is not cached; same below
	DepsURL   string
	DepsHash  string // "" also when it was not reported: the agent then does not compare
}

// Built looks for what a build for this identity has packed before, and counts as a use of it. Links end after
// blob.ReadLifetime, so they are asked for when the job is given to its agent.
func (c *Cache) Built(ctx context.Context, id Identity, b Build) (Built, error) {
	if b.ContentHash == "" && b.LockfileHash == "" {
		return Built{}, nil
	}
	after := c.after(c.limits(ctx, id.OrgID).BuildTTL)
	source, err := c.lookUp(ctx, id, kindSource, b, after, &c.sourceHits, &c.sourceMisses)
	if err != nil {
		return Built{}, err
	}
	deps, err := c.lookUp(ctx, id, kindDeps, b, after, &c.depsHits, &c.depsMisses)
	return Built{SourceURL: source.link, DepsURL: deps.link, DepsHash: deps.hash}, err
}

// lookUp looks for what was used at that time or later.
func (c *Cache) lookUp(ctx context.Context, id Identity, kind string, b Build, after int64, hits, misses *atomic.Int64) (found, error) {
	key := b.key(kind)
	if key == "" {
		return found{}, nil
	}
	f, ok, err := c.grant(ctx, id.readable(kind), wish{text: key}, after)
	switch {
	case err != nil:
		return found{}, err
	case ok:
		hits.Add(1)
	default:
		misses.Add(1)
	}
	return f, nil
}

// key is that of a build's source or dependencies, "" when it has none.
func (b Build) key(kind string) string {
	if kind == kindSource {
		return b.ContentHash
	}
	if b.LockfileHash == "" {
		return ""
	}
	return depsKey(b.Platform, b.Arch, b.LockfileHash)
}

// readable are the spaces that an identity reads, in the order in which it looks.
func (id Identity) readable(kind string) []space {
	shared := space{kind: kind, org: id.OrgID, repo: id.RepoID}
	if id.Shared {
		return []space{shared}
	}
	return []space{id.own(kind), shared}
}

// own is the space that an identity writes.
func (id Identity) own(kind string) space {
	s := space{kind: kind, org: id.OrgID, repo: id.RepoID}
	if !id.Shared {
		s.run = id.RunID
	}
	return s
}

// BuildUpload tells a build job where to put what it packs. Without a link the agent fails the build.
func (c *Cache) BuildUpload(ctx context.Context, job engine.Owned, m wire.CacheUploadRequest) (wire.CacheUploadResponse, error) {
	id, err := c.builder(ctx, job.JobID, m.CacheType, Build{m.ContentHash, m.LockfileHash, m.Platform, m.Arch})
	if err != nil {
		return wire.CacheUploadResponse{}, err
	}
	_, link, err := c.begin(ctx, id.own(m.CacheType), job.JobID, id.Build.key(m.CacheType), c.limits(ctx, id.OrgID).MaxTarball)
	return wire.CacheUploadResponse{UploadURL: link}, err
}

// BuildUploaded confirms what a build job put. Of two builds of one thing the first is kept. A confirmation that comes
// again changes nothing.
func (c *Cache) BuildUploaded(ctx context.Context, job engine.Owned, m wire.CacheUploadComplete) error {
	id, err := c.builder(ctx, job.JobID, m.CacheType, Build{m.ContentHash, m.LockfileHash, m.Platform, m.Arch})
	if err != nil {
		return err
	}
	uploads, err := c.begun(ctx, m.CacheType, job.JobID, id.Build.key(m.CacheType))
	if err != nil || len(uploads) == 0 {
		return err
	}
	ttl := c.limits(ctx, id.OrgID).BuildTTL
	_, err = c.confirmNewest(ctx, uploads, m.DepsHash, func(ctx context.Context, tx *store.Tx, u upload, _ int64) error {
		if err := lockOrg(ctx, tx, u.org); err != nil {
			return err
		}
		return c.vacate(ctx, tx, u, ttl)
	})
	if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.Code == ReasonExists {
		return nil
	}
	return err
}

// builder is the identity of a build job that names what it was told to make, and of nobody else.
func (c *Cache) builder(ctx context.Context, jobID, kind string, named Build) (Identity, error) {
	id, err := c.identity(ctx, jobID)
	if err != nil {
		return id, err
	}
	if id.Build == nil || id.Build.key(kind) == "" || named.key(kind) != id.Build.key(kind) {
		return id, refuse(ReasonNotItsOwn, fmt.Sprintf("Job %s is not the build of %s %q", jobID, kind, named.key(kind)))
	}
	return id, nil
}
