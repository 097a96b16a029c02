package contexts

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

func one(c Context) []Bound {
	c.Name, c.Enabled = "prod", true
	return []Bound{{"prod", &c}}
}

func TestRejectionsNameEveryContextThatRefuses(t *testing.T) {
	bound := []Bound{
		{"gone", nil},
		{"off", &Context{BranchRestrictions: []string{"x"}}},
		{"open", &Context{Enabled: true}},
		{"branches", &Context{Enabled: true, BranchRestrictions: []string{"main"}, RepoPatterns: []string{"x"}}},
		{"triggers", &Context{Enabled: true, TriggerTypeFilters: []string{"pull_*"}}},
		{"repos", &Context{Enabled: true, RepoPatterns: []string{"acme/{app,lib}"}}},
	}
	v := Protect(Request{Bound: bound, Dispatch: Dispatch{Branch: "dev", EventType: "push", Repository: "acme/web"}})
	want := &ci.InitFailure{Scope: ci.ScopeJob, Category: ci.InitEnvironmentRules, JobName: "deploy", Message: strings.Join([]string{
		"multi-environment gate: 'gone' rejected (context_not_found: no such context)",
		"multi-environment gate: 'off' rejected (context_disabled: the context is disabled)",
		"multi-environment gate: 'branches' rejected (branch_restricted: branch 'dev' not allowed)",
		"multi-environment gate: 'triggers' rejected (trigger_filtered: trigger type 'push' not allowed)",
		"multi-environment gate: 'repos' rejected (repo_unmatched: repository 'acme/web' not allowed)",
	}, "; ")}
	if diff := cmp.Diff(want, v.InitFailure("deploy")); diff != "" || v.Passed() || len(v.Holds) > 0 {
		t.Errorf("%s holds %v", diff, v.Holds)
	}
}

func TestRunWithoutABranchFailsARestriction(t *testing.T) {
	r := Rejections(one(Context{BranchRestrictions: []string{"**"}}), Dispatch{EventType: "schedule"})
	if len(r) != 1 || r[0].Detail != "the run has no branch" {
		t.Errorf("rejections %v", r)
	}
}

func TestPatternThatCannotBeDecidedAdmitsNothing(t *testing.T) {
	r := Rejections(one(Context{BranchRestrictions: []string{"", "x"}}), Dispatch{Branch: "main"})
	if len(r) != 1 || r[0].Detail != `branch 'main' not allowed (pattern "": glob pattern is empty)` {
		t.Errorf("rejections %v", r)
	}
	if r := Rejections(one(Context{BranchRestrictions: []string{"", "main"}}), Dispatch{Branch: "main"}); len(r) > 0 {
		t.Errorf("rejections %v, though another pattern matches", r)
	}
}

// told is what of a hold the tests compare.
type told struct {
	Type    ci.HoldType
	Queue   ci.QueueType
	Source  ci.HoldSource
	Code    string
	Message string
	Clauses []lockfile.Clause
	In      time.Duration
}

func tell(holds []Hold) []told {
	var all []told
	for _, h := range holds {
		all = append(all, told{h.Type, h.Queue, h.Source, h.Reason.Code, h.Reason.Message, h.Clauses, h.ExpiresIn})
	}
	return all
}

func TestHoldsComeInOrder(t *testing.T) {
	r := Request{
		Bound: one(Context{
			MinimumTrust: ci.TierTrusted, ConcurrencyLimit: number(2), RequiredReviewers: []string{"bert", "anna"},
			WaitTimerSeconds: number(60), HoldExpirySeconds: 7200, ConcurrencyTimeoutMs: 5000,
		}),
		Dispatch:  Dispatch{Tier: ci.TierKnown},
		Occupying: 2,
	}
	v := Protect(r)
	want := []told{
		{ci.HoldSecurity, ci.QueueSecurity, ci.HoldFromContext, ci.ReasonContextTrust,
			"Requires a contributor of trust 'trusted', and this one's is 'known'", nil, 2 * time.Hour},
		{ci.HoldConcurrency, ci.QueueContext, ci.HoldFromContext, ci.ReasonContextConcurrency, "Concurrency limit reached (2/2)", nil, 5 * time.Second},
		{ci.HoldReviewer, ci.QueueContext, ci.HoldFromContext, ci.ReasonApproval, "Requires approval from: anna, bert",
			[]lockfile.Clause{{User: "anna"}, {User: "bert"}}, 2 * time.Hour},
		{ci.HoldTimer, ci.QueueContext, ci.HoldFromContext, ci.ReasonWaitTimer, "Wait timer: 60s", nil, time.Minute},
	}
	if diff := cmp.Diff(want, tell(v.Holds)); diff != "" {
		t.Error(diff)
	}
	if v.Passed() || v.InitFailure("j") != nil {
		t.Error("holds are neither a pass nor a failure")
	}
	const details = `{"contexts":["prod"],"limit":2,"occupying":2,"strategy":"queue"}`
	if got := string(v.Holds[1].Reason.Details); got != details {
		t.Errorf("details %s", got)
	}
	for i, h := range v.Holds {
		r.Satisfied = append(r.Satisfied, h.Type)
		if h.Type == ci.HoldConcurrency {
			r.Occupying = 0 // a slot has become free
		}
		if diff := cmp.Diff(types(v.Holds[i+1:]), types(Protect(r).Holds)); diff != "" {
			t.Errorf("after the release of %v: %s", r.Satisfied, diff)
		}
	}
}

