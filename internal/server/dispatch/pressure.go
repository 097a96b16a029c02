package dispatch

import (
	"context"
	"time"

	"kici/internal/kit/service"
	"kici/internal/server/queue"
)

// sampleEvery is how often the depth of the queue is taken.
const sampleEvery = 5 * time.Second

// Depth is how many jobs wait for an agent and are with one.
type Depth struct {
	Pending    int
	Dispatched int
	ByLabel    map[string]int // pending ones; a job counts once under each label that it names
	OldestAge  time.Duration  // of the job that waits for longest
	Pressed    bool           // the queue was too deep twice in a row and has not recovered since
}

// Depth is the latest sample of the whole queue, over all nodes. It is empty before the first one.
func (d *Dispatcher) Depth() Depth {
	if s := d.sample.Load(); s != nil {
		return *s
	}
	return Depth{}
}

// Watch takes the depth of the queue again and again until ctx ends, and says when it is too deep for long. sampled is
// told of every sample.
func (d *Dispatcher) Watch(ctx context.Context, sampled func(Depth)) error {
	return service.Every(ctx, d.log, "queue depth", sampleEvery, nil, d.watcher(sampled))
}

// watcher is what takes one sample after the other.
func (d *Dispatcher) watcher(sampled func(Depth)) func(context.Context) error {
	var p pressure
	return func(ctx context.Context) error {
		depth, err := d.measure(ctx)
		if err != nil {
			return err
		}
		was := p.sustained
		p = p.next(depth.Pending, d.settings.PressureAt)
		depth.Pressed = p.sustained
		switch {
		case p.sustained && !was:
			d.log.Warn("queue.backpressure.sustained", "depth", depth.Pending, "threshold", d.settings.PressureAt, "oldest", depth.OldestAge)
		case was && !p.sustained:
			d.log.Info("queue.backpressure.recovered", "depth", depth.Pending, "threshold", d.settings.PressureAt)
		}
		d.sample.Store(&depth)
		sampled(depth)
		return nil
	}
}

func (d *Dispatcher) measure(ctx context.Context) (Depth, error) {
	depth := Depth{ByLabel: map[string]int{}}
	var err error
	if depth.Dispatched, err = queue.Dispatched(ctx, d.db.Read(), ""); err != nil {
		return depth, err
	}
	waiting, err := queue.WaitingBySelector(ctx, d.db.Read())
	if err != nil {
		return depth, err
	}
	now := d.clock.Millis()
	for _, w := range waiting {
		s, err := d.selector(ctx, w.SelectorID)
		if err != nil {
			return depth, err
		}
		for _, l := range s.Labels {
			depth.ByLabel[l] += w.Rows
		}
		depth.Pending += w.Rows
		depth.OldestAge = max(depth.OldestAge, time.Duration(now-w.Oldest)*time.Millisecond)
	}
	return depth, nil
}

// pressure follows whether the queue is too deep. One deep sample is a burst and no news.
type pressure struct {
	deep      bool // the last sample was
	sustained bool
}

// next is the pressure after one more sample. A threshold of 0 never presses.
func (p pressure) next(pending, threshold int) pressure {
	deep := threshold > 0 && pending >= threshold
	return pressure{deep: deep, sustained: deep && (p.deep || p.sustained)}
}
