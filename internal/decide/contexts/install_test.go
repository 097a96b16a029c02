package contexts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

func registry(url, secret string) lockfile.Registry {
	return lockfile.Registry{URL: url, TokenSecret: secret}
}

func TestInstallNeedsQualifiedReferencesAndSafeRegistries(t *testing.T) {
	safe := "https://npm.acme.test/"
	tests := []struct {
		name       string
		registries []lockfile.Registry
		env        []string
		tier       ci.Tier
		allowHTTP  bool
		want       Install
		err        string
	}{
		{name: "nothing declared", tier: ci.TierUnknown},
		{name: "a stranger gets nothing, whatever it says", registries: []lockfile.Registry{registry("ftp://x", "bad")}, tier: ci.TierKnown, want: Install{Stripped: true}},
		{name: "both kinds", registries: []lockfile.Registry{registry(safe, "prod:NPM")}, env: []string{"base:A", "prod:B"}, tier: ci.TierTrusted,
			want: Install{Secrets: []InstallSecret{
				{"registries[0].tokenSecret", Ref{"prod", "NPM"}}, {"installEnv[0]", Ref{"base", "A"}}, {"installEnv[1]", Ref{"prod", "B"}},
			}}},
		{name: "malformed", registries: []lockfile.Registry{registry(safe, "prod:A"), registry(safe, "prod")},
			err: "registries[1].tokenSecret must use qualified <environment>:<secret-name> syntax (got prod)"},
		{name: "malformed variable", env: []string{"a:b:c"}, err: "installEnv[0] must use qualified <environment>:<secret-name> syntax (got a:b:c)"},
		{name: "references come before addresses", registries: []lockfile.Registry{registry("ftp://x", "prod:A")}, env: []string{""},
			err: "installEnv[0] must use qualified <environment>:<secret-name> syntax (got )"},
		{name: "without TLS", registries: []lockfile.Registry{registry("http://user:pass@npm.acme.test/", "prod:A")},
			err: "registries[0]: url of host npm.acme.test must be https (http is for localhost, loopback addresses and *.local, or where the organisation allows it)"},
		{name: "another scheme, even where http is allowed", registries: []lockfile.Registry{registry("ftp://npm.local/", "prod:A")}, allowHTTP: true,
			err: "registries[0]: url of host npm.local must be https (http is for localhost, loopback addresses and *.local, or where the organisation allows it)"},
		{name: "no address", registries: []lockfile.Registry{registry("npm.acme.test", "prod:A")}, err: "registries[0]: url must be an absolute https URL"},
	}
	for _, tt := range tests {
		got, err := PlanInstall(tt.registries, tt.env, tt.tier, tt.allowHTTP)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if diff := cmp.Diff(tt.want, got) + cmp.Diff(tt.err, message); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestRegistriesNearbyNeedNoTLS(t *testing.T) {
	for url, want := range map[string]bool{
		"http://localhost:4873/": true, "http://LOCALHOST": true, "http://127.8.9.1/": true, "http://[::1]:80/": true, "http://npm.local/": true,
		"http://local/": false, "http://localhost.acme.test/": false, "http://128.0.0.1/": false, "http://10.0.0.1/": false, "HTTPS://x/": true,
	} {
		if err := checkRegistry(url, false); (err == nil) != want {
			t.Errorf("%s: %v", url, err)
		}
		if err := checkRegistry(url, true); err != nil {
			t.Errorf("%s with http allowed: %v", url, err)
		}
	}
}

func TestInstallAsksEachContextOnce(t *testing.T) {
	in, err := PlanInstall([]lockfile.Registry{registry("https://x/", "prod:A")}, []string{"base:B", "prod:C"}, "", false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"prod", "base"}, in.Contexts()); diff != "" {
		t.Error(diff)
	}
	on := func(c Context) *Context { c.Enabled = true; return &c }
	tests := []struct {
		name       string
		prod, base *Context
		err        string
		holds      []ci.HoldType
	}{
		{"pass", on(Context{ConcurrencyLimit: number(1)}), on(Context{}), "", []ci.HoldType{}},
		{"missing", nil, on(Context{}), "registries: refers to environment 'prod' which does not exist", []ci.HoldType{}},
		{"missing for a variable", on(Context{}), nil, "installEnv: refers to environment 'base' which does not exist", []ci.HoldType{}},
		{"rejected", on(Context{}), on(Context{BranchRestrictions: []string{"main"}}), "environment 'base' install gate reject: branch 'dev' not allowed", []ci.HoldType{}},
		{"held", on(Context{RequiredReviewers: []string{"anna"}}), on(Context{WaitTimerSeconds: number(5)}), "", []ci.HoldType{ci.HoldReviewer, ci.HoldTimer}},
		{"no slot", on(Context{ConcurrencyLimit: number(0), ConcurrencyStrategy: CancelPending}), on(Context{}), "", []ci.HoldType{ci.HoldConcurrency}},
	}
	for _, tt := range tests {
		v, err := in.Protect(Request{
			Bound: []Bound{{"prod", tt.prod}, {"base", tt.base}}, Dispatch: Dispatch{Branch: "dev"},
			Occupying: 9, Approval: &lockfile.Approval{}, // neither is asked
		})
		if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, h := range v.Holds {
			if !strings.HasPrefix(h.Reason.Message, "The secrets of prod, base that installing dependencies needs: ") || h.ReplacesOlder {
				t.Errorf("%s: hold %+v", tt.name, h)
			}
		}
		if diff := cmp.Diff(tt.holds, types(v.Holds)); diff != "" || (err != nil) != (len(v.Rejections) > 0) {
			t.Errorf("%s: %s rejections %v", tt.name, diff, v.Rejections)
		}
	}
}

func TestInstallNamesTheSecretThatIsMissing(t *testing.T) {
	in := Install{Secrets: []InstallSecret{{"registries[0].tokenSecret", Ref{"prod", "A"}}, {"installEnv[0]", Ref{"base", "B"}}}}
	got, err := in.Values(map[string]map[string]string{"prod": {"A": "1"}, "base": {"B": ""}})
	if diff := cmp.Diff([]string{"1", ""}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if err := in.Missing(map[string][]string{"prod": {"A"}, "base": {"B"}}); err != nil {
		t.Error(err)
	}
	if err := in.Missing(map[string][]string{"prod": {"A", "B"}}); err == nil || err.Error() != "installEnv[0]: environment 'base' has no secret 'B'" {
		t.Errorf("error %v", err)
	}
	if _, err := in.Values(map[string]map[string]string{"prod": {"A": "1", "B": "2"}}); err == nil || err.Error() != "installEnv[0]: environment 'base' has no secret 'B'" {
		t.Errorf("error %v", err)
	}
}

func FuzzParseRef(f *testing.F) {
	for _, seed := range []string{"prod:NPM_TOKEN", ":", "a:", ":b", "a:b:c", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, ok := ParseRef(text)
		if ok && (ref.String() != text || strings.Count(text, ":") != 1) {
			t.Errorf("%q reads as %+v", text, ref)
		}
		if !ok && strings.Count(text, ":") == 1 && text[0] != ':' && text[len(text)-1] != ':' {
			t.Errorf("%q is refused", text)
		}
	})
}