func types(holds []Hold) []ci.HoldType {
	list := []ci.HoldType{}
	for _, h := range holds {
		list = append(list, h.Type)
	}
	return list
}

func TestSlotIsForWhoeverTakesItAtOnce(t *testing.T) {
	r := Request{Bound: one(Context{ConcurrencyLimit: number(1), WaitTimerSeconds: number(1)}), Occupying: 1}
	tests := []struct {
		satisfied []ci.HoldType
		want      []ci.HoldType
	}{
		{nil, []ci.HoldType{ci.HoldConcurrency, ci.HoldTimer}},
		{[]ci.HoldType{ci.HoldConcurrency}, []ci.HoldType{ci.HoldTimer}},
		{[]ci.HoldType{ci.HoldConcurrency, ci.HoldTimer}, []ci.HoldType{ci.HoldConcurrency}}, // others took it meanwhile
		{[]ci.HoldType{ci.HoldConcurrency, ci.HoldTimer, ci.HoldConcurrency}, []ci.HoldType{}},
	}
	for _, tt := range tests {
		r.Satisfied = tt.satisfied
		if diff := cmp.Diff(tt.want, types(Protect(r).Holds)); diff != "" {
			t.Errorf("after %v: %s", tt.satisfied, diff)
		}
	}
}

func TestCancelPendingLetsOnlyTheNewestWait(t *testing.T) {
	v := Protect(Request{Bound: one(Context{ConcurrencyLimit: number(1), ConcurrencyStrategy: CancelPending}), Occupying: 1})
	h := v.Holds[0]
	if !h.ReplacesOlder || h.Reason.Code != ci.ReasonCancelPending || h.Reason.Message != "cancel-pending: Concurrency limit reached (1/1); the next job takes this one's place" {
		t.Errorf("hold %+v", h)
	}
	if h.ExpiresIn != 30*time.Minute {
		t.Errorf("expires in %s without a time of its own", h.ExpiresIn)
	}
	if r := Superseded("prod"); r.Code != ci.ReasonHoldSuperseded || !strings.Contains(r.Message, "'prod'") {
		t.Errorf("reason %+v", r)
	}
}

func TestOnlyContextsWithALimitSayHowLongToWaitForASlot(t *testing.T) {
	limited := &Context{ConcurrencyLimit: number(1), ConcurrencyTimeoutMs: 9000}
	shorter := &Context{ConcurrencyLimit: number(5), ConcurrencyTimeoutMs: 8000}
	if got := Aggregate([]Bound{{"a", limited}, {"b", &Context{ConcurrencyTimeoutMs: 1}}, {"c", shorter}}); got.ConcurrencyTimeoutMs != 8000 || *got.ConcurrencyLimit != 1 {
		t.Errorf("%d jobs, %d ms", *got.ConcurrencyLimit, got.ConcurrencyTimeoutMs)
	}
}

