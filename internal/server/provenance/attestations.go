package provenance

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"kici/internal/core/attest"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/cache"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// What is thought of a stored bundle.
const (
	Pending      = "pending" // not judged: the server ended in between
	Verified     = "verified"
	Failed       = "failed"       // the reason is the first failure
	Unverifiable = "unverifiable" // the reason says what was missing to judge it
)

// Why a bundle cannot be judged.
const (
	ReasonNoIssuer   = "no_issuer_configured"
	ReasonNoKeys     = "jwks_fetch_failed"
	ReasonUnreadable = "bundle_unreadable" // the store does not give it
)

// ErrNotFound says that there is no such attestation.
var ErrNotFound = errors.New("attestation not found")

// maxPerJob bounds the attestations of one job.
const maxPerJob = 1000

// Attestation is a bundle that a job left behind.
type Attestation struct {
	RunID      string
	JobID      string
	Subject    string // name
	Digest     string // of the subject, in hex
	Key        string // where the bundle lies in the store of blobs
	MediaType  string
	Size       int64 // bytes
	Status     string
	Reason     string // "" for a verified one
	CreatedAt  int64  // epoch ms
	VerifiedAt int64  // epoch ms, when it was judged last
}

// keyOf is where the bundle of a subject lies.
func keyOf(runID, jobID, digest string) string {
	return "provenance/" + runID + "/" + jobID + "/" + digest + ".kici.json"
}

// BeginUpload gives a job the link to put a bundle by, "" when there is no place for it.
func (r *Room) BeginUpload(ctx context.Context, job engine.Owned, digest string) (link string, err error) {
	if !attest.GoodDigest(digest) {
		return "", fmt.Errorf("begin attestation: the digest of the subject must be 32 to 128 hexadecimal digits in lower case")
	}
	var n int
	if err := r.DB.Read().QueryRowContext(ctx, countOfJob, job.RunID, job.JobID, digest).Scan(&n); err != nil {
		return "", fmt.Errorf("begin attestation: %w", err)
	}
	if n >= maxPerJob {
		return "", fmt.Errorf("begin attestation: the job has %d attestations already, which is the most that one can have", n)
	}
	return r.Uploads.Lend(ctx, job, digest, attest.MaxBundle)
}

// CompleteUpload keeps what a job put, with a verdict. A bundle that does not hold is kept all the same: what the job did
// is done, and whoever looks at the bundle sees what is thought of it. A bundle of the same subject takes the place of the
// job's earlier one. The row comes before the blob, so that no blob is without one.
func (r *Room) CompleteUpload(ctx context.Context, job engine.Owned, m wire.ProvenanceUploadComplete) error {
	if !attest.GoodDigest(m.SubjectDigest) {
		return fmt.Errorf("keep attestation: the digest of the subject must be 32 to 128 hexadecimal digits in lower case")
	}
	raw, err := r.Uploads.Lent(ctx, job, m.SubjectDigest)
	if refusal, ok := errors.AsType[*cache.Refusal](err); ok && refusal.Code == cache.ReasonNothingPut {
		return r.kept(ctx, job, m.SubjectDigest, err)
	}
	if err != nil {
		return fmt.Errorf("keep attestation: %w", err)
	}
	a := Attestation{RunID: job.RunID, JobID: job.JobID, Subject: ci.CutText(m.SubjectName), Digest: m.SubjectDigest,
		Key: keyOf(job.RunID, job.JobID, m.SubjectDigest), MediaType: ci.CutText(m.MediaType), Size: int64(len(raw)), CreatedAt: r.Clock.Millis()}
	err = r.write(ctx, upsertAttestation, a.RunID, a.JobID, a.Digest, a.Subject, a.Key, a.MediaType, a.Size, a.CreatedAt)
	if err == nil {
		_, err = r.Blobs.Put(ctx, a.Key, bytes.NewReader(raw))
	}
	if err != nil {
		return fmt.Errorf("keep attestation: %w", err)
	}
	a.Status, a.Reason = r.judge(ctx, a, raw, false)
	err = r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return errors.Join(r.rule(ctx, tx, a), r.Uploads.EndLendingTx(ctx, tx, job.JobID, m.SubjectDigest))
	})
	if err != nil {
		return fmt.Errorf("keep attestation: %w", err)
	}
	r.Log.Info("attestation kept", "run", a.RunID, "job", a.JobID, "digest", a.Digest, "status", a.Status, "reason", a.Reason)
	return nil
}

// kept is nil when the job's attestation has been kept: what tells of it has come again.
func (r *Room) kept(ctx context.Context, job engine.Owned, digest string, otherwise error) error {
	_, err := r.one(ctx, job.RunID, job.JobID, digest)
	if errors.Is(err, ErrNotFound) {
		err = otherwise
	}
	if err != nil {
		return fmt.Errorf("keep attestation: %w", err)
	}
	return nil
}

