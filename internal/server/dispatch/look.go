package dispatch

import (
	"context"
	"fmt"
	"slices"

	"kici/internal/core/label"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// maxForeseen bounds the lines that are read on a guess, since PostgreSQL reads them even where nothing is demanded. Where
// more are wanted, each look asks twice.
const maxForeseen = 4

// vacancy is an agent that has room.
type vacancy struct {
	Agent
	left  int // jobs that it can still take
	given int // jobs that this match gives it
}

// waiter is a pending job and what it demands.
type waiter struct {
	queue.Head
	selector label.Selector
}

// line is the pending jobs of one selector, oldest first.
type line struct {
	selector label.Selector
	limit    int // how many are read of it
	heads    []queue.Head
}

func (l *line) ask(id string, asOf int64) store.Ask {
	return queue.AskLine(id, asOf, l.limit, func(h queue.Head) { l.heads = append(l.heads, h) })
}

// look lists, by name, this node's agents with what room they have, and, oldest first, the pending jobs that fit some of
// them, as many as can be given at once. A pin is part of the selector, so a pinned job stands in a line of its own.
// One look mostly wants the lines of the one before, so they are asked for together with what is demanded at all; what it
// wants beyond them is asked for after that. The agents are listed in between: most looks find the queue empty, and agents
// are many.
func (d *Dispatcher) look(ctx context.Context, lost map[string]bool) ([]vacancy, []waiter, error) {
	asOf := d.asOf(d.settings.QueueTimeout)
	demand, guessed, err := d.guess(ctx, asOf)
	if err != nil || len(demand.Selectors) == 0 {
		return nil, nil, err
	}
	agents := slices.DeleteFunc(d.hub.Ready(), func(a Agent) bool { return lost[a.ConnectionID] })
	wanted, err := d.wanted(ctx, demand.Selectors, agents)
	if err != nil {
		return nil, nil, err
	}
	var asks []store.Ask
	for id, l := range wanted {
		if g := guessed[id]; g != nil && g.limit >= l.limit {
			l.heads = g.heads
		} else {
			asks = append(asks, l.ask(id, asOf))
		}
	}
	if err := d.read(ctx, asks); err != nil {
		return nil, nil, err
	}
	d.foresee(wanted)
	return vacancies(agents, demand.Held), inOrder(wanted), nil
}

// guess reads what is demanded and, by selector, the lines that are foreseen.
func (d *Dispatcher) guess(ctx context.Context, asOf int64) (demand queue.Demand, lines map[string]*line, err error) {
	asks := []store.Ask{queue.AskDemand(&demand)}
	lines = make(map[string]*line, len(d.foreseen))
	for id, limit := range d.foreseen {
		l := &line{limit: limit}
		ask := l.ask(id, asOf)
		ask.Idle = func() bool { return !slices.Contains(demand.Selectors, id) }
		lines[id], asks = l, append(asks, ask)
	}
	err = d.read(ctx, asks)
	return demand, lines, err
}

func (d *Dispatcher) read(ctx context.Context, asks []store.Ask) error {
	if len(asks) == 0 {
		return nil
	}
	if err := d.db.Read().All(ctx, asks...); err != nil {
		return fmt.Errorf("read the queue: %w", err)
	}
	return nil
}

// wanted are the lines whose jobs fit some of the agents, by selector and not read yet.
func (d *Dispatcher) wanted(ctx context.Context, demanded []string, agents []Agent) (map[string]*line, error) {
	resting := d.unsent.wake(d.clock.Millis())
	wanted := map[string]*line{}
	for _, id := range demanded {
		s, err := d.selector(ctx, id)
		if err != nil {
			return nil, err
		}
		if room := roomFor(s, agents); room > 0 {
			wanted[id] = &line{selector: s, limit: room + resting}
		}
	}
	return wanted, nil
}

// foresee has the next look guess that it wants what this one did.
func (d *Dispatcher) foresee(wanted map[string]*line) {
	d.foreseen = map[string]int{}
	if len(wanted) > maxForeseen {
		return
	}
	for id, l := range wanted {
		d.foreseen[id] = l.limit
	}
}

func (d *Dispatcher) selector(ctx context.Context, id string) (label.Selector, error) {
	if s, ok := d.selectors.Get(id); ok {
		return s, nil
	}
	s, err := queue.Selector(ctx, d.db.Read(), id)
	if err != nil {
		return s, err
	}
	d.selectors.Add(id, s)
	return s, nil
}

// roomFor counts the jobs of one selector that the agents could take if they held none, up to what can be given at once.
func roomFor(s label.Selector, agents []Agent) (room int) {
	for _, a := range agents {
		if s.Matches(a.Agent) {
			room += a.MaxConcurrency
		}
		if room >= queue.MaxOffers {
			return queue.MaxOffers
		}
	}
	return room
}

func vacancies(agents []Agent, held map[string]int) []vacancy {
	out := make([]vacancy, 0, len(agents))
	for _, a := range agents {
		if left := a.MaxConcurrency - held[a.ID]; left > 0 {
			out = append(out, vacancy{Agent: a, left: left})
		}
	}
	return out
}

// inOrder lists the jobs of all lines, oldest first.
func inOrder(lines map[string]*line) (waiting []waiter) {
	for _, l := range lines {
		for _, h := range l.heads {
			waiting = append(waiting, waiter{h, l.selector})
		}
	}
	slices.SortFunc(waiting, func(a, b waiter) int { return a.Compare(b.Head) })
	return waiting
}
