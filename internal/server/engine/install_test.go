package engine_test

import (
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/decide/contexts"
)

// tokens is a workflow's demand of install secrets.
const tokens = `,"registries":[{"url":"https://npm.example.org/","tokenSecret":"prod:TOKEN"}],"installEnv":["base:TOKEN"]`

func TestARunWhoseInstallSecretsCannotBeHadIsBornFailed(t *testing.T) {
	registry := func(url, ref string) string {
		return `,"registries":[{"url":"` + url + `","tokenSecret":"` + ref + `"}]`
	}
	tests := []struct {
		name, members string
		contexts      fakeContexts
		want          string
	}{
		{"a reference that is none", registry("https://x/", "TOKEN"), fakeContexts{},
			"registries[0].tokenSecret must use qualified <environment>:<secret-name> syntax (got TOKEN)"},
		{"an entry of the environment that is none", `,"installEnv":["a:b:c"]`, fakeContexts{},
			"installEnv[0] must use qualified <environment>:<secret-name> syntax (got a:b:c)"},
		{"a registry without TLS", registry("http://npm.example.org/", "prod:TOKEN"), fakeContexts{"prod": {}},
			"registries[0]: url of host npm.example.org must be https (http is for localhost, loopback addresses and *.local, or where the organisation allows it)"},
		{"a context that does not exist", tokens, fakeContexts{"base": {}}, "registries: refers to environment 'prod' which does not exist"},
		{"a context that refuses the branch", tokens, fakeContexts{"prod": {}, "base": {BranchRestrictions: []string{"release"}}},
			"environment 'base' install gate reject: branch 'main' not allowed"},
		{"a secret that does not exist", `,"installEnv":["prod:OTHER"]`, fakeContexts{"prod": {}}, "installEnv[0]: environment 'prod' has no secret 'OTHER'"},
	}
	each(t, func(b *bench) {
		for _, tt := range tests {
			b.guard(tt.contexts)
			b.plan(tt.name, nil, tt.members, lockJob("build", ""))
			b.wantRun(tt.name, "failed", tt.want)
			if got := b.text("SELECT init_failure FROM execution_runs WHERE run_id = $1", tt.name); !strings.Contains(got, `"scope":"run","category":"install_secrets"`) {
				t.Errorf("%s: failure %s", tt.name, got)
			}
			if b.id(tt.name, "build") != "" || b.hold(tt.name) != "" {
				t.Errorf("%s: there are jobs or holds", tt.name)
			}
		}
	})
}

func TestInstallSecretsNeedAServerThatHasSecrets(t *testing.T) {
	each(t, func(b *bench) { // without contexts
		b.plan("install", nil, tokens, lockJob("build", ""))
		b.wantRun("install", "failed", "Workflow declares install secrets but this server has no contexts")
		b.plan("contexts", nil, `,"contexts":["prod"]`, lockJob("build", ""))
		b.wantRun("contexts", "failed", "Workflow declares secret contexts but this server has no contexts")
		if got := b.text("SELECT init_failure FROM execution_runs WHERE run_id = 'contexts'"); !strings.Contains(got, "secret_resolution") {
			t.Errorf("failure %s", got)
		}
	})
}

func TestARunOfAContributorWhoIsNotTrustedGoesOnWithoutInstallSecrets(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {RequiredReviewers: []string{"anna"}}, "base": {}})
		for tier, want := range map[ci.Tier]string{ci.TierUnknown: "build=queued", ci.TierKnown: "build=queued", ci.TierTrusted: "build=pending", "": "build=pending"} {
			b.tier = tier
			b.plan("r-"+string(tier), nil, tokens, lockJob("build", ""))
			b.wantStates("r-"+string(tier), want)
		}
	})
}

