package cache

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
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

// BeginArtifact gives a job the place to put an artifact of this name by. What will not be kept is refused now, before
// anything is sent. A name belongs to the job that has it: no other job of the run can take it, and the job itself may
// have it anew, as it does when it is tried again. What it had put before and not confirmed can be no more.
func (c *Cache) BeginArtifact(ctx context.Context, job engine.Owned, m wire.ArtifactUploadRequest) (wire.ArtifactUploadResponse, error) {
	var none wire.ArtifactUploadResponse
	id, err := c.identity(ctx, job.JobID)
	if err != nil {
		return none, err
	}
	if !goodKey(m.Name) {
		return none, refuse(ReasonBadKey, fmt.Sprintf("The name of an artifact is a text of 1 to %d bytes", maxKey))
	}
	u := upload{space: space{kind: kindArtifact, org: id.OrgID, repo: id.RepoID, run: id.RunID}, jobID: job.JobID, key: m.Name}
	earlier, err := c.begun(ctx, kindArtifact, u.jobID, u.key)
	if err != nil {
		return none, err
	}
	var room int64
	err = c.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		for _, one := range earlier {
			if _, err := c.closeUpload(ctx, tx, one); err != nil {
				return err
			}
		}
		var size int64
		if m.SizeBytes != nil {
			size = *m.SizeBytes
		}
		room, _, err = c.admitArtifact(ctx, tx, u, size, c.limits(ctx, u.org))
		return err
	})
	if err != nil {
		return none, fmt.Errorf("begin artifact %q: %w", m.Name, err)
	}
	if m.SizeBytes != nil {
		room = *m.SizeBytes
	}
	begun, link, err := c.begin(ctx, u.space, u.jobID, u.key, room)
	if err != nil {
		return none, err
	}
	return wire.ArtifactUploadResponse{UploadID: begun.id, UploadURL: link, MaxBytes: room}, nil
}

// CommitArtifact keeps what a job put; it replaces what the job has kept under the name before. A commit that comes again
// changes nothing.
func (c *Cache) CommitArtifact(ctx context.Context, job engine.Owned, m wire.ArtifactCommitRequest) error {
	u, ok, err := c.artifactUpload(ctx, m.UploadID, job.JobID)
	if err != nil {
		return err
	}
	if !ok {
		return c.committed(ctx, m.UploadID, job.JobID)
	}
	limits := c.limits(ctx, u.org)
	_, err = c.confirm(ctx, u, m.SHA256, func(ctx context.Context, tx *store.Tx, u upload, size int64) error {
		if size != m.SizeBytes {
			return refuse(ReasonNothingPut, fmt.Sprintf("%d of %d bytes have arrived", size, m.SizeBytes))
		}
		_, old, err := c.admitArtifact(ctx, tx, u, size, limits)
		if err != nil || old == nil {
			return err
		}
		return c.remove(ctx, tx, *old)
	})
	return err
}

// artifactUpload reads the upload of that id when it is the job's and still open.
func (c *Cache) artifactUpload(ctx context.Context, id, jobID string) (u upload, ok bool, err error) {
	u = upload{space: space{kind: kindArtifact}, id: id, jobID: jobID}
	err = c.DB.Read().QueryRowContext(ctx, selectArtifactUpload, id, jobID).Scan(&u.org, &u.repo, &u.run, &u.key, &u.path, &u.target, &u.maxSize)
	if errors.Is(err, sql.ErrNoRows) {
		return u, false, nil
	}
	if err != nil {
		return u, false, fmt.Errorf("look for upload %s of an artifact: %w", id, err)
	}
	return u, true, nil
}

// committed is nil when that upload of the job's is an artifact by now.
func (c *Cache) committed(ctx context.Context, uploadID, jobID string) error {
	e, ok, err := one(c.DB.Read().QueryRowContext(ctx, selectCommitted, uploadID))
	if err == nil && (!ok || e.jobID != jobID) {
		err = refuse(ReasonNothingPut, "The upload is none of the job's, or has been given up for a later one")
	}
	return err
}

// admitArtifact decides whether a run may have one more artifact, or this one in the place of an old one, which it gives;
// room is how many bytes the artifact may have. It never makes room: an artifact is somebody's result.
func (c *Cache) admitArtifact(ctx context.Context, tx *store.Tx, u upload, size int64, limits Limits) (room int64, old *entry, err error) {
	if err := lockOrg(ctx, tx, u.org); err != nil {
		return 0, nil, err
	}
	e, there, err := find(ctx, tx, u.space, wish{text: u.key}, neverUsed)
	if err != nil {
		return 0, nil, err
	}
	if there && e.jobID != u.jobID && e.accessedAt > c.after(limits.ArtifactTTL) {
		return 0, nil, refuse(ReasonExists, fmt.Sprintf("Another job of the run has an artifact %q already", u.key))
	}
	if size > limits.ArtifactMax {
		return 0, nil, refuse(ReasonTooLarge, fmt.Sprintf("Artifact exceeds max size: %d bytes > %d bytes limit", size, limits.ArtifactMax))
	}
	var n int
	if err := tx.QueryRowContext(ctx, countArtifacts, u.run).Scan(&n); err != nil {
		return 0, nil, fmt.Errorf("count artifacts of run %s: %w", u.run, err)
	}
	used, err := kept(ctx, tx, kindArtifact, u.org)
	if err != nil {
		return 0, nil, err
	}
	if there {
		old, n, used = &e, n-1, used-e.size
	}
	if n >= limits.ArtifactsPerRun {
		return 0, nil, refuse(ReasonTooMany, fmt.Sprintf("The run has %d artifacts already, which is the most that one can have", n))
	}
	left := limits.ArtifactQuota - used
	if size > left || left <= 0 {
		return 0, nil, refuse(ReasonQuota, fmt.Sprintf("An artifact of %d bytes does not fit the organisation's quota: %d of %d bytes are in use", size, used, limits.ArtifactQuota))
	}
	return min(left, limits.ArtifactMax), old, nil
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

const selectCommitted = `SELECT ` + entryColumns + ` FROM cache_entries WHERE id = $1 AND kind = 'artifact'`

const selectArtifactUpload = `SELECT org_id, repo_id, run_id, key, path, target, max_bytes FROM cache_uploads
	WHERE id = $1 AND job_id = $2 AND kind = 'artifact'`
