package label

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"kici/internal/kit/collate"
)

// RosterHost is a host that a fan-out may reach: an agent that registered at some time, or a host that somebody declared.
type RosterHost struct {
	AgentID    string
	Name       string // as the agent says; several may say the same, and some say none
	Labels     []string
	Platform   string // in Node's words: linux, x64
	Arch       string
	Ephemeral  bool // destroyed with its connection: what is gone stays gone
	Connected  bool
	LastSeenAt int64 // epoch milliseconds
	// Uninitialized tells that the host was declared and has no agent: none of its own ever registered, and none that
	// somebody started there for a while is connected.
	Uninitialized bool
}

// HostState tells whether a host of the roster can be given work.
type HostState string

// The states of a host.
const (
	HostReady       HostState = "ready"       // connected, and heard of within the grace
	HostUnreachable HostState = "unreachable" // not so, but it may come back
	HostStale       HostState = "stale"       // not so, and it never comes back
	HostBare        HostState = "bare"        // it has no agent
)

// HostAction is what a fan-out does with a host. The words for hosts that cannot be reached are those of onUnreachable.
type HostAction string

// The actions. All but HostSkip make a child.
const (
	HostChild   HostAction = "child"   // a job of its own
	HostHold    HostAction = "hold"    // the same; it waits in the queue until the host returns or the queue's limit ends it
	HostFail    HostAction = "fail"    // a job that is born failed
	HostSkip    HostAction = "skip"    // none
	HostBringUp HostAction = "bringup" // a job of its own, once another has started an agent on the host
)

// Fanout is what a job that runs on all hosts asks of the roster.
type Fanout struct {
	Include       [][]Matcher   // see Hosts
	Exclude       []Matcher     //
	OnUnreachable string        // hold, fail, skip, or "" for hold
	Grace         time.Duration // silence after which a connected host counts as lost
	Uninitialized bool          // reaches hosts without an agent, too
}

// Place is one host that a fan-out selects. Label tells its child from all others of the fan-out, and Why says what keeps
// a host that is not ready from work.
type Place struct {
	Host   RosterHost
	Label  string
	State  HostState
	Action HostAction
	Why    string // "" for a ready host
}

// Roster resolves a fan-out against the hosts at the time now, epoch milliseconds. The places stand in the order of agent
// ids, whatever the order of hosts; a host that is not selected has none. The error is a policy that does not exist or an
// expression that cannot be evaluated.
func (f Fanout) Roster(hosts []RosterHost, now int64) ([]Place, error) {
	policy, err := f.policy()
	if err != nil {
		return nil, err
	}
	var places []Place
	for _, h := range hosts {
		selected, err := Hosts(f.Include, f.Exclude, h.Labels)
		if err != nil {
			return nil, fmt.Errorf("runsOnAll: %w", err)
		}
		if selected {
			places = append(places, f.place(h, policy, now))
		}
	}
	slices.SortFunc(places, func(a, b Place) int { return collate.Compare(a.Host.AgentID, b.Host.AgentID) })
	nameApart(places)
	return places, nil
}

func (f Fanout) policy() (HostAction, error) {
	switch p := HostAction(cmp.Or(f.OnUnreachable, string(HostHold))); p {
	case HostHold, HostFail, HostSkip:
		return p, nil
	}
	return "", fmt.Errorf("onUnreachable %q: expected hold, fail or skip", f.OnUnreachable)
}

func (f Fanout) place(h RosterHost, policy HostAction, now int64) Place {
	silent := time.Duration(now-h.LastSeenAt) * time.Millisecond
	p := Place{Host: h, Label: h.display(), State: HostReady, Action: HostChild}
	if h.Uninitialized {
		p.State, p.Action, p.Why = HostBare, HostSkip, fmt.Sprintf("host %s (agent %s) has no agent", p.Label, h.AgentID)
		if f.Uninitialized {
			p.Action = HostBringUp
		}
		return p
	}
	if h.Connected && silent <= f.Grace {
		return p
	}
	p.State, p.Action = HostUnreachable, policy
	if h.Ephemeral {
		p.State, p.Action = HostStale, HostSkip
	}
	presence := "not connected"
	if h.Connected {
		presence = "silent"
	}
	p.Why = fmt.Sprintf("host %s (agent %s) is %s: last seen %s ago", p.Label, h.AgentID, presence, max(silent, 0).Round(time.Second))
	return p
}

// display is the name of a host: what the agent says, else what its labels say, else its id.
func (h RosterHost) display() string { return cmp.Or(h.Name, Host(h.Labels), h.AgentID) }

// nameApart gives the children of hosts that share a name different labels: two jobs of one name could not be told apart
// by what depends on them, and neither would ever be given out. The agent id makes the difference, so that a host keeps
// its label from run to run.
func nameApart(places []Place) {
	sharing := map[string]int{}
	for _, p := range places {
		if p.Action != HostSkip {
			sharing[p.Label]++
		}
	}
	taken := map[string]bool{}
	for name, n := range sharing {
		taken[name] = n == 1
	}
	for i, p := range places {
		if p.Action != HostSkip && sharing[p.Label] > 1 {
			places[i].Label = free(taken, p.Label+", "+p.Host.AgentID)
		}
	}
}

// free takes a label, with a number when another has it already.
func free(taken map[string]bool, label string) string {
	wanted := label
	for n := 2; taken[label]; n++ {
		label = fmt.Sprintf("%s #%d", wanted, n)
	}
	taken[label] = true
	return label
}