func TestInstallSecretsThatNobodyGuardsHoldNothing(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {}, "base": {}})
		b.plan("r", nil, tokens, lockJob("build", ""))
		b.wantStates("r", "build=queued")
		b.wantRun("r", "pending", "")
		in, err := b.e.Input(t.Context(), b.id("r", "build"))
		if err != nil || len(in.Workflow.Registries) != 1 || len(in.Workflow.InstallEnv) != 1 {
			t.Errorf("the dispatch knows of %+v, %v", in.Workflow, err)
		}
	})
}

// held registers a run that is held for its install secrets and gives the hold.
func (b *bench) held(runID string, jobs ...string) string {
	b.t.Helper()
	b.plan(runID, nil, tokens, jobs...)
	b.wantRun(runID, "held", "")
	hold := b.hold(runID)
	if got := b.text("SELECT hold_scope || ' ' || job_id || ' ' || context_name FROM held_runs WHERE id = $1", hold); got != "workflow __install__ci prod" {
		b.t.Fatalf("the hold is %q", got)
	}
	return hold
}

func TestAnInstallGateHoldsTheWholeRunUntilPeopleAgree(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {RequiredReviewers: []string{"anna"}}, "base": {}})
		hold := b.held("r", lockJob("a", ""), generator, lockJob("test", `,"needs":["a"]`))
		b.wantStates("r", "a=pending __dynamic__ci__1=pending test=pending")
		const want = "The secrets of prod, base that installing dependencies needs: Requires approval from: anna"
		if got := b.text("SELECT reason FROM execution_jobs WHERE job_id = $1", b.id("r", "a")); !strings.Contains(got, want) {
			t.Errorf("the root waits for %s", got)
		}
		if n := b.text("SELECT CAST(count(*) AS TEXT) FROM dispatch_queue"); n != "0" {
			t.Errorf("%s jobs of a held run are queued", n)
		}
		if d := b.decide(hold, "bert", contexts.Approve); d.Result != contexts.Ineligible {
			t.Errorf("bert: %+v", d)
		}
		if d := b.decide(hold, "anna", contexts.Approve); d.Result != contexts.Released {
			t.Errorf("anna: %+v", d)
		}
		b.wantRun("r", "pending", "")
		b.wantStates("r", "a=queued __dynamic__ci__1=pending test=pending")
		if d := b.decide(hold, "anna", contexts.Reject); d.Result != contexts.NotFound {
			t.Errorf("a decided hold: %+v", d)
		}
		b.run("agent-1", b.id("r", "a"), ci.JobSuccess, "")
		b.wantRun("r", "running", "")
	})
}

func TestAHeldRunThatIsRefusedForgottenOrCancelledEnds(t *testing.T) {
	const hour = 3_600_000
	tests := []struct {
		name           string
		end            func(b *bench, hold string)
		status, reason string
		jobs           string
	}{
		{"rejected", func(b *bench, hold string) { b.decide(hold, "anna", contexts.Reject) }, "cancelled", "Rejected by anna", "build=cancelled test=cancelled"},
		{"expired", func(b *bench, _ string) { b.now.Add(hour); b.must(b.e.SweepOnce(b.t.Context())) }, "failed",
			"Approval expired for workflow hold", "build=failed test=failed"},
		{"cancelled", func(b *bench, _ string) {
			_, err := b.e.Cancel(b.t.Context(), "r", "api_key:1", "no more", false)
			b.must(err)
		}, "cancelled", "no more", "build=cancelled test=cancelled"},
		{"its context refuses it meanwhile", func(b *bench, hold string) {
			b.guard(fakeContexts{"prod": {BranchRestrictions: []string{"release"}}, "base": {}})
			b.decide(hold, "anna", contexts.Approve)
		}, "failed", "environment 'prod' install gate reject: branch 'main' not allowed", "build=failed test=failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(b *bench) {
				b.guard(fakeContexts{"prod": {RequiredReviewers: []string{"anna"}, HoldExpirySeconds: 60}, "base": {}})
				hold := b.held("r", lockJob("build", ""), lockJob("test", `,"needs":[{"name":"build","runOn":["failed","cancelled","skipped"]}]`))
				tt.end(b, hold)
				b.wantRun("r", tt.status, tt.reason)
				b.wantStates("r", tt.jobs)
				if left := b.hold("r"); left != "" {
					t.Errorf("hold %s is open", left)
				}
				wantFailure := tt.status == "failed"
				if got := b.text("SELECT init_failure FROM execution_runs WHERE run_id = 'r'"); strings.Contains(got, "install_secrets") != wantFailure {
					t.Errorf("failure %q", got)
				}
			})
		})
	}
}

