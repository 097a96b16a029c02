package report

import (
	"context"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// contextSlots is who has the slots of a group of contexts, and who waits for one, the oldest first.
type contextSlots struct {
	holders []string // jobs, for people
	waiting []string // ids of holds
}

// contextSlotsOf are those that jobs of a run wait for, by the ids of the holds. Sources share the slots of a context; jobs beyond
// the scope are not named.
func contextSlotsOf(ctx context.Context, q store.Querier, runID, scope string) (map[string]*contextSlots, error) {
	groups := map[[2]string]*contextSlots{}
	byHold := map[string]*contextSlots{}
	err := each(ctx, q, selectSlotHolds, []any{runID}, func(scan func(...any) error) error {
		var id string
		var group [2]string // organisation and name
		if err := scan(&id, &group[0], &group[1]); err != nil {
			return err
		}
		if groups[group] == nil {
			groups[group] = &contextSlots{}
		}
		byHold[id] = groups[group]
		return nil
	})
	if err != nil {
		return nil, err
	}
	for group, s := range groups {
		if err := s.fill(ctx, q, group, scope); err != nil {
			return nil, err
		}
	}
	return byHold, nil
}

func (s *contextSlots) fill(ctx context.Context, q store.Querier, group [2]string, scope string) error {
	err := each(ctx, q, selectSlotHolders, []any{group[0], group[1]}, func(scan func(...any) error) error {
		var job, run, routingKey string
		if err := scan(&job, &run, &routingKey); err != nil {
			return err
		}
		if scope != "" && routingKey != scope {
			s.holders = append(s.holders, foreign)
			return nil
		}
		s.holders = append(s.holders, fmt.Sprintf("%s of run %s", job, run))
		return nil
	})
	if err != nil {
		return err
	}
	return each(ctx, q, selectSlotWaiters, []any{group[0], group[1]}, func(scan func(...any) error) error {
		var id string
		if err := scan(&id); err != nil {
			return err
		}
		s.waiting = append(s.waiting, id)
		return nil
	})
}

// add says who has the slots that a hold waits for, and how many get one before it.
func (s *contextSlots) add(why ci.Reason, hold string) ci.Reason {
	ahead := 0
	for ahead < len(s.waiting) && s.waiting[ahead] != hold {
		ahead++
	}
	message := why.Message
	if len(s.holders) > 0 {
		message += "; now " + shortList(s.holders)
	}
	return ci.NewReason(why.Code, ci.CutText(fmt.Sprintf("%s; %s before it", message, plural(ahead, "job"))),
		map[string]any{"hold": hold, "holdType": ci.HoldConcurrency, "holders": s.holders[:min(len(s.holders), ci.MaxListEntries)], "ahead": ahead})
}

const (
	selectSlotHolds = `SELECT h.id, h.org_id, j.slot_group FROM held_runs h JOIN execution_jobs j ON j.job_id = h.job_id
WHERE h.run_id = $1 AND h.status = 'pending' AND h.hold_type = 'concurrency' AND j.slot_group IS NOT NULL`

	selectSlotHolders = `SELECT j.job_name, j.run_id, r.routing_key FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id
JOIN dispatch_queue q ON q.id = j.job_id WHERE r.org_id = $1 AND j.slot_group = $2 AND j.completed_at IS NULL
AND q.status IN ('pending', 'dispatched', 'recovering') ORDER BY q.created_at, q.id`

	selectSlotWaiters = `SELECT h.id FROM held_runs h JOIN execution_jobs j ON j.job_id = h.job_id
WHERE h.org_id = $1 AND j.slot_group = $2 AND h.status = 'pending' AND h.hold_type = 'concurrency' ORDER BY h.created_at, h.id`
)
