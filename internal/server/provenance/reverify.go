package provenance

import (
	"context"
	"fmt"

	"kici/internal/core/attest"
	"kici/internal/server/store"
)

// reverifyBatch bounds the attestations that are read at once.
const reverifyBatch = 200

// Judged counts attestations by what is thought of them.
type Judged struct{ Verified, Failed, Unverifiable int }

// Reverify judges stored bundles anew, by the keys as they are now: those that could not be judged, or all. Of an old
// bundle the token is judged as of the moment in which it was issued.
func (r *Room) Reverify(ctx context.Context, all bool) (done Judged, err error) {
	judged := 0 // whether those are looked at that have a verdict
	if all {
		judged = 1
	}
	var last Attestation
	for {
		batch, err := r.list(ctx, r.DB.Read(), selectBatch, last.RunID, last.JobID, last.Digest, judged, reverifyBatch)
		if err != nil {
			return done, err
		}
		for _, a := range batch {
			if err := r.reverify(ctx, a, &done); err != nil {
				return done, err
			}
			last = a
		}
		if len(batch) < reverifyBatch {
			return done, nil
		}
	}
}

func (r *Room) reverify(ctx context.Context, a Attestation, done *Judged) error {
	a.Status, a.Reason = Unverifiable, ReasonUnreadable
	raw, err := r.Uploads.ReadAll(ctx, a.Key, attest.MaxBundle)
	if err == nil {
		a.Status, a.Reason = r.judge(ctx, a, raw, true)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch a.Status {
	case Verified:
		done.Verified++
	case Failed:
		done.Failed++
	default:
		done.Unverifiable++
	}
	err = r.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return r.rule(ctx, tx, a) })
	if err != nil {
		return fmt.Errorf("keep verdict on attestation of run %s: %w", a.RunID, err)
	}
	return nil
}

const selectBatch = `SELECT ` + attestationColumns + ` FROM attestations WHERE (run_id, job_id, subject_digest) > ($1, $2, $3)
	AND (verify_status IN ('pending', 'unverifiable') OR $4 = 1) ORDER BY run_id, job_id, subject_digest LIMIT $5`
