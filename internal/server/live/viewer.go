package live

import (
	"context"
	"fmt"
	"io"

	"kici/internal/core/adminwire"
	"kici/internal/kit/service"
)

// The bounds of what waits for one viewer. Lines beyond them are left out, with a message that says how many; states are
// never left out. A viewer for whom even those are too many gets the whole picture anew.
const (
	maxQueuedLogs   = 200     // messages with lines
	maxQueuedBytes  = 1 << 20 // of lines
	maxQueuedStates = 4096    // other messages
)

// Viewer is one who looks on. Its messages wait in a bounded queue, so that a slow one holds up nobody.
type Viewer struct {
	feed   *feed
	caller string
	wake   service.Poke

	// Guarded by the feed's mutex.
	queue    []*adminwire.Observed
	logs     int
	bytes    int
	gaps     map[stepKey]*adminwire.Observed // the queued gap of a step, which grows while lines of it are left out
	snapshot bool                            // the whole picture is due before anything else
	done     bool                            // the end of the run has been given out
}

// Next gives the next message with the id by which a later connection goes on after it. It waits for one, and ends with
// io.EOF behind the end of the run and when the room stops.
func (v *Viewer) Next(ctx context.Context) (m adminwire.Observed, id string, err error) {
	for {
		m, id, ok, end := v.take()
		switch {
		case ok:
			return m, id, nil
		case end:
			return m, "", io.EOF
		}
		select {
		case <-v.wake:
		case <-v.feed.ended:
			if m, id, ok, _ := v.take(); ok {
				return m, id, nil
			}
			return m, "", io.EOF
		case <-ctx.Done():
			return m, "", context.Cause(ctx)
		}
	}
}

// Close ends the looking on.
func (v *Viewer) Close() {
	if v.feed.leave(v) {
		v.feed.room.left()
	}
}

func (v *Viewer) take() (m adminwire.Observed, id string, ok, end bool) {
	f := v.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.snapshot {
		v.snapshot = false
		m = f.snapshotLocked()
		return m, f.id(m.Sequence), true, false
	}
	if len(v.queue) == 0 {
		return m, "", false, v.done
	}
	next := v.queue[0]
	v.queue[0] = nil
	v.queue = v.queue[1:]
	switch next.Type {
	case adminwire.ObserveLog:
		v.logs--
		v.bytes -= size(*next)
	case adminwire.ObserveGap:
		delete(v.gaps, keyOf(*next))
	}
	return *next, f.id(next.Sequence), true, false
}

// offerLocked puts a message into the queue, or leaves lines out.
func (v *Viewer) offerLocked(m *adminwire.Observed) {
	defer v.wake.Wake()
	if m.Type == adminwire.ObserveComplete {
		v.done = true
	}
	if v.snapshot && !v.done {
		return // the picture that is due holds it
	}
	if m.Type != adminwire.ObserveLog {
		v.queue = append(v.queue, m)
		if len(v.queue)-v.logs > maxQueuedStates {
			v.resetLocked()
		}
		return
	}
	bytes := size(*m)
	gap := v.gaps[keyOf(*m)]
	room := v.logs == 0 || v.logs < maxQueuedLogs && v.bytes+bytes <= maxQueuedBytes // a single giant passes
	if gap == nil && room {
		v.queue = append(v.queue, m)
		v.logs++
		v.bytes += bytes
		return
	}
	if gap == nil {
		gap = gapOf(*m)
		v.gaps[keyOf(*m)] = gap
		v.queue = append(v.queue, gap)
	}
	gap.DroppedLineCount += int64(len(m.Lines))
}

// resetLocked forgets what waits but for the end: the whole picture says as much.
func (v *Viewer) resetLocked() {
	var end []*adminwire.Observed
	if n := len(v.queue); v.done && n > 0 {
		end = v.queue[n-1:]
	}
	v.queue, v.logs, v.bytes, v.gaps, v.snapshot = end, 0, 0, map[stepKey]*adminwire.Observed{}, true
	v.wake.Wake()
}

// gapOf stands where lines are left out, with the sequence of the first message that is: who comes back after it gets the
// others, where they are still kept.
func gapOf(m adminwire.Observed) *adminwire.Observed {
	m.Type, m.Lines = adminwire.ObserveGap, nil
	return &m
}

func keyOf(m adminwire.Observed) stepKey { return stepKey{m.JobID, *m.StepIndex} }

// size is the bytes of the lines of a message.
func size(m adminwire.Observed) int {
	n := 0
	for _, l := range m.Lines {
		n += len(l)
	}
	return n
}

func (f *feed) id(sequence int64) string { return fmt.Sprintf("%s-%d", f.epoch, sequence) }
