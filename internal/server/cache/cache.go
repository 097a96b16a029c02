// Package cache keeps what runs leave behind for later ones: packed sources and dependencies, the caches of users, and
// artifacts. Rows tell what there is and blobs hold the bytes, which travel past the server wherever the store can.
//
// Every upload takes three steps. A row says who may put what where; the agent puts the bytes by a link that leads to a
// temporary path; the confirmation measures them, moves them to a path that no link leads to, and writes the entry. An
// entry is therefore whole and never changes, and is visible to whoever asks after the confirmation. Where a server dies
// in between, the row of the upload still names both paths, and the sweep removes them.
package cache

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"kici/internal/core/ci"
	"kici/internal/kit/blob"
	"kici/internal/kit/service"
	"kici/internal/server/store"
)

// The kinds of entries.
const (
	kindSource   = "source"
	kindDeps     = "deps"
	kindUser     = "user"
	kindArtifact = "artifact"
)

// Identity is who asks, as the server knows it; nothing of it comes from the agent.
type Identity struct {
	OrgID  string
	RepoID string
	RunID  string
	JobID  string
	// Shared is true for the jobs of trusted runs alone. They read and write what all trusted runs of the repository
	// share; every other run reads that too, and writes what only itself can read.
	Shared bool
	// Build is what a build job is to make; nil for every other job.
	Build *Build
}

// Build names what a build packs. An empty hash is a part that is not cached.
type Build struct {
	ContentHash  string // of the workflow's source
	LockfileHash string // of the package manager's lock file
	Platform     string // for dependencies
	Arch         string
}

// Jobs tells who a job is.
type Jobs interface {
	// CacheIdentity reads the identity of a job, or ok=false when there is no such job.
	CacheIdentity(ctx context.Context, jobID string) (id Identity, ok bool, err error)
}

// Limits bound what an organisation keeps.
type Limits struct {
	BuildTTL        time.Duration // since the last access
	MaxTarball      int64         // bytes of one packed source or of one set of dependencies
	UserQuota       int64         // bytes of all user caches together
	UserTTL         time.Duration // since the last access
	ArtifactQuota   int64         // bytes of all artifacts together
	ArtifactTTL     time.Duration // since it was made
	ArtifactMax     int64         // bytes of one
	ArtifactsPerRun int
}

// DefaultLimits are those of an organisation that has none of its own.
func DefaultLimits() Limits {
	const day = 24 * time.Hour
	return Limits{BuildTTL: 30 * day, MaxTarball: 500 << 20, UserQuota: 5 << 30, UserTTL: 7 * day,
		ArtifactQuota: 20 << 30, ArtifactTTL: 30 * day, ArtifactMax: 1 << 30, ArtifactsPerRun: 50}
}

// ttl is how long an entry of a kind lives after it was last used.
func (l Limits) ttl(kind string) time.Duration {
	switch kind {
	case kindUser:
		return l.UserTTL
	case kindArtifact:
		return l.ArtifactTTL
	}
	return l.BuildTTL
}

// Deps are what a cache works with.
type Deps struct {
	DB     *store.DB
	Blobs  blob.Store
	Agents blob.Links // as agents reach them
	People blob.Links // as the machines of people reach them
	Jobs   Jobs
	// Limits gives what an organisation may keep. When it fails, Defaults hold.
	Limits   func(ctx context.Context, orgID string) (Limits, error)
	Defaults Limits
	Clock    service.Clock
	Log      *slog.Logger
}

// Cache keeps entries. It is safe for concurrent use, also by several servers on one database and one store of blobs.
type Cache struct {
	Deps
	sourceHits, sourceMisses, depsHits, depsMisses atomic.Int64
}

// New makes a cache.
func New(d Deps) *Cache { return &Cache{Deps: d} }

// Stats counts look-ups of what builds have packed.
type Stats struct {
	SourceHits, SourceMisses, DepsHits, DepsMisses int64
}

// Stats tells the look-ups since the start.
func (c *Cache) Stats() Stats {
	return Stats{c.sourceHits.Load(), c.sourceMisses.Load(), c.depsHits.Load(), c.depsMisses.Load()}
}

// limits are an organisation's. A look-up that fails costs nobody a cache.
func (c *Cache) limits(ctx context.Context, orgID string) Limits {
	l, err := c.Limits(ctx, orgID)
	if err != nil {
		c.Log.Warn("cache limits could not be read, the defaults hold", "org", orgID, "err", err)
		return c.Defaults
	}
	return l
}

// Why something is not kept.
const (
	ReasonUnknownJob = "unknown_job" // nobody knows the job that asks
	ReasonNotItsOwn  = "not_its_own" // the job may not save this
	ReasonBadKey     = "bad_key"     // empty, too long, or no text
	ReasonExists     = "exists"      // the key has been saved
	ReasonNothingPut = "nothing_put" // there is no upload to confirm
	ReasonTooLarge   = "too_large"   // one alone is larger than it may be
	ReasonTooMany    = "too_many"    // of the job's uploads or of the run's artifacts
	ReasonQuota      = "quota"       // the organisation keeps too much
)

// Refusal is an error that says that something will not be kept. Its reason is for people and programs.
type Refusal struct{ ci.Reason }

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

func refuse(code, message string) *Refusal { return &Refusal{ci.Reason{Code: code, Message: message}} }

func (c *Cache) identity(ctx context.Context, jobID string) (Identity, error) {
	id, ok, err := c.Jobs.CacheIdentity(ctx, jobID)
	if err != nil {
		return Identity{}, fmt.Errorf("read identity of job %s: %w", jobID, err)
	}
	if !ok {
		return Identity{}, refuse(ReasonUnknownJob, "Nobody knows job "+jobID)
	}
	return id, nil
}

// maxKey bounds a key or a name, in bytes.
const maxKey = 512

// goodKey tells whether a text of an author's can be a key.
func goodKey(key string) bool {
	return key != "" && len(key) <= maxKey && utf8.ValidString(key) && strings.IndexByte(key, 0) < 0
}

// hashOf is a reported SHA-256 when it is one, else "".
func hashOf(reported string) string {
	if len(reported) != 64 || strings.Trim(reported, "0123456789abcdef") != "" {
		return ""
	}
	return reported
}
