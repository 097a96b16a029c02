package engine_test

import (
	"fmt"
	"testing"
	"time"

	"kici/internal/decide/contexts"
	"kici/internal/server/orgs"
)

// org changes what the organisation of the bench has decided.
func (b *bench) org(change func(*orgs.Settings)) {
	b.t.Helper()
	_, _, err := orgs.Change(b.t.Context(), b.db, func() time.Time { return time.UnixMilli(b.now.Load()) }, "default",
		func(s *orgs.Settings) error { change(s); return nil })
	b.must(err)
}

func TestWhetherWhoeverStartedARunMayApproveItIsTheOrganisationsToSay(t *testing.T) {
	each(t, func(b *bench) {
		b.by = "anna"
		for run, allowed := range map[string]bool{"strict": false, "lenient": true} {
			b.org(func(s *orgs.Settings) { s.AllowSelfApproval = allowed })
			b.plan(run, nil, "", lockJob("deploy", `,"approval":{"clauses":[{"user":"anna"}],"when":"always"}`))
			want := map[bool]contexts.Result{false: contexts.Ineligible, true: contexts.Released}[allowed]
			if d := b.decide(b.hold(run), "anna", contexts.Approve); d.Result != want {
				t.Errorf("%s: %+v", run, d)
			}
		}
	})
}

func TestAnApprovalThatSaysNothingExpiresAsTheOrganisationSays(t *testing.T) {
	each(t, func(b *bench) {
		b.org(func(s *orgs.Settings) { s.ApprovalExpirySeconds = 60 })
		b.plan("job", nil, "", lockJob("build", approval))
		b.plan("workflow", nil, approval, lockJob("build", ""))
		b.plan("own", nil, "", lockJob("build", `,"approval":{"clauses":[{"user":"anna"}],"when":"always","timeoutSeconds":7200}`))
		for run, want := range map[string]int{"job": 60, "workflow": 60, "own": 7200} {
			if got := b.text("SELECT CAST((expires_at - created_at) / 1000 AS TEXT) FROM held_runs WHERE run_id = $1", run); got != fmt.Sprint(want) {
				t.Errorf("the hold of run %s lives %s s, want %d", run, got, want)
			}
		}
	})
}

const plainRegistry = `,"registries":[{"url":"http://npm.example.org/","tokenSecret":"prod:TOKEN"}]`

// TestAHoldEndsAlthoughTheOrganisationForbidsItsRegistryMeanwhile looks at all that reads the references of a held run.
func TestAHoldEndsAlthoughTheOrganisationForbidsItsRegistryMeanwhile(t *testing.T) {
	each(t, func(b *bench) {
		b.guard(fakeContexts{"prod": {RequiredReviewers: []string{"anna"}}})
		b.plan("refused", nil, plainRegistry, lockJob("build", ""))
		b.wantRun("refused", "failed", "registries[0]: url of host npm.example.org must be https (http is for localhost, loopback addresses and *.local, or where the organisation allows it)")
		b.org(func(s *orgs.Settings) { s.AllowHTTPRegistries = true })
		b.plan("held", nil, plainRegistry, lockJob("build", ""))
		b.wantRun("held", "held", "")
		b.org(func(s *orgs.Settings) { s.AllowHTTPRegistries = false })
		b.must(b.e.SweepOnce(t.Context()))
		if d := b.decide(b.hold("held"), "anna", contexts.Approve); d.Result != contexts.Released {
			t.Errorf("%+v", d)
		}
		b.wantRun("held", "pending", "")

		b.guard(fakeContexts{"prod": {ConcurrencyLimit: number(0)}})
		b.org(func(s *orgs.Settings) { s.AllowHTTPRegistries = true })
		b.plan("full", nil, plainRegistry, lockJob("build", ""))
		b.wantRun("full", "held", "")
		b.org(func(s *orgs.Settings) { s.AllowHTTPRegistries = false })
		b.guard(fakeContexts{"prod": {}})
		b.must(b.e.SweepOnce(t.Context()))
		b.wantRun("full", "pending", "")
	})
}

func TestWhatIsDecidedAboutInstallSecretsIsToldOnce(t *testing.T) {
	const ok, bad, other = `,"installEnv":["prod:TOKEN"]`, `,"installEnv":["TOKEN"]`, `,"installEnv":["prod:OTHER"]`
	each(t, func(b *bench) {
		for i, tt := range []struct {
			members  string
			contexts fakeContexts
			act      func(run string)
			want     string
		}{
			{"", fakeContexts{}, nil, ""},
			{`,"contexts":["gone"]`, fakeContexts{}, nil, ""},
			{ok, fakeContexts{"prod": {}}, nil, "[pass]"},
			{bad, fakeContexts{}, nil, "[reject reference]"},
			{other, fakeContexts{"prod": {}}, nil, "[reject secret]"},
			{ok, fakeContexts{}, nil, "[reject context]"},
			{ok, fakeContexts{"prod": {RequiredReviewers: []string{"anna"}, WaitTimerSeconds: number(60)}}, func(run string) {
				b.decide(b.hold(run), "anna", contexts.Approve)
				b.now.Add(61_000)
				b.must(b.e.SweepOnce(t.Context()))
			}, "[hold reviewer hold timer pass]"},
			{ok, fakeContexts{"prod": {RequiredReviewers: []string{"anna"}}}, func(run string) { b.decide(b.hold(run), "anna", contexts.Reject) }, "[hold reviewer]"},
		} {
			b.judged = nil
			b.guard(tt.contexts)
			run := fmt.Sprint("r-", i)
			b.plan(run, nil, tt.members, lockJob("build", ""))
			b.plan(run, nil, tt.members, lockJob("build", "")) // worked on twice
			if tt.act != nil {
				tt.act(run)
			}
			if got := fmt.Sprint(b.judged); got != tt.want && !(tt.want == "" && len(b.judged) == 0) {
				t.Errorf("%s: told %s, want %s", tt.members, got, tt.want)
			}
		}
		b.judged, b.tier = nil, "known"
		b.plan("stranger", nil, ok, lockJob("build", ""))
		if got := fmt.Sprint(b.judged); got != "[strip contributor]" {
			t.Errorf("of a stranger: %s", got)
		}
	})
}

func TestAnApprovalThatComesTooLateReleasesNothing(t *testing.T) {
	for name, members := range map[string][2]string{"job": {"", approval}, "workflow": {approval, ""}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(b *bench) {
				b.plan("r", nil, members[0], lockJob("deploy", members[1]))
				hold := b.hold("r")
				b.decide(hold, "anna", contexts.Approve)
				b.now.Add(24 * time.Hour.Milliseconds()) // and no sweep comes by
				if d := b.decide(hold, "bert", contexts.Approve); d.Result != contexts.NotFound || d.Reason.Message != "the hold is decided already: expired" {
					t.Errorf("%+v", d)
				}
				b.wantStates("r", "deploy=failed")
				b.wantRun("r", "failed", "Failed jobs: deploy")
				if got := b.text("SELECT status FROM held_runs WHERE id = $1", hold); got != "expired" {
					t.Errorf("the hold is %s", got)
				}
			})
		})
	}
}
