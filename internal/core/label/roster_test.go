package label

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const rosterNow = int64(1_000_000_000)

func anyHost() [][]Matcher { return [][]Matcher{{{Kind: Exact, Value: "linux"}}} }

// seen is a host called as its agent, heard of ago.
func seen(id string, connected, ephemeral bool, ago time.Duration) RosterHost {
	return RosterHost{AgentID: id, Name: id, Labels: []string{"linux"}, Connected: connected, Ephemeral: ephemeral, LastSeenAt: rosterNow - ago.Milliseconds()}
}

func TestRosterDecidesByPresenceAndPolicy(t *testing.T) {
	const grace = 5 * time.Minute
	tests := []struct {
		name   string
		host   RosterHost
		policy string
		state  HostState
		action HostAction
		why    string
	}{
		{"connected", seen("a", true, false, time.Minute), "fail", HostReady, HostChild, ""},
		{"at the end of the grace", seen("a", true, false, grace), "fail", HostReady, HostChild, ""},
		{"its clock runs ahead", seen("a", true, false, -time.Minute), "fail", HostReady, HostChild, ""},
		{"silent for longer", seen("a", true, false, grace+time.Millisecond), "fail", HostUnreachable, HostFail, "host a (agent a) is silent: last seen 5m0s ago"},
		{"gone, default policy", seen("a", false, false, time.Hour), "", HostUnreachable, HostHold, "host a (agent a) is not connected: last seen 1h0m0s ago"},
		{"gone this moment", seen("a", false, false, 0), "hold", HostUnreachable, HostHold, "host a (agent a) is not connected: last seen 0s ago"},
		{"gone, skip", seen("a", false, false, time.Hour), "skip", HostUnreachable, HostSkip, "host a (agent a) is not connected: last seen 1h0m0s ago"},
		{"an ephemeral one never returns", seen("a", false, true, time.Hour), "hold", HostStale, HostSkip, "host a (agent a) is not connected: last seen 1h0m0s ago"},
		{"nor does it fail the run", seen("a", true, true, time.Hour), "fail", HostStale, HostSkip, "host a (agent a) is silent: last seen 1h0m0s ago"},
		{"an ephemeral one that is there", seen("a", true, true, 0), "fail", HostReady, HostChild, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Fanout{Include: anyHost(), OnUnreachable: tt.policy, Grace: grace}.Roster([]RosterHost{tt.host}, rosterNow)
			want := []Place{{Host: tt.host, Label: "a", State: tt.state, Action: tt.action, Why: tt.why}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func children(places []Place) []Place {
	return slices.DeleteFunc(slices.Clone(places), func(p Place) bool { return p.Action == HostSkip })
}

func TestHostsOfOneNameMakeChildrenOfDifferentNames(t *testing.T) {
	named := func(id, name string, connected bool) RosterHost {
		return RosterHost{AgentID: id, Name: name, Labels: []string{"linux"}, Connected: connected, LastSeenAt: rosterNow}
	}
	tests := []struct {
		name  string
		hosts []RosterHost
		want  []string // labels of the children, by agent id
	}{
		{"a name of one's own stays", []RosterHost{named("a", "vm", true), named("b", "db", true)}, []string{"vm", "db"}},
		{"a shared one gets the agent's id", []RosterHost{named("b", "vm", true), named("a", "vm", true), named("c", "db", true)}, []string{"vm, a", "vm, b", "db"}},
		{"who makes no child shares nothing", []RosterHost{named("a", "vm", true), named("b", "vm", false)}, []string{"vm"}},
		{"without a name the agent's id", []RosterHost{named("a", "", true)}, []string{"a"}},
		{"an awkward name does not collide", []RosterHost{named("a", "vm", true), named("b", "vm", true), named("c", "vm, a", true)}, []string{"vm, a #2", "vm, b", "vm, a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			places, err := Fanout{Include: anyHost(), OnUnreachable: "skip"}.Roster(tt.hosts, rosterNow)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range children(places) {
				got = append(got, p.Label)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRosterRefusesWhatItCannotDecide(t *testing.T) {
	hosts := []RosterHost{seen("a", true, false, 0)}
	for want, f := range map[string]Fanout{
		`onUnreachable "wait": expected hold, fail or skip`: {Include: anyHost(), OnUnreachable: "wait"},
		"runsOnAll: match label":                            {Include: [][]Matcher{{pattern("(")}}},
	} {
		if places, err := f.Roster(hosts, rosterNow); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, %v; want %s…", places, err, want)
		}
	}
	if places, err := (Fanout{}).Roster(hosts, rosterNow); err != nil || len(places) > 0 {
		t.Errorf("without an include group: %v, %v", places, err)
	}
}

func genRoster(t *rapid.T) []RosterHost {
	word := rapid.SampledFrom([]string{"", "a", "b", "a, b", "b, a", "a, b #2", "B"})
	id := rapid.StringMatching(`[abAB](, [ab])?( #2)?`)
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) RosterHost {
		return RosterHost{
			AgentID: id.Draw(t, "id"), Name: word.Draw(t, "name"), Labels: rapid.SliceOfN(rapid.SampledFrom([]string{"linux", "gpu", "kici:host:a"}), 0, 3).Draw(t, "labels"),
			Ephemeral: rapid.Bool().Draw(t, "ephemeral"), Connected: rapid.Bool().Draw(t, "connected"), LastSeenAt: rosterNow - rapid.Int64Range(-5, 20).Draw(t, "ago"),
		}
	}), 0, 8, func(h RosterHost) string { return h.AgentID }).Draw(t, "hosts")
}

func TestRosterProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := genRoster(t)
		f := Fanout{
			Include:       [][]Matcher{{{Kind: Exact, Value: "linux"}}, {pattern("^kici:host:")}},
			Exclude:       []Matcher{{Kind: Exact, Value: "gpu"}},
			OnUnreachable: rapid.SampledFrom([]string{"", "hold", "fail", "skip"}).Draw(t, "policy"), Grace: 10 * time.Millisecond,
		}
		places, err := f.Roster(hosts, rosterNow)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := f.Roster(rapid.Permutation(hosts).Draw(t, "order"), rosterNow)
		if diff := cmp.Diff(places, again); diff != "" {
			t.Fatalf("the order of the roster shows: %s", diff)
		}
		placed, labels := map[string]bool{}, map[string]bool{}
		for _, p := range places {
			placed[p.Host.AgentID] = true
			if (p.State == HostReady) != (p.Why == "") || (p.State == HostReady) != (p.Action == HostChild) {
				t.Fatalf("%s host: %s, %q", p.State, p.Action, p.Why)
			}
			if p.Host.Ephemeral && p.State == HostUnreachable || !p.Host.Ephemeral && p.State == HostStale {
				t.Fatalf("%+v is %s", p.Host, p.State)
			}
		}
		for _, p := range children(places) {
			if p.Label == "" || labels[p.Label] {
				t.Fatalf("label %q is empty or another's: %+v", p.Label, places)
			}
			labels[p.Label] = true
		}
		for _, h := range hosts {
			want := !slices.Contains(h.Labels, "gpu") && (slices.Contains(h.Labels, "linux") || slices.Contains(h.Labels, "kici:host:a"))
			if placed[h.AgentID] != want {
				t.Fatalf("%+v selected: %v", h, placed[h.AgentID])
			}
		}
	})
}

func TestHostsWithoutAnAgentAreReachedOnRequest(t *testing.T) {
	bare := RosterHost{AgentID: "a", Labels: []string{"linux"}, Uninitialized: true}
	for asked, want := range map[bool]HostAction{false: HostSkip, true: HostBringUp} {
		for _, policy := range []string{"hold", "fail", "skip"} {
			got, err := Fanout{Include: anyHost(), OnUnreachable: policy, Uninitialized: asked}.Roster([]RosterHost{bare}, rosterNow)
			if err != nil || len(got) != 1 || got[0].Action != want || got[0].State != HostBare || got[0].Why != "host a (agent a) has no agent" {
				t.Errorf("asked for %v, policy %s: %+v, %v", asked, policy, got, err)
			}
		}
	}
}
