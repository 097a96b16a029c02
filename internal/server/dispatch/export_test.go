package dispatch

import "context"

// Watcher takes one sample of the queue at each call.
func (d *Dispatcher) Watcher(sampled func(Depth)) func(context.Context) error {
	return d.watcher(sampled)
}
