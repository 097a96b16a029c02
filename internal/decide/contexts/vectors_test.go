package contexts

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/vectors"
)

// decode reads a vector's input or expectation.
func decode[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
	return v
}

func check(t *testing.T, suite string, checks map[string]func(*testing.T, vectors.SuiteCase)) {
	for _, c := range vectors.LoadSuite(t, suite) {
		if c.Fn == "inlineFields" {
			continue // the planner evaluates expressions, and tests itself against them
		}
		t.Run(c.Fn+"/"+c.ID, func(t *testing.T) {
			if checks[c.Fn] == nil {
				t.Fatalf("unknown function %s", c.Fn)
			}
			checks[c.Fn](t, c)
		})
	}
}

func TestVectorsScopeResolution(t *testing.T) {
	check(t, "scope-resolution.json", map[string]func(*testing.T, vectors.SuiteCase){
		"matchScope":      checkMatchScope,
		"stripPrefix":     checkPath,
		"substitute":      checkSubstitute,
		"matchHost":       checkMatchHost,
		"hostSpecificity": checkHostSpecificity,
		"resolveSecrets":  checkResolve,
	})
}

func TestVectorsEnvMerge(t *testing.T) {
	check(t, "env-merge.json", map[string]func(*testing.T, vectors.SuiteCase){
		"mergeMaps":           checkFold,
		"resolvedVars":        checkVariables,
		"jobContextNames":     checkNames,
		"mergeContexts":       checkMerge,
		"rejectGates":         checkRejections,
		"aggregateProtection": checkAggregate,
		"protectionPipeline":  checkProtect,
		"satisfiable":         checkSatisfiable,
		"qualifiedSecretRef":  checkRef,
	})
}

// same compares what a function gave with what it should give.
func same[T any](t *testing.T, c vectors.SuiteCase, got T) {
	t.Helper()
	if diff := cmp.Diff(decode[T](t, c.Expected), got); diff != "" {
		t.Error(diff)
	}
}

func checkMatchScope(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct{ Scope, Pattern string }](t, c.Input)
	got, err := MatchScope(in.Pattern, in.Scope)
	if err != nil {
		t.Fatal(err)
	}
	same(t, c, got)
}

func checkPath(t *testing.T, c vectors.SuiteCase) {
	same(t, c, Path(decode[struct{ Scope string }](t, c.Input).Scope))
}

// facts are the host of a vector.
type facts struct {
	AgentID, Host string
	Labels        []string
}

func (f facts) host() Host { return Host{f.AgentID, f.Host, f.Labels} }

func checkSubstitute(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Pattern string
		Facts   facts
	}](t, c.Input)
	got, ok := Substitute(in.Pattern, in.Facts.host())
	if !ok {
		same(t, c, (*string)(nil))
		return
	}
	same(t, c, &got)
}

func checkMatchHost(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Pattern string
		Facts   facts
	}](t, c.Input)
	h := in.Facts.host()
	_, _, got, err := Binding{ScopePattern: "x", HostPattern: in.Pattern}.on(&h)
	if err != nil {
		t.Fatal(err)
	}
	same(t, c, got)
}

func checkHostSpecificity(t *testing.T, c vectors.SuiteCase) {
	p, err := label.ParseHostPattern(decode[struct{ Pattern string }](t, c.Input).Pattern)
	if err != nil {
		t.Fatal(err)
	}
	same(t, c, p.Specificity())
}

func checkResolve(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Bindings []Binding
		Secrets  []struct{ Scope, Key, Value string }
		Facts    *facts
	}](t, c.Input)
	var host *Host
	if in.Facts != nil {
		h := in.Facts.host()
		host = &h
	}
	secrets := make([]Secret, len(in.Secrets))
	for i, s := range in.Secrets {
		secrets[i] = Secret{s.Scope, s.Key}
	}
	winners, err := Resolve("c", in.Bindings, secrets, nil, host)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for key, i := range winners {
		values[key] = in.Secrets[i].Value
	}
	same(t, c, values)
}

func checkFold(t *testing.T, c vectors.SuiteCase) {
	same(t, c, Fold(decode[struct{ Maps []map[string]string }](t, c.Input).Maps...))
}

func checkVariables(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Variables  []Variable
		Overrides  []Override
		RoutingKey string
	}](t, c.Input)
	same(t, c, Variables(in.Variables, in.Overrides, in.RoutingKey))
}

func checkNames(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Elements    json.RawMessage
		InlineNames []*string
	}](t, c.Input)
	want := decode[struct {
		Names, Display []string
		NeedsInit      bool
	}](t, c.Expected)
	got := NamesOf(elements(t, in.Elements), in.InlineNames)
	if diff := cmp.Diff(Names{want.Names, want.Display, want.NeedsInit}, got); diff != "" {
		t.Error(diff)
	}
}

