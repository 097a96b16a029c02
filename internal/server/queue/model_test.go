package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/server/queue"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// row is what the model knows of a queue row.
type row struct {
	status   ci.QueueStatus
	agent    string
	attempts int
	started  bool
	unacked  bool
	expires  int64
	claims   int  // deliveries ever
	open     bool // a delivery that has not ended
}

func (r *row) held() bool { return r.status == ci.QueueDispatched || r.status == ci.QueueRecovering }

// machine runs the statements of the queue beside the model of what they should do.
type machine struct {
	db   *store.DB
	ctx  context.Context
	sel  string
	rows map[string]*row
	room map[string]int
	now  int64
}

const modelNode = "n"

func (m *machine) write(t *rapid.T, fn func(ctx context.Context, tx *store.Tx) error) {
	if err := m.db.Write(m.ctx, fn); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) holds(agent string) (n int) {
	for _, r := range m.rows {
		if r.held() && r.agent == agent {
			n++
		}
	}
	return n
}

func (m *machine) drawJob(t *rapid.T) string {
	return rapid.SampledFrom(append(slices.Sorted(maps.Keys(m.rows)), "unknown")).Draw(t, "job")
}

// change runs a statement about a random job, and requires that it reports a change exactly when the model has one.
func (m *machine) change(t *rapid.T, allowed func(*row) bool, apply func(*row), do func(ctx context.Context, tx *store.Tx, job string) error) {
	job := m.drawJob(t)
	r := m.rows[job]
	want := r != nil && allowed(r)
	got := m.changes(t, func(ctx context.Context, tx *store.Tx) error { return do(ctx, tx, job) })
	if got != want {
		t.Fatalf("job %s changed: %v, want %v (%+v)", job, got, want, r)
	}
	if want {
		apply(r)
	}
}

// changes runs a conditional change and tells whether it found what it asks for.
func (m *machine) changes(t *rapid.T, do func(ctx context.Context, tx *store.Tx) error) bool {
	err := m.db.Write(m.ctx, do)
	if err != nil && !errors.Is(err, store.ErrUnchanged) {
		t.Fatal(err)
	}
	return err == nil
}

// Enqueue adds a job, or one that is there already.
func (m *machine) Enqueue(t *rapid.T) {
	job := fmt.Sprint("job-", rapid.IntRange(0, 9).Draw(t, "n"))
	expires := rapid.SampledFrom([]int64{0, m.now + 5}).Draw(t, "expires")
	added := m.changes(t, func(ctx context.Context, tx *store.Tx) error {
		return queue.Enqueue(ctx, tx, job, "run", m.sel, m.now, 0, expires)
	})
	if known := m.rows[job] != nil; added == known {
		t.Fatalf("job %s was known: %v, added: %v", job, known, added)
	}
	if added {
		m.rows[job] = &row{status: ci.QueuePending, expires: expires}
	}
}

// Claim offers random jobs to random agents in one call, as a dispatcher does that has read the queue some time ago.
func (m *machine) Claim(t *rapid.T) {
	jobs := rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 1, 5, rapid.ID).Draw(t, "jobs")
	var offers []queue.Offer
	var want []string
	given := map[string]int{}
	for _, n := range jobs {
		agent := rapid.SampledFrom(slices.Sorted(maps.Keys(m.room))).Draw(t, "agent")
		o := queue.Offer{JobID: fmt.Sprint("job-", n), AgentID: agent, Room: m.room[agent] - given[agent]}
		given[agent]++
		offers = append(offers, o)
		r := m.rows[o.JobID]
		if r != nil && r.status == ci.QueuePending && (r.expires == 0 || r.expires >= m.now) && m.holds(agent) < o.Room {
			want = append(want, o.JobID)
		}
	}
	var got []string
	m.write(t, func(ctx context.Context, tx *store.Tx) (err error) {
		got, err = queue.ClaimAll(ctx, tx, offers, modelNode, queue.Moment{Now: m.now, AsOf: m.now, AckDeadline: m.now + 10})
		return err
	})
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("claimed (-want +got):\n%s", d)
	}
	for _, o := range offers {
		if slices.Contains(want, o.JobID) {
			r := m.rows[o.JobID]
			r.status, r.agent, r.unacked, r.started, r.open = ci.QueueDispatched, o.AgentID, true, false, true
			r.claims++
		}
	}
}

func (m *machine) Acknowledge(t *rapid.T) {
	m.change(t, func(r *row) bool { return r.status == ci.QueueDispatched }, func(r *row) { r.unacked = false }, queue.Acknowledge)
}

func (m *machine) Start(t *rapid.T) {
	m.change(t, func(r *row) bool { return r.status == ci.QueueDispatched }, func(r *row) { r.started, r.unacked = true, false }, queue.Start)
}

func (m *machine) Resume(t *rapid.T) {
	m.change(t, func(r *row) bool { return r.status == ci.QueueRecovering },
		func(r *row) { r.status, r.started, r.unacked = ci.QueueDispatched, true, false }, queue.Resume)
}

func (m *machine) Reclaim(t *rapid.T) {
	m.change(t, (*row).held, func(r *row) { r.status, r.started, r.unacked = ci.QueueDispatched, true, false },
		func(ctx context.Context, tx *store.Tx, job string) error {
			return queue.Reclaim(ctx, tx, job, "m", m.now)
		})
}

func (m *machine) Recover(t *rapid.T) {
	m.change(t, func(r *row) bool { return r.status == ci.QueueDispatched }, func(r *row) { r.status = ci.QueueRecovering },
		func(ctx context.Context, tx *store.Tx, job string) error {
			return queue.Recover(ctx, tx, job, m.now+7)
		})
}

