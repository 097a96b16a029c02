package engine_test

import (
	"context"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
)

const onEveryWeb = `,"runsOnAll":{"include":[[{"kind":"exact","value":"web"}]],"exclude":[]},"includeUninitialized":true`

// declare writes hosts down that have no agent.
func (b *bench) declare(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		b.write(func(ctx context.Context, tx *store.Tx) error {
			_, err := fleet.Declare(ctx, tx, fleet.Host{AgentID: id, Labels: []string{"web"}}, b.now.Load())
			return err
		})
	}
}

// connects lets the agent of a host register, as one that was started there for a while.
func (b *bench) connects(id string) {
	b.t.Helper()
	b.write(func(ctx context.Context, tx *store.Tx) error {
		return fleet.Seen(ctx, tx, fleet.Agent{ID: id, Labels: []string{"kici:init"}, Lifecycle: fleet.Ephemeral, MaxConcurrency: 1,
			NodeID: "node-1", ConnectionID: "c-" + id, LastSeenAt: b.now.Load()})
	})
	_, err := b.e.Connected(b.t.Context(), id, nil, true)
	b.must(err)
}

func (b *bench) message(runID, name string) string {
	b.t.Helper()
	return b.text("SELECT coalesce(error_message, '') FROM execution_jobs WHERE job_id = $1", b.id(runID, name))
}

func TestAHostIsBroughtUpBeforeItsJobRuns(t *testing.T) {
	each(t, func(b *bench) {
		b.declare("web-1")
		b.plan("r", nil, "", lockJob("d", onEveryWeb), lockJob("after", `,"needs":["d"]`))
		b.wantStates("r", "__bringup__ci__web-1=queued d (web-1)=pending after=pending")
		up := b.id("r", "__bringup__ci__web-1")
		in, err := b.e.Input(t.Context(), up)
		b.must(err)
		if in.CloneURL != "" || !strings.Contains(string(in.Config), `"bringupOnly":true,"bringupTarget":"web-1","workflowName":"ci"`) {
			t.Errorf("what the bring-up is given: %q %s", in.CloneURL, in.Config)
		}
		b.run("agent-1", up, ci.JobSuccess, "")
		b.wantStates("r", "__bringup__ci__web-1=success d (web-1)=queued after=pending")
		child := b.id("r", "d (web-1)")
		if in, err = b.e.Input(t.Context(), child); err != nil || len(in.Upstreams) > 0 || len(in.Bases) > 0 {
			t.Errorf("the child is told of the bring-up: %+v, %v", in.Upstreams, err)
		}
		b.connects("web-1")
		b.run("web-1", child, ci.JobSuccess, "")
		b.run("agent-1", b.id("r", "after"), ci.JobSuccess, "")
		b.wantRun("r", "success", "")
	})
}

func TestABringUpThatFailsSkipsTheJobsOfItsHost(t *testing.T) {
	each(t, func(b *bench) {
		b.declare("web-1", "web-2")
		b.plan("r", nil, "", lockJob("d", onEveryWeb))
		b.run("agent-1", b.id("r", "__bringup__ci__web-1"), ci.JobFailed, `{"error":"connect web-1: connection refused"}`)
		b.wantStates("r", "__bringup__ci__web-1=failed d (web-1)=skipped __bringup__ci__web-2=queued d (web-2)=pending")
		if got := b.message("r", "d (web-1)"); got != "upstream_unmet: __bringup__ci__web-1 (failed): connect web-1: connection refused" {
			t.Errorf("the child was skipped with %q", got)
		}
		b.run("agent-1", b.id("r", "__bringup__ci__web-2"), ci.JobSuccess, "")
		b.connects("web-2")
		b.run("web-2", b.id("r", "d (web-2)"), ci.JobSuccess, "")
		b.wantRun("r", "failed", "Failed jobs: __bringup__ci__web-1")
	})
}

func TestAHostWhoseAgentConnectsNeedsNoBringUp(t *testing.T) {
	each(t, func(b *bench) {
		b.declare("web-1", "web-2")
		b.plan("r", nil, "", lockJob("d", onEveryWeb))
		b.connects("web-1")
		b.wantStates("r", "__bringup__ci__web-1=skipped d (web-1)=queued __bringup__ci__web-2=queued d (web-2)=pending")
		b.claim(b.id("r", "__bringup__ci__web-2"), "agent-1")
		b.connects("web-2") // this is what the bring-up does, and it says so itself
		b.wantStates("r", "__bringup__ci__web-1=skipped d (web-1)=queued __bringup__ci__web-2=pending d (web-2)=pending")
	})
}

// TestWhatAnAgentHasMadeBringsHostsUp covers the jobs that join a run: the place that an init job completes, and a
// generator's.
func TestWhatAnAgentHasMadeBringsHostsUp(t *testing.T) {
	each(t, func(b *bench) {
		b.declare("web-1")
		b.plan("r", nil, "", lockJob("a", onEveryWeb+`,"dynamicEnv":true`), generator, lockJob("last", `,"needs":["a",{"group":"g"}]`))
		b.declare("web-2")
		b.run("agent-1", b.id("r", "__init__ci__a"), ci.JobSuccess, `{"initComplete":true,"initResult":{"env":{"A":"1"}}}`)
		b.wantStates("r", "__init__ci__a=success __bringup__ci__web-1=queued a (web-1)=pending __bringup__ci__web-2=queued a (web-2)=pending __dynamic__ci__1=pending last=pending")
		for _, host := range []string{"web-1", "web-2"} {
			b.run("agent-1", b.id("r", "__bringup__ci__"+host), ci.JobSuccess, "")
			b.connects(host)
			b.run(host, b.id("r", "a ("+host+")"), ci.JobSuccess, "")
		}
		b.declare("web-3")
		b.run("agent-1", b.id("r", "__dynamic__ci__1"), ci.JobSuccess, `{"dynamicComplete":true,"dynamicJobs":[{"_type":"static","name":"x","steps":[]`+onEveryWeb+`}]}`)
		b.wantStates("r", "__init__ci__a=success __bringup__ci__web-1=success a (web-1)=success __bringup__ci__web-2=success a (web-2)=success "+
			"__dynamic__ci__1=success x (web-1)=queued x (web-2)=queued __bringup__ci__web-3=queued x (web-3)=pending last=pending")
		if n := b.text("SELECT count(*) FROM execution_jobs WHERE job_name = '__bringup__ci__web-3' AND generator_id IS NULL"); n != "1" {
			t.Error("the bring-up counts as a job of the generator, which its agents could drop")
		}
	})
}
