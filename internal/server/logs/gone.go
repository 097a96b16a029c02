package logs

import (
	"context"
	"fmt"
	"time"

	"kici/internal/server/logs/retention"
	"kici/internal/server/store"
)

// goneBatch is how many runs of a folder are looked at with one query.
const goneBatch = 1000

// sweepGone deletes the short logs of nodes that are gone for good, which nobody can read. Any node does, by age alone, since
// a node's own sweep comes first by a day: what is in a folder that has had nothing for longer is nobody's. Only a run that
// has not ended keeps its logs there, too, since its node may be one that has been idle for as long.
func (s *Store) sweepGone(ctx context.Context, keep retention.Policy) error {
	if s.rows == nil || keep.Age() <= 0 {
		return nil
	}
	before := time.Now().Add(-keep.Age() - markPeriod).UnixMilli()
	folders, err := store.Texts(ctx, s.rows.db.Read(), selectGone, s.rows.folder, before)
	if err != nil {
		return fmt.Errorf("look for logs of nodes that are gone: %w", err)
	}
	for _, folder := range folders {
		if err := s.sweepFolder(ctx, keep, &rows{db: s.rows.db, folder: folder}); err != nil {
			return fmt.Errorf("delete logs of a node that is gone: %w", err)
		}
	}
	return nil
}

func (s *Store) sweepFolder(ctx context.Context, keep retention.Policy, gone *rows) error {
	for last := ""; ; {
		runs, err := store.Texts(ctx, gone.db.Read(), selectRunsOf, gone.folder, last, goneBatch)
		if err != nil || len(runs) == 0 {
			return err
		}
		for _, run := range runs {
			last = run
			state, err := keep.StateOf(ctx, run)
			if err != nil {
				return err
			}
			if state == retention.RunOpen {
				continue
			}
			if err := gone.removeRun(ctx, run); err != nil {
				return err
			}
		}
	}
}

const (
	selectGone = `SELECT folder FROM short_logs WHERE folder <> $1 GROUP BY folder HAVING max(written_at) < $2`

	selectRunsOf = `SELECT DISTINCT run_id FROM short_logs WHERE folder = $1 AND run_id > $2 ORDER BY run_id LIMIT $3`
)