func (r *Room) one(ctx context.Context, runID, jobID, digest string) (Attestation, error) {
	list, err := r.list(ctx, r.DB.Read(), selectOne, runID, jobID, digest)
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Attestation{}, err
	}
	return list[0], nil
}

func (r *Room) write(ctx context.Context, query string, args ...any) error {
	return r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Do(ctx, query, args...)
	})
}

// rule keeps the verdict on a bundle. One that took its place meanwhile has a verdict of its own.
func (r *Room) rule(ctx context.Context, tx *store.Tx, a Attestation) error {
	return tx.Do(ctx, updateVerdict, a.RunID, a.JobID, a.Digest, a.Status, a.Reason, r.Clock.Millis(), a.CreatedAt)
}

// judge says what is to be thought of a bundle. Only one that passes every check, and is of the job that brought it, is
// verified. later judges one that has been kept for longer than its token holds.
func (r *Room) judge(ctx context.Context, a Attestation, raw []byte, later bool) (status, reason string) {
	if !r.Enabled() {
		return Unverifiable, ReasonNoIssuer
	}
	keys, err := r.keySet(ctx)
	if err != nil {
		r.Log.Warn("attestation not judged", "run", a.RunID, "job", a.JobID, "err", err)
		return Unverifiable, ReasonNoKeys
	}
	v := attest.Verify(attest.Request{Bundle: raw, Keys: keys, Issuer: r.Issuer, Audience: attest.Audience, Now: r.Clock().Unix(), AtIssue: later})
	if !v.Verified {
		return Failed, v.Failures[0]
	}
	if failure := v.Attests(a.RunID, a.JobID, a.Digest); failure != "" {
		return Failed, failure
	}
	return Verified, ""
}

// Attestations lists what a run attested, by job and subject.
func (r *Room) Attestations(ctx context.Context, runID string) ([]Attestation, error) {
	return r.list(ctx, r.DB.Read(), selectOfRun, runID)
}

// AttestationLink gives one attestation with a link by which a person's machine reads its bundle: a URL, or a reference
// that is relative to the server's base URL. Error: ErrNotFound.
func (r *Room) AttestationLink(ctx context.Context, runID, jobID, digest string) (a Attestation, link string, err error) {
	if a, err = r.one(ctx, runID, jobID, digest); err != nil {
		return a, "", err
	}
	link, err = r.People.ReadLink(ctx, a.Key)
	return a, link, err
}

func (r *Room) list(ctx context.Context, q store.Querier, query string, args ...any) ([]Attestation, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list attestations: %w", err)
	}
	defer rows.Close()
	out := []Attestation{}
	for rows.Next() {
		a, err := scanAttestation(rows)
		if err != nil {
			return nil, fmt.Errorf("list attestations: %w", err)
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

func scanAttestation(rows store.Rows) (a Attestation, err error) {
	return a, rows.Scan(&a.RunID, &a.JobID, &a.Digest, &a.Subject, &a.Key, &a.MediaType, &a.Size, &a.Status, &a.Reason, &a.CreatedAt, &a.VerifiedAt)
}

// ForgetRunTx removes the attestations of a run. Their blobs go with a later sweep, once no link leads to them.
func (r *Room) ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error {
	keys, err := store.Texts(ctx, tx, selectKeysOfRun, runID)
	if err != nil {
		return fmt.Errorf("forget attestations of run %s: %w", runID, err)
	}
	for _, key := range keys {
		if err := r.Uploads.DiscardTx(ctx, tx, key); err != nil {
			return err
		}
	}
	if err := tx.Do(ctx, deleteOfRun, runID); err != nil {
		return fmt.Errorf("forget attestations of run %s: %w", runID, err)
	}
	return nil
}

const attestationColumns = `run_id, job_id, subject_digest, subject_name, storage_key, media_type, size_bytes, verify_status, verify_reason,
	created_at, verified_at`

const (
	upsertAttestation = `INSERT INTO attestations (` + attestationColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', '', $8, $8)
		ON CONFLICT (run_id, job_id, subject_digest) DO UPDATE SET subject_name = $4, media_type = $6, size_bytes = $7, verify_status = 'pending',
		verify_reason = '', created_at = $8, verified_at = $8`
	updateVerdict = `UPDATE attestations SET verify_status = $4, verify_reason = $5, verified_at = $6
		WHERE run_id = $1 AND job_id = $2 AND subject_digest = $3 AND created_at = $7`
	countOfJob      = `SELECT count(*) FROM attestations WHERE run_id = $1 AND job_id = $2 AND subject_digest <> $3`
	selectOfRun     = `SELECT ` + attestationColumns + ` FROM attestations WHERE run_id = $1 ORDER BY created_at, job_id, subject_digest`
	selectOne       = `SELECT ` + attestationColumns + ` FROM attestations WHERE run_id = $1 AND job_id = $2 AND subject_digest = $3`
	selectKeysOfRun = `SELECT storage_key FROM attestations WHERE run_id = $1`
	deleteOfRun     = `DELETE FROM attestations WHERE run_id = $1`
)
