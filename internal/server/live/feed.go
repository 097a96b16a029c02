package live

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/kit/service"
	"kici/internal/server/report"
)

// The pace of a feed. A poke makes it look at once; without one it looks all the same, since what other nodes do wakes
// nobody here.
const (
	lookEvery = time.Second
	lookPause = 50 * time.Millisecond // after a look, so that a burst of changes is read together
)

// linger is how long a feed is kept without viewers, and after the end of its run, for those who come back.
const linger = 5 * time.Minute

// The bounds of what is kept for viewers who come back.
const (
	maxKept      = 1000    // messages
	maxKeptBytes = 1 << 20 // of lines
)

// feed watches one run for all its viewers on this node. What it holds can be read again at any time; only the numbers of
// its messages are its own, which is why they count only together with its epoch.
type feed struct {
	room  *Room
	runID string
	epoch string
	poke  service.Poke
	ready chan struct{}   // closed after the first look
	ended chan struct{}   // closed when nothing more comes
	live  context.Context // ends with the group, and when the feed has to make room
	stop  context.CancelFunc

	tails map[stepKey]*tail // of the looking goroutine alone

	mu        sync.Mutex
	picture   picture
	sequence  int64
	kept      []*adminwire.Observed
	keptBytes int
	viewers   map[*Viewer]struct{}
	idleSince time.Time // zero while somebody looks on
	caller    string    // the credential of who left last, or is about to join first
}

func newFeed(r *Room, runID, caller string) *feed {
	f := &feed{room: r, runID: runID, epoch: rand.Text()[:12], poke: service.NewPoke(), ready: make(chan struct{}), ended: make(chan struct{}),
		tails: map[stepKey]*tail{}, viewers: map[*Viewer]struct{}{}, idleSince: time.Now(), caller: caller}
	f.live, f.stop = context.WithCancel(r.group.Context())
	return f
}

// run looks until the run has ended or nobody has looked on for long.
func (f *feed) run(context.Context) error {
	ctx := f.live
	defer f.room.forget(f)
	defer f.stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		complete, err := f.look(ctx)
		switch {
		case complete:
			service.Sleep(ctx, linger)
			return nil
		case errors.Is(err, report.ErrNotFound):
			return nil // its history was removed meanwhile
		case err != nil && ctx.Err() == nil:
			f.room.Log.Error("look at run failed, the next look tries again", "run", f.runID, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.poke:
		case <-tick.C:
		}
		if f.idleFor() > linger || !service.Sleep(ctx, lookPause) {
			return nil
		}
	}
}

// idleFor is how long nobody has looked on.
func (f *feed) idleFor() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idleSince.IsZero() {
		return 0
	}
	return time.Since(f.idleSince)
}

// look reads the run and tells its viewers what has changed. The run is read before its jobs and those before their
// lines: who is told that something has ended has been told all of it.
func (f *feed) look(ctx context.Context) (complete bool, err error) {
	var next picture
	q := f.room.DB.Read()
	if next.run, _, err = report.RunOf(ctx, q, f.runID); err != nil {
		return false, err
	}
	if next.jobs, err = report.Jobs(ctx, q, f.runID, true); err != nil {
		return false, err
	}
	found := map[stepKey][]adminwire.Observed{}
	away, cancel := context.WithTimeout(ctx, awayTime)
	defer cancel()
	for _, j := range next.jobs {
		for _, s := range append([]adminwire.Step{j.OwnLog()}, j.Steps...) {
			lines, lineErr := f.newLines(ctx, away, j, s)
			found[stepKey{j.JobID, s.StepIndex}] = lines // what was read before an error is not read again
			err = errors.Join(err, lineErr)
		}
	}
	f.publish(next, found)
	return next.run.Status.Terminal() && err == nil, err
}

// publish numbers the changes, keeps them and gives them to every viewer.
func (f *feed) publish(next picture, found map[stepKey][]adminwire.Observed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sequence == 0 { // nobody has joined yet: who does gets this picture whole
		f.picture, f.sequence = next, 1
		close(f.ready)
		return
	}
	messages, leads := changes(f.picture, next, func(j adminwire.Job, s adminwire.Step) []adminwire.Observed {
		return found[stepKey{j.JobID, s.StepIndex}]
	})
	f.picture = next
	for _, m := range messages {
		f.sequence++
		m.Sequence, m.RunID = f.sequence, f.runID
		if m.Timestamp.IsZero() {
			m.Timestamp = adminwire.At(f.room.Clock.Millis())
		}
		f.keepLocked(&m)
		for v := range f.viewers {
			v.offerLocked(&m)
		}
	}
	if !leads {
		f.kept, f.keptBytes = nil, 0 // they lead to a picture with jobs that are no longer there
		for v := range f.viewers {
			v.resetLocked()
		}
	}
}

func (f *feed) keepLocked(m *adminwire.Observed) {
	f.kept = append(f.kept, m)
	f.keptBytes += size(*m)
	for len(f.kept) > maxKept || f.keptBytes > maxKeptBytes {
		f.keptBytes -= size(*f.kept[0])
		f.kept[0] = nil
		f.kept = f.kept[1:]
	}
}

// snapshotLocked is the whole picture at this moment. Later messages lead on from it.
func (f *feed) snapshotLocked() adminwire.Observed {
	run := f.picture.run
	return adminwire.Observed{Type: adminwire.ObserveSnapshot, Sequence: f.sequence, RunID: f.runID, Status: string(run.Status),
		Timestamp: adminwire.At(f.room.Clock.Millis()), Run: &run, Jobs: f.picture.jobs}
}

// join adds a viewer behind what it has seen. What is not kept any more, and what another feed has numbered, is made up
// for by the whole picture.
func (f *feed) join(v *Viewer, lastID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.viewers) >= maxViewersOfRun {
		return fmt.Errorf("%w: %d already look at run %s", ErrBusy, len(f.viewers), f.runID)
	}
	f.viewers[v] = struct{}{}
	f.idleSince = time.Time{}
	seen, ok := f.seenLocked(lastID)
	v.snapshot = !ok
	if ok {
		for _, m := range f.kept[len(f.kept)-int(f.sequence-seen):] {
			v.offerLocked(m)
		}
	}
	if f.picture.run.Status.Terminal() && (!ok || seen == f.sequence) {
		end := completeMessage(f.picture)
		end.Sequence = f.sequence
		v.offerLocked(&end)
	}
	return nil
}

// seenLocked reads the number in an id of this feed, behind which all messages are still kept.
func (f *feed) seenLocked(id string) (seen int64, ok bool) {
	epoch, number, found := strings.Cut(id, "-")
	if !found || epoch != f.epoch {
		return 0, false
	}
	seen, err := strconv.ParseInt(number, 10, 64)
	if err != nil || seen > f.sequence || f.sequence-seen > int64(len(f.kept)) {
		return 0, false
	}
	return seen, true
}

// leave takes a viewer out and tells whether it was there.
func (f *feed) leave(v *Viewer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, here := f.viewers[v]
	delete(f.viewers, v)
	if here && len(f.viewers) == 0 {
		f.idleSince, f.caller = time.Now(), v.caller
	}
	return here
}