func TestReviewersAndTheWorkflowsOwnApprovalAreOneHold(t *testing.T) {
	reviewed := one(Context{RequiredReviewers: []string{"anna"}, HoldExpirySeconds: 600})
	tests := []struct {
		name     string
		bound    []Bound
		approval *lockfile.Approval
		expiry   Expiry
		want     told
	}{
		{"the workflow alone", nil, &lockfile.Approval{Clauses: []lockfile.Clause{{Team: "ops"}, anna}, Reason: "ship it"}, Expiry{},
			told{Source: ci.HoldFromAuthor, Message: "Requires approval from: team ops, anna (ship it)", Clauses: []lockfile.Clause{{Team: "ops"}, anna}, In: 24 * time.Hour}},
		{"anybody", nil, &lockfile.Approval{TimeoutSeconds: 1.5}, Expiry{Approval: time.Hour},
			told{Source: ci.HoldFromAuthor, Message: "Requires approval from: anyone who may approve", Clauses: []lockfile.Clause{}, In: 1500 * time.Millisecond}},
		{"the organisation's time", nil, &lockfile.Approval{}, Expiry{Approval: time.Hour},
			told{Source: ci.HoldFromAuthor, Message: "Requires approval from: anyone who may approve", Clauses: []lockfile.Clause{}, In: time.Hour}},
		{"both, the context's first", reviewed, &lockfile.Approval{Clauses: []lockfile.Clause{bert, anna}}, Expiry{},
			told{Source: ci.HoldFromContext, Message: "Requires approval from: anna, bert", Clauses: []lockfile.Clause{anna, bert}, In: 10 * time.Minute}},
		{"both, the shorter time", reviewed, &lockfile.Approval{TimeoutSeconds: 60}, Expiry{},
			told{Source: ci.HoldFromContext, Message: "Requires approval from: anna", Clauses: []lockfile.Clause{anna}, In: time.Minute}},
		{"a list that cannot be read", one(Context{ReviewersUnreadable: true}), nil, Expiry{},
			told{Source: ci.HoldFromContext, Message: "Requires approval from: anyone who may approve; the list of reviewers of a context cannot be read", Clauses: []lockfile.Clause{}, In: time.Hour}},
	}
	for _, tt := range tests {
		tt.want.Type, tt.want.Queue, tt.want.Code = ci.HoldReviewer, ci.QueueContext, ci.ReasonApproval
		v := Protect(Request{Bound: tt.bound, Approval: tt.approval, Expiry: tt.expiry})
		if diff := cmp.Diff([]told{tt.want}, tell(v.Holds)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestHoldForStrangersTakesTheTimeOfTheirPolicy(t *testing.T) {
	r := Request{Bound: one(Context{MinimumTrust: ci.TierKnown}), Dispatch: Dispatch{Tier: "guest"}, Expiry: Expiry{Security: time.Minute}}
	if v := Protect(r); v.Holds[0].Type != ci.HoldSecurity || v.Holds[0].ExpiresIn != time.Minute {
		t.Errorf("holds %+v", v.Holds)
	}
}

func TestLongTimesDoNotOverflow(t *testing.T) {
	v := Protect(Request{
		Bound:    one(Context{WaitTimerSeconds: number(1 << 60)}),
		Approval: &lockfile.Approval{TimeoutSeconds: 1e300},
	})
	for _, h := range v.Holds {
		if h.ExpiresIn < 60*365*24*time.Hour {
			t.Errorf("%s expires in %s", h.Type, h.ExpiresIn)
		}
	}
}

func genContext(t *rapid.T) Bound {
	optional := rapid.Ptr(rapid.Int64Range(0, 3), true)
	c := Context{
		Name: rapid.StringMatching("[a-c]").Draw(t, "name"), Enabled: rapid.IntRange(0, 9).Draw(t, "on") > 0,
		BranchRestrictions:   rapid.SliceOfN(rapid.SampledFrom([]string{"main", "dev", "*", "x/**"}), 0, 2).Draw(t, "branches"),
		ConcurrencyLimit:     optional.Draw(t, "limit"),
		ConcurrencyTimeoutMs: rapid.Int64Range(0, 3000).Draw(t, "timeout"),
		RequiredReviewers:    rapid.SliceOfN(rapid.SampledFrom([]string{"anna", "bert", "carl"}), 0, 2).Draw(t, "reviewers"),
		ReviewersUnreadable:  rapid.IntRange(0, 9).Draw(t, "unreadable") == 0,
		WaitTimerSeconds:     optional.Draw(t, "wait"),
		HoldExpirySeconds:    rapid.Int64Range(0, 5000).Draw(t, "expiry"),
		MinimumTrust:         rapid.SampledFrom([]ci.Tier{"", ci.TierKnown, ci.TierTrusted}).Draw(t, "trust"),
	}
	if rapid.IntRange(0, 9).Draw(t, "missing") == 0 {
		return Bound{Name: c.Name}
	}
	return Bound{c.Name, &c}
}

func genRequest(t *rapid.T) Request {
	r := Request{
		Bound: rapid.SliceOfN(rapid.Custom(genContext), 1, 3).Draw(t, "bound"),
		Dispatch: Dispatch{
			Branch: rapid.SampledFrom([]string{"", "main", "dev"}).Draw(t, "branch"),
			Tier:   rapid.SampledFrom([]ci.Tier{"", ci.TierUnknown, ci.TierKnown, ci.TierTrusted}).Draw(t, "tier"),
		},
		Occupying: rapid.Int64Range(0, 3).Draw(t, "occupying"),
	}
	if rapid.Bool().Draw(t, "approval") {
		r.Approval = &lockfile.Approval{Clauses: rapid.SliceOfN(rapid.SampledFrom([]lockfile.Clause{anna, security}), 0, 2).Draw(t, "clauses")}
	}
	return r
}

func holdOf(v Verdict, t ci.HoldType) *Hold {
	if i := slices.IndexFunc(v.Holds, func(h Hold) bool { return h.Type == t }); i >= 0 {
		return &v.Holds[i]
	}
	return nil
}

func TestOneMoreContextNeverLoosens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRequest(t)
		before := Protect(r)
		at := rapid.IntRange(0, len(r.Bound)).Draw(t, "at")
		r.Bound = slices.Insert(slices.Clone(r.Bound), at, genContext(t))
		after := Protect(r)
		if len(after.Rejections) < len(before.Rejections) {
			t.Fatalf("%v became %v", before.Rejections, after.Rejections)
		}
		if len(after.Rejections) > 0 {
			return
		}
		for _, was := range before.Holds {
			is := holdOf(after, was.Type)
			switch {
			case is == nil:
				t.Fatalf("hold %s is gone", was.Type)
			case was.Type == ci.HoldTimer && is.ExpiresIn < was.ExpiresIn:
				t.Fatalf("timer of %s became %s", was.ExpiresIn, is.ExpiresIn)
			case was.Type != ci.HoldTimer && is.ExpiresIn > was.ExpiresIn && was.Source == ci.HoldFromContext:
				t.Fatalf("hold %s stays open for %s instead of %s", was.Type, is.ExpiresIn, was.ExpiresIn)
			}
			for _, clause := range was.Clauses {
				if !slices.Contains(is.Clauses, clause) {
					t.Fatalf("clause %+v is gone", clause)
				}
			}
		}
	})
}