func TestTheGatesOfInstallSecretsAreAskedOneAfterTheOther(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {RequiredReviewers: []string{"anna"}}, "base": {WaitTimerSeconds: number(60)}})
		b.plan("r", nil, tokens+`,"approval":{"clauses":[],"when":"always","reason":"ship it"}`, lockJob("build", ""))
		b.decide(b.hold("r"), "anna", contexts.Approve)
		b.wantRun("r", "held", "")
		if got := b.text("SELECT reason FROM execution_jobs WHERE run_id = 'r'"); !strings.Contains(got, "Wait timer: 60s") {
			t.Errorf("the job waits for %s", got)
		}
		b.now.Add(60_000)
		b.must(b.e.SweepOnce(t.Context()))
		b.wantRun("r", "pending", "")
		if got := b.text("SELECT reason FROM execution_jobs WHERE run_id = 'r'"); !strings.Contains(got, "ship it") {
			t.Errorf("the job waits for %s", got)
		}
		b.wantStates("r", "build=pending")
		b.decide(b.hold("r"), "bert", contexts.Approve)
		b.wantStates("r", "build=queued")
	})
}

func TestInstallSecretsOfAContextThatLetsNothingRunWaitUntilItDoes(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {}, "base": {ConcurrencyLimit: number(0)}})
		b.held("r", lockJob("build", ""))
		b.must(b.e.SweepOnce(t.Context()))
		b.wantRun("r", "held", "")
		b.guard(fakeContexts{"prod": {}, "base": {ConcurrencyLimit: number(1)}})
		b.now.Add(1)
		b.must(b.e.SweepOnce(t.Context()))
		b.wantRun("r", "pending", "")
		b.wantStates("r", "build=queued")
	})
}

// A job that could not be made has ended, so what waits for its failure is ready, and must wait nevertheless.
func TestNothingOfAHeldRunIsQueuedWhateverFailedAtItsBirth(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {RequiredReviewers: []string{"anna"}}, "base": {}})
		hold := b.held("r", lockJob("broken", `,"matrix":{"_type":"static","values":[]}`),
			lockJob("clean", `,"needs":[{"name":"broken","runOn":["failed"]}]`), lockJob("build", ""))
		b.wantStates("r", "broken=failed clean=pending build=pending")
		b.decide(hold, "anna", contexts.Approve)
		b.wantStates("r", "broken=failed clean=queued build=queued")
	})
}

func TestTheContextsOfAWorkflowGuardAllItsJobs(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {}, "shared": {RequiredReviewers: []string{"anna"}}})
		b.plan("r", nil, `,"contexts":["shared"]`, lockJob("plain", ""), lockJob("deploy", `,"environments":[{"value":"prod","dynamic":false}]`))
		b.wantStates("r", "plain=pending deploy=pending")
		in, err := b.e.Input(t.Context(), b.id("r", "deploy"))
		if err != nil || strings.Join(in.Contexts, " ") != "shared prod" {
			t.Errorf("contexts are laid over each other in the order %q, %v", in.Contexts, err)
		}
		if got := b.text("SELECT contexts FROM execution_jobs WHERE job_id = $1", b.id("r", "deploy")); got != `["prod","shared"]` {
			t.Errorf("the job takes slots of the first of %s", got)
		}
	})
}