func (m *machine) Requeue(t *rapid.T) {
	m.change(t, (*row).held, func(r *row) {
		r.status, r.agent, r.started, r.unacked, r.open = ci.QueuePending, "", false, false, false
		r.attempts++
		if r.expires == 0 {
			r.expires = m.now + 20
		}
	}, func(ctx context.Context, tx *store.Tx, job string) error {
		return queue.Requeue(ctx, tx, job, "why", m.now, m.now+20)
	})
}

func (m *machine) Release(t *rapid.T) {
	m.change(t, func(r *row) bool { return r.status == ci.QueueDispatched && !r.started && r.unacked },
		func(r *row) { r.status, r.agent, r.unacked, r.open = ci.QueuePending, "", false, false },
		func(ctx context.Context, tx *store.Tx, job string) error {
			return queue.Release(ctx, tx, job, "why", m.now)
		})
}

// end is an operation that ends rows.
func (m *machine) end(t *rapid.T, status ci.QueueStatus, allowed func(*row) bool, do func(ctx context.Context, tx *store.Tx, jobID, why string, now int64) error) {
	m.change(t, allowed, func(r *row) { r.status, r.unacked, r.open = status, false, false },
		func(ctx context.Context, tx *store.Tx, job string) error {
			return do(ctx, tx, job, "why", m.now)
		})
}

func (m *machine) Complete(t *rapid.T) { m.end(t, ci.QueueCompleted, (*row).held, queue.Complete) }

func (m *machine) Fail(t *rapid.T) {
	m.end(t, ci.QueueFailed, func(r *row) bool { return r.held() || r.status == ci.QueuePending }, queue.Fail)
}

func (m *machine) Expire(t *rapid.T) {
	m.end(t, ci.QueueExpired, func(r *row) bool { return r.status == ci.QueuePending }, queue.Expire)
}

func (m *machine) Wait(t *rapid.T) { m.now += int64(rapid.IntRange(1, 10).Draw(t, "ms")) }

// Check compares everything that the queue says with the model.
func (m *machine) Check(t *rapid.T) {
	held := map[string]int{}
	pending := false
	var line []string
	for job, want := range m.rows {
		m.compare(t, job, want)
		if want.held() {
			held[want.agent]++
		}
		pending = pending || want.status == ci.QueuePending
		if want.status == ci.QueuePending && (want.expires == 0 || want.expires >= m.now) {
			line = append(line, job)
		}
	}
	for agent, n := range held {
		if n > m.room[agent] {
			t.Fatalf("agent %s holds %d jobs and has room for %d", agent, n, m.room[agent])
		}
	}
	got, err := queue.Held(m.ctx, m.db.Read())
	if d := cmp.Diff(held, got); err != nil || d != "" {
		t.Fatalf("held (-want +got): %v\n%s", err, d)
	}
	var demand queue.Demand
	var heads []queue.Head
	var jobs []string
	err = m.db.Read().All(m.ctx, queue.AskDemand(&demand), queue.AskLine(m.sel, m.now, 100, func(h queue.Head) {
		heads = append(heads, h)
		jobs = append(jobs, h.JobID)
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := queue.Demand{Held: map[string]int{}}
	if pending {
		want = queue.Demand{Selectors: []string{m.sel}, Held: held}
	}
	if d := cmp.Diff(want, demand); d != "" {
		t.Fatalf("demanded (-want +got):\n%s", d)
	}
	if !slices.IsSortedFunc(heads, queue.Head.Compare) {
		t.Fatalf("the line is out of order: %+v", heads)
	}
	slices.Sort(jobs)
	slices.Sort(line)
	if d := cmp.Diff(line, jobs); d != "" {
		t.Fatalf("in line (-want +got):\n%s", d)
	}
}

func (m *machine) compare(t *rapid.T, job string, want *row) {
	var got queue.Row
	var claims, open int
	m.write(t, func(ctx context.Context, tx *store.Tx) (err error) {
		if got, _, err = queue.ByJob(ctx, tx, job); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE ended_at IS NULL) FROM dispatch_attempts WHERE job_id = $1", job).Scan(&claims, &open)
	})
	agent := want.agent
	if got.Status != want.status || got.AgentID != agent || got.Attempts != want.attempts || got.Started != want.started && want.held() ||
		(got.AckDeadline != 0) != want.unacked || got.ExpiresAt != want.expires || (got.RecoveryDeadline != 0) != (want.status == ci.QueueRecovering) {
		t.Fatalf("job %s is %+v, want %+v", job, got, *want)
	}
	if claims != want.claims || (open == 1) != want.open {
		t.Fatalf("job %s was delivered %d times, %d open; want %+v", job, claims, open, *want)
	}
}

func TestStatementsDoWhatTheModelSays(t *testing.T) {
	storetest.Check(t, func(t *testing.T, rt *rapid.T, db *store.DB) {
		m := &machine{db: db, ctx: t.Context(), rows: map[string]*row{}, room: map[string]int{"a": 1, "b": 3}, now: 100}
		m.write(rt, func(ctx context.Context, tx *store.Tx) (err error) {
			for _, table := range []string{"dispatch_queue", "dispatch_attempts"} {
				if _, err := tx.ExecContext(ctx, "DELETE FROM "+table); err != nil {
					return err
				}
			}
			m.sel, err = queue.Intern(ctx, tx, label.Selector{Labels: []string{"linux"}})
			return err
		})
		rt.Repeat(rapid.StateMachineActions(m))
	})
}
