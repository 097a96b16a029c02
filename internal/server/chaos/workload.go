package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/kit/service"
	"kici/internal/rig"
)

// workload makes work for the system and watches what becomes of it.
type workload struct {
	*system
	maxOpen int // runs

	mu       sync.Mutex
	accepted []acceptance
	reruns   []rerun
	seen     map[string]told // of ended runs, what was told first
	denied   []sighting      // what was told otherwise later
	open     []string        // runs that have not ended, as of the last look
	total    int             // runs at all
}

// told is what a server said of an ended run, and when.
type told struct {
	status ci.RunStatus
	at     time.Time
}

// The rhythm of the workload.
const (
	pushEvery   = 250 * time.Millisecond
	watchEvery  = 200 * time.Millisecond
	meddleEvery = 1500 * time.Millisecond
	answerTime  = 5 * time.Second // a sender that waits longer for its answer sends again
	forcedShare = 4               // one cancel in so many is forced
	repeatShare = 3               // one meddling in so many repeats a run
)

// openStatuses are those of runs that have not ended.
const openStatuses = "pending,running,held,cancelling"

// push sends pushes until ctx ends, fewer while many runs are open. Each is sent until a server has accepted it, until
// life ends.
func (w *workload) push(ctx, life context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		w.pushOne(life, fmt.Sprint("push-", n))
		for service.Sleep(ctx, pushEvery) && w.openRuns() >= w.maxOpen {
		}
	}
}

func (w *workload) openRuns() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	accepted := len(w.accepted)*len(workflowJobs) + len(w.reruns)
	return max(len(w.open), accepted-w.total) // what was accepted and is no run yet counts too
}

func (w *workload) pushOne(life context.Context, mark string) {
	p := rig.Push{URL: "http://" + w.senders.address(), Mark: mark,
		More: map[string]any{"chaos": map[string]string{"script": w.script(), "ledger": w.ledger(), "mark": mark}}}
	for life.Err() == nil {
		ctx, cancel := context.WithTimeout(life, answerTime)
		d, err := w.Send(ctx, p)
		cancel()
		if err == nil {
			w.mu.Lock()
			w.accepted = append(w.accepted, acceptance{Mark: mark, Delivery: d.ID})
			w.mu.Unlock()
			return
		}
		service.Sleep(life, pushEvery) // as a forge does
	}
}

// watch looks at the runs until ctx ends.
func (w *workload) watch(ctx context.Context) {
	for service.Sleep(ctx, watchEvery) {
		_ = w.look(ctx) // a server that is down has nothing to say
	}
}

// look notes the newest runs and which are open.
func (w *workload) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	asked := time.Now()
	api, err := w.anyAPI()
	if err != nil {
		return err
	}
	newest, err := api.Runs(ctx, client.RunQuery{Limit: 100})
	if err != nil {
		return err
	}
	open, err := api.Runs(ctx, client.RunQuery{Status: openStatuses, Limit: 100})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total = max(w.total, newest.Total) // a slow answer may be older than the last
	w.open = nil
	for _, r := range open.Runs {
		w.open = append(w.open, r.RunID)
	}
	for _, r := range newest.Runs {
		w.noteLocked(r.RunID, r.Status, asked)
	}
	return nil
}

// noteLocked holds the servers to what one said of an ended run. An answer to a question from before is no denial.
func (w *workload) noteLocked(run string, status ci.RunStatus, asked time.Time) {
	first, known := w.seen[run]
	switch {
	case !known && status.Terminal():
		w.seen[run] = told{status, time.Now()}
	case known && status != first.status && asked.After(first.at):
		w.denied = append(w.denied, sighting{Run: run, Status: status})
	}
}

// meddle cancels runs and repeats others, until ctx ends.
func (w *workload) meddle(ctx context.Context) {
	for service.Sleep(ctx, time.Duration(rand.Int64N(int64(2*meddleEvery)))) {
		open, ended := w.known()
		switch {
		case rand.IntN(repeatShare) == 0 && len(ended) > 0:
			w.repeat(ctx, ended[rand.IntN(len(ended))])
		case len(open) > 0:
			w.cancel(ctx, open[rand.IntN(len(open))])
		}
	}
}

// known lists the runs that were open when they were last looked at, and those that have ended.
func (w *workload) known() (open, ended []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open, slices.Collect(maps.Keys(w.seen))
}

func (w *workload) repeat(ctx context.Context, run string) {
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	api, err := w.anyAPI()
	if err != nil {
		return
	}
	made, err := api.Rerun(ctx, run)
	if err != nil {
		return // it was repeated a moment ago, or the server is down
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reruns = append(w.reruns, rerun{Run: made.RunID, Parent: run})
}

func (w *workload) cancel(ctx context.Context, run string) {
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	api, err := w.anyAPI()
	if err != nil {
		return
	}
	asked := time.Now()
	result, err := api.Cancel(ctx, run, rand.IntN(forcedShare) == 0)
	if err != nil {
		return // it has ended, or the server is down
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(run, result.Status, asked)
}

// settle waits until every run has ended, for a bounded time, and gives those that have not.
func (w *workload) settle(ctx context.Context, limit time.Duration) []openRun {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if err := w.look(ctx); err == nil && w.openRuns() == 0 {
			return nil
		}
		if !service.Sleep(ctx, watchEvery) {
			return w.explain(context.WithoutCancel(ctx))
		}
	}
}

// explain asks a server about every open run.
func (w *workload) explain(ctx context.Context) (out []openRun) {
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	for _, run := range open {
		x, err := w.explainOne(ctx, run)
		raw, _ := json.Marshal(x) // it came out of JSON
		o := openRun{Run: run, Explanation: string(raw)}
		if err != nil {
			o.Explanation = err.Error()
		}
		out = append(out, o)
	}
	return out
}

func (w *workload) explainOne(ctx context.Context, run string) (adminwire.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	api, err := w.anyAPI()
	if err != nil {
		return adminwire.Explanation{}, err
	}
	return api.Explain(ctx, run)
}

// testify gives what the workload has seen.
func (w *workload) testify(f *facts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.Accepted, f.Reruns = w.accepted, w.reruns
	for run, first := range w.seen {
		f.Seen = append(f.Seen, sighting{Run: run, Status: first.status})
	}
	f.Seen = append(f.Seen, w.denied...)
}