// Whatever is released in turn, and however many slots are taken meanwhile: what let the job go does not stop it again
// right away, people and timers never, and in the end it goes.
func TestReleasedHoldNeverReappears(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRequest(t)
		if len(Rejections(r.Bound, r.Dispatch)) > 0 {
			return
		}
		for range 2 * len(ci.HoldTypes) {
			v := Protect(r)
			if v.Passed() {
				return
			}
			released := v.Holds[0].Type
			if released != ci.HoldConcurrency && slices.Contains(r.Satisfied, released) {
				t.Fatalf("%s again after %v", released, r.Satisfied)
			}
			r.Satisfied = append(r.Satisfied, released)
			if next := Protect(r); holdOf(next, released) != nil {
				t.Fatalf("%s again right after its release", released)
			}
			r.Occupying = rapid.Int64Range(0, 3).Draw(t, "occupying")
		}
		t.Fatalf("still held after %v", r.Satisfied)
	})
}

func TestAggregateDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.SliceOfN(rapid.Custom(genContext), 0, 4).Draw(t, "bound")
		shuffled := rapid.Permutation(bound).Draw(t, "shuffled")
		if diff := cmp.Diff(Aggregate(bound), Aggregate(shuffled)); diff != "" {
			t.Fatal(diff) // no context has a strategy, whose order counts
		}
	})
}

func TestAggregateLeavesItsInputAlone(t *testing.T) {
	c := Context{RequiredReviewers: []string{"bert", "anna"}}
	Aggregate([]Bound{{"a", &c}, {"b", &c}})
	if diff := cmp.Diff([]string{"bert", "anna"}, c.RequiredReviewers); diff != "" {
		t.Error(diff)
	}
}

func TestSweepReleasesBeforeItExpires(t *testing.T) {
	pending := []Waiting{
		{ID: "timer-due", Type: ci.HoldTimer, ExpiresAt: 100},
		{ID: "timer-late", Type: ci.HoldTimer, ExpiresAt: 50},
		{ID: "timer-early", Type: ci.HoldTimer, ExpiresAt: 101},
		{ID: "slot-2", Type: ci.HoldConcurrency, Group: "prod", CreatedAt: 2, ExpiresAt: 10},
		{ID: "slot-1", Type: ci.HoldConcurrency, Group: "prod", CreatedAt: 1, ExpiresAt: 10},
		{ID: "slot-3", Type: ci.HoldConcurrency, Group: "prod", CreatedAt: 3, ExpiresAt: 1000},
		{ID: "other", Type: ci.HoldConcurrency, Group: "stage", CreatedAt: 1, ExpiresAt: 1000},
		{ID: "review-late", Type: ci.HoldReviewer, CreatedAt: 9, ExpiresAt: 99},
		{ID: "review-now", Type: ci.HoldReviewer, ExpiresAt: 100},
		{ID: "strangers", Type: ci.HoldSecurity, CreatedAt: 8, ExpiresAt: 0},
	}
	released, expired := Sweep(pending, map[string]int64{"prod": 1, "stage": -2}, 100)
	if diff := cmp.Diff([]string{"timer-due", "timer-late", "slot-1"}, released); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"slot-2", "strangers", "review-late"}, expired); diff != "" {
		t.Error(diff)
	}
	if got := Expired(ci.HoldWorkflow); got.Message != "Approval expired for workflow hold" || got.Code != ci.ReasonHoldExpired {
		t.Errorf("reason %+v", got)
	}
}
