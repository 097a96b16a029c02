package engine

import (
	"context"
	"errors"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/server/store"
)

// The ways in which a cancel can be refused.
var (
	ErrRunNotFound = errors.New("no such run")
	ErrRunTerminal = errors.New("the run has ended already")
)

// CancelResult is what a cancel did.
type CancelResult struct {
	Status    ci.RunStatus // cancelling while agents still have to stop, else cancelled; the run's own end with ErrRunTerminal
	Cancelled int          // jobs that were told or ended
}

// Cancel asks for the end of a run. by says who, such as api_key:<id>; why is the sentence people read, "" for the
// usual one.
func (e *Engine) Cancel(ctx context.Context, runID, by, why string, force bool) (CancelResult, error) {
	code := ci.ReasonCancelled
	if why == "" {
		why = "run cancelled via API"
		if force {
			why = "force cancelled via API"
		}
	}
	return e.cancel(ctx, runID, by, ci.NewReason(code, why, map[string]string{"by": by}), force)
}

func (e *Engine) cancel(ctx context.Context, runID, by string, reason ci.Reason, force bool) (CancelResult, error) {
	var result CancelResult
	err := e.write(ctx, func(ctx context.Context, tx *store.Tx) error {
		run, ok, err := loadRun(ctx, tx, runID)
		if err != nil {
			return err
		}
		if !ok {
			return ErrRunNotFound
		}
		result.Status = run.Status
		if run.Status.Terminal() {
			return ErrRunTerminal
		}
		now := e.clock.Millis()
		open, err := loadOpen(ctx, tx, runID)
		if err != nil {
			return err
		}
		o := lifecycle.CancelRun(run, open, lifecycle.Cancel{By: by, Reason: reason, At: now, Forced: force}, now)
		result.Cancelled = len(o.Jobs)
		if err := e.apply(ctx, tx, run, o); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT status FROM execution_runs WHERE run_id = $1", runID).Scan(&result.Status)
	})
	if err != nil {
		return result, fmt.Errorf("cancel run %s: %w", runID, err)
	}
	return result, nil
}
