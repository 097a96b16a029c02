package dispatch

import (
	"context"

	"kici/internal/server/queue"
)

// Drain stops or resumes the giving out of jobs on this node, and reports whether that was a change. Agents stay
// connected and jobs run on. It is kept in memory alone: a node that starts again works. Once it has returned nothing more
// is claimed, and what was counts as running.
func (d *Dispatcher) Drain(on bool) (changed bool) {
	changed = d.draining.Swap(on) != on
	d.claiming.Lock()
	defer d.claiming.Unlock() // what was being claimed has been
	if changed && on {
		d.log.Info("node drains: nothing more is given out")
	} else if changed {
		d.log.Info("node works again")
		d.poke.Wake()
	}
	return changed
}

// Draining tells whether this node gives out nothing.
func (d *Dispatcher) Draining() bool { return d.draining.Load() }

// Running counts the jobs that are with this node's agents: as the queue has it or as the agents say, whichever is more,
// since both count the same jobs and neither is told everything at once.
func (d *Dispatcher) Running(ctx context.Context) (int, error) {
	rows, err := queue.Dispatched(ctx, d.db.Read(), d.settings.NodeID)
	return max(rows, d.hub.Active()), err
}
