package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// awaySecrets has nothing for some jobs, as if the store that has it did not answer.
type awaySecrets struct {
	askNothing
	away map[string]bool
}

func (s awaySecrets) ForJob(_ context.Context, in engine.Input, _ dispatch.Known, _ string) (dispatch.Grant, error) {
	if s.away[in.JobID] {
		return dispatch.Grant{}, errors.New("the vault does not answer")
	}
	return dispatch.Grant{}, nil
}

// stands is how the queue and the job's own row have it.
func (b *bench) stands(job string) (out string) {
	b.t.Helper()
	err := b.db.Read().QueryRowContext(b.t.Context(), `SELECT q.status || ' attempts=' || CAST(q.attempts AS TEXT) || ' ' || j.status || ' ' || coalesce(j.reason, '')
FROM dispatch_queue q JOIN execution_jobs j ON j.job_id = q.id WHERE q.id = $1`, job).Scan(&out)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

const deferredJob = `pending attempts=0 pending {"code":"dispatch_deferred","message":"what its agent needs could not be read just now, the server's log says why; it is offered again","details":{"agent":"a"}}`

func TestAJobWhoseSecretsAreAwayWaitsAtNoCost(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}}
		secrets := awaySecrets{away: map[string]bool{"j": true}}
		b := newBench(t, db, hub, secrets)
		b.register("j", on("linux"))
		b.register("next", on("linux"))
		for try := range 7 {
			if err := b.d.Pass(t.Context()); err == nil {
				t.Fatalf("try %d: no error tells of it", try)
			}
			if got := b.stands("j"); got != deferredJob {
				t.Fatalf("try %d: %s", try, got)
			}
			b.now.Add(6000)
		}
		if n := count(t, db, "SELECT count(*) FROM outbox"); n != 0 {
			t.Errorf("the agent is told %d things of what it has never heard of", n)
		}
		b.now.Add(-6000)
		if diff := cmp.Diff([]string{"a next"}, b.pass()); diff != "" {
			t.Errorf("sent while the first rests (-want +got):\n%s", diff)
		}
		delete(secrets.away, "j")
		hub.agents = append(hub.agents, agent("b", 1, "linux"))
		if sent := b.pass(); len(sent) != 0 {
			t.Errorf("sent %q before it has rested", sent)
		}
		b.now.Add(6000)
		if diff := cmp.Diff([]string{"b j"}, b.pass()); diff != "" {
			t.Errorf("sent once it has (-want +got):\n%s", diff)
		}
	})
}

// forgetful is an engine that cannot store that a job is given back, a number of times.
type forgetful struct {
	*engine.Engine
	times *int
}

func (f forgetful) Deferred(ctx context.Context, agentID, jobID string, at int64) error {
	if *f.times > 0 {
		*f.times--
		return errors.New("the database is away")
	}
	return f.Engine.Deferred(ctx, agentID, jobID, at)
}

func TestNothingIsGivenOutBeforeWhatWasNotSentIsGivenBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		hub := &fakeHub{agents: []dispatch.Agent{agent("a", 2, "linux")}}
		times := 3
		b := newBenchOf(t, db, hub, awaySecrets{away: map[string]bool{"j": true}}, func(e *engine.Engine) dispatch.Engine { return forgetful{e, &times} })
		b.register("j", on("linux"))
		for range times {
			if err := b.d.Pass(t.Context()); err == nil {
				t.Fatal("no error")
			}
			b.register(fmt.Sprint("later-", times), on("linux"))
		}
		if len(hub.sent) > 0 {
			t.Errorf("sent %q", hub.sent)
		}
		if diff := cmp.Diff([]string{"a later-2", "a later-1"}, b.pass()); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		if got := b.stands("j"); got != deferredJob {
			t.Error(got)
		}
	})
}

// TestAClaimWhoseAnswerIsLostIsGivenBack cuts the connection to the database after more and more bytes of its answers to a
// pass. Whatever the claim has come to, the job is sent once the database is there, and it has cost no attempt.
func TestAClaimWhoseAnswerIsLostIsGivenBack(t *testing.T) {
	db, scissors := storetest.Faulty(t, storetest.PostgresURL(t))
	hub := &fakeHub{agents: []dispatch.Agent{agent("a", 1, "linux")}}
	b := newBench(t, db, hub, fakeSecrets{})
	lost := 0
	for bytes := 0; ; bytes += 40 {
		job := fmt.Sprint("j", bytes)
		b.register(job, on("linux"))
		hub.sent = nil
		scissors.CutAfter(bytes, false)
		err := b.d.Pass(t.Context())
		whole, sent := !scissors.Mend() && err == nil, hub.sent
		if err != nil && len(sent) == 0 && count(t, db, "SELECT count(*) FROM dispatch_queue WHERE status = 'dispatched'") > 0 {
			lost++
		}
		b.now.Add(6000)
		if sent = append(sent, b.pass()...); len(sent) != 1 || sent[0] != "a "+job {
			t.Fatalf("cut after %d bytes: sent %q (%v)", bytes, sent, err)
		}
		if n := b.attempts(job); n != 0 {
			t.Fatalf("cut after %d bytes: %d attempts (%v)", bytes, n, err)
		}
		if err := b.e.CannotDispatch(t.Context(), job, "test", "over"); err != nil {
			t.Fatal(err)
		}
		if whole {
			break
		}
	}
	if lost == 0 {
		t.Error("no cut left a claim that nobody knew of")
	}
}

func count(t *testing.T, db *store.DB, query string) (n int) {
	t.Helper()
	if err := db.Read().QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