// elements reads a job's contexts as the lock file's own reader does.
func elements(t *testing.T, raw json.RawMessage) []lockfile.ContextRef {
	t.Helper()
	f, err := lockfile.Load([]byte(`{"schemaVersion":29,"source":{"file":"ci.ts","export":"#ci"},"workflows":[{"name":"ci",`+
		`"contentHash":"c0ffee","compileSchemaVersion":5,"triggers":[],"jobs":[{"_type":"static","name":"j","steps":[],`+
		`"contexts":`+string(raw)+`}]}]}`), "acme/app", "main")
	if err != nil {
		t.Fatal(err)
	}
	return f.Workflows[0].Jobs[0].Environments
}

func checkMerge(t *testing.T, c vectors.SuiteCase) {
	m := Merge(decode[struct{ Entries []Resolved }](t, c.Input).Entries)
	want := decode[struct {
		Variables, Secrets map[string]string
		NamespacedSecrets  ci.NamespacedSecrets
	}](t, c.Expected)
	if diff := cmp.Diff(Merged{want.Variables, want.Secrets, want.NamespacedSecrets}, m); diff != "" {
		t.Error(diff)
	}
}

// described is a context of a vector: what differs from a new one.
type described struct {
	Context
	Missing bool
}

func (d *described) UnmarshalJSON(raw []byte) error {
	d.Context = Context{Type: Fixed, Enabled: true, HoldExpirySeconds: DefaultHoldExpirySeconds}
	return errors.Join(json.Unmarshal(raw, &d.Context), json.Unmarshal(raw, &struct{ Missing *bool }{&d.Missing}))
}

func (d described) bound() Bound {
	if d.Missing {
		return Bound{Name: d.Name}
	}
	return Bound{d.Name, &d.Context}
}

func bound(all []described) []Bound {
	list := make([]Bound, len(all))
	for i, d := range all {
		list[i] = d.bound()
	}
	return list
}

// started is what started the run of a vector.
type started struct{ Branch, TriggerType, Repository string }

func (s started) dispatch() Dispatch {
	return Dispatch{Branch: s.Branch, EventType: s.TriggerType, Repository: s.Repository}
}

func checkRejections(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Contexts []described
		Dispatch started
	}](t, c.Input)
	type rejection struct{ Context, Reason string }
	got := []rejection{}
	for _, r := range Rejections(bound(in.Contexts), in.Dispatch.dispatch()) {
		if r.Code == ci.ReasonContextDisabled {
			r.Code = "disabled" // the vectors leave out the word that differs between releases
		}
		got = append(got, rejection{r.Context, r.Code})
	}
	same(t, c, got)
}

func checkAggregate(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct{ Contexts []described }](t, c.Input)
	type protection struct {
		MinimumTrust        *ci.Tier
		RequiredReviewers   []string
		WaitTimerSeconds    *int64
		HoldExpirySeconds   int64
		ConcurrencyLimit    *int64
		ConcurrencyStrategy Strategy
	}
	p := Aggregate(bound(in.Contexts))
	got := protection{nil, p.RequiredReviewers, p.WaitTimerSeconds, p.HoldExpirySeconds, p.ConcurrencyLimit, p.ConcurrencyStrategy}
	if p.MinimumTrust != "" {
		got.MinimumTrust = &p.MinimumTrust
	}
	same(t, c, got)
}

func checkProtect(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct {
		Context   described
		Dispatch  started
		Running   int64
		TrustTier ci.Tier
	}](t, c.Input)
	type outcome struct {
		Action   string
		HoldType ci.HoldType
		Clauses  []lockfile.Clause
	}
	r := Request{Bound: bound([]described{in.Context}), Dispatch: in.Dispatch.dispatch(), Occupying: in.Running}
	r.Dispatch.Tier = in.TrustTier
	v, got := Protect(r), outcome{Action: "pass"}
	switch {
	case len(v.Rejections) > 0:
		got.Action = "reject"
	case !v.Passed():
		first := v.Holds[0]
		got.HoldType, got.Clauses = first.Type, first.Clauses
		got.Action = map[ci.HoldType]string{
			ci.HoldSecurity: "hold", ci.HoldConcurrency: "queue", ci.HoldReviewer: "hold", ci.HoldTimer: "wait",
		}[first.Type]
	}
	same(t, c, got)
}

func checkSatisfiable(t *testing.T, c vectors.SuiteCase) {
	in := decode[struct{ Contexts []described }](t, c.Input)
	type broken struct{ Rule Rule }
	var got *broken
	var unsatisfiable *UnsatisfiableError
	if err := CheckBindings("j", bound(in.Contexts)); errors.As(err, &unsatisfiable) {
		got = &broken{unsatisfiable.Rule}
	} else if err != nil {
		t.Fatal(err)
	}
	same(t, c, got)
}

func checkRef(t *testing.T, c vectors.SuiteCase) {
	ref, ok := ParseRef(decode[struct{ Ref string }](t, c.Input).Ref)
	if !ok {
		same(t, c, (*Ref)(nil))
		return
	}
	same(t, c, &ref)
}
