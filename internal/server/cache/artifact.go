package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kici/internal/server/store"
)

// ErrNotFound says that there is no such artifact, or no longer.
var ErrNotFound = errors.New("artifact not found")

// Artifact is a named file of a run.
type Artifact struct {
	RunID     string
	JobID     string // that made it
	Name      string
	Size      int64  // bytes, as the store has it
	Hash      string // SHA-256 in hex as the agent reported it, or ""
	CreatedAt int64  // epoch ms
	ExpiresAt int64  // epoch ms
}

// BeginArtifact gives a job the link to put an artifact of this name and size by. What will not be kept is refused now,
// before anything is sent. Names belong to the run: no two of its jobs have one.
func (c *Cache) BeginArtifact(ctx context.Context, jobID, name string, size int64) (link string, err error) {
	id, err := c.identity(ctx, jobID)
	if err != nil {
		return "", err
	}
	if !goodKey(name) {
		return "", refuse(ReasonBadKey, fmt.Sprintf("The name of an artifact is a text of 1 to %d bytes", maxKey))
	}
	u := upload{space: space{kind: kindArtifact, org: id.OrgID, repo: id.RepoID, run: id.RunID}, key: name}
	limits := c.limits(ctx, id.OrgID)
	if size > limits.ArtifactMax {
		return "", refuse(ReasonTooLarge, fmt.Sprintf("Artifact exceeds max size: %d bytes > %d bytes limit", size, limits.ArtifactMax))
	}
	err = c.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return c.admitArtifact(ctx, tx, u, size, limits) })
	if err != nil {
		return "", fmt.Errorf("begin artifact %q: %w", name, err)
	}
	return c.begin(ctx, u.space, jobID, name, limits.ArtifactMax)
}

// CommitArtifact keeps what a job put. A commit that comes again gives what it gave before. Hash is the SHA-256 of the
// bytes in hex, or "".
func (c *Cache) CommitArtifact(ctx context.Context, jobID, name, hash string) (Artifact, error) {
	uploads, err := c.begun(ctx, kindArtifact, jobID, name)
	if err != nil {
		return Artifact{}, err
	}
	if len(uploads) == 0 {
		return c.committed(ctx, jobID, name)
	}
	limits := c.limits(ctx, uploads[0].org)
	e, err := c.confirmNewest(ctx, uploads, hash, func(ctx context.Context, tx *store.Tx, u upload, size int64) error {
		return c.admitArtifact(ctx, tx, u, size, limits)
	})
	if err != nil {
		return Artifact{}, err
	}
	return c.artifact(ctx, e, uploads[0].run), nil
}

// committed is the artifact that a job committed before.
func (c *Cache) committed(ctx context.Context, jobID, name string) (Artifact, error) {
	id, err := c.identity(ctx, jobID)
	if err != nil {
		return Artifact{}, err
	}
	list, err := c.Artifacts(ctx, id.RunID)
	for _, a := range list {
		if a.Name == name && a.JobID == jobID {
			return a, nil
		}
	}
	if err != nil {
		return Artifact{}, err
	}
	return Artifact{}, refuse(ReasonNothingPut, fmt.Sprintf("The job has begun no artifact %q", name))
}

// admitArtifact never makes room: an artifact is somebody's result.
func (c *Cache) admitArtifact(ctx context.Context, tx *store.Tx, u upload, size int64, limits Limits) error {
	if err := lockOrg(ctx, tx, u.org); err != nil {
		return err
	}
	if err := c.vacate(ctx, tx, u, limits.ArtifactTTL); err != nil {
		return err
	}
	var n int
	if err := tx.QueryRowContext(ctx, countArtifacts, u.run).Scan(&n); err != nil {
		return fmt.Errorf("count artifacts of run %s: %w", u.run, err)
	}
	if n >= limits.ArtifactsPerRun {
		return refuse(ReasonTooMany, fmt.Sprintf("The run has %d artifacts already, which is the most that one can have", n))
	}
	used, err := kept(ctx, tx, kindArtifact, u.org)
	if err != nil {
		return err
	}
	if used+size > limits.ArtifactQuota {
		return refuse(ReasonQuota, fmt.Sprintf("An artifact of %d bytes does not fit the organisation's quota: %d of %d bytes are in use", size, used, limits.ArtifactQuota))
	}
	return nil
}

// Artifacts lists the artifacts of a run by name.
func (c *Cache) Artifacts(ctx context.Context, runID string) ([]Artifact, error) {
	list, err := entries(ctx, c.DB.Read(), selectArtifacts, runID)
	if err != nil {
		return nil, err
	}
	out := []Artifact{}
	for _, e := range list {
		if a := c.artifact(ctx, e, runID); a.ExpiresAt > c.Clock.Millis() {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Artifact) int { return strings.Compare(a.Name, b.Name) }) // databases order texts each in its way
	return out, nil
}

// ArtifactLink gives one artifact of a run with a link by which a person's machine reads it: a URL, or a reference that
// is relative to the server's base URL.
func (c *Cache) ArtifactLink(ctx context.Context, runID, name string) (a Artifact, link string, err error) {
	e, ok, err := one(c.DB.Read().QueryRowContext(ctx, selectArtifact, runID, name))
	if err != nil {
		return Artifact{}, "", err
	}
	if ok {
		a = c.artifact(ctx, e, runID)
	}
	if a.ExpiresAt <= c.Clock.Millis() {
		return Artifact{}, "", fmt.Errorf("%w: %q of run %s", ErrNotFound, name, runID)
	}
	link, err = c.People.ReadLink(ctx, e.path)
	return a, link, err
}

func (c *Cache) artifact(ctx context.Context, e entry, runID string) Artifact {
	return Artifact{RunID: runID, JobID: e.jobID, Name: e.key, Size: e.size, Hash: e.hash, CreatedAt: e.createdAt,
		ExpiresAt: e.createdAt + c.limits(ctx, e.org).ArtifactTTL.Milliseconds()}
}

const countArtifacts = `SELECT count(*) FROM cache_entries WHERE kind = 'artifact' AND run_id = $1 AND run_id <> ''`

const selectArtifacts = `SELECT ` + entryColumns + ` FROM cache_entries
	WHERE kind = 'artifact' AND run_id = $1 AND run_id <> ''`

const selectArtifact = `SELECT ` + entryColumns + ` FROM cache_entries
	WHERE kind = 'artifact' AND run_id = $1 AND run_id <> '' AND key = $2`
