package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kici/internal/core/label"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func declare(t *testing.T, db *store.DB, h Host, at int64) (created bool, err error) {
	t.Helper()
	err = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		created, err = Declare(ctx, tx, h, at)
		return err
	})
	return created, err
}

const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGjYXdBTMmSuwQxnpI9K2yTBfXwqmrsJ4B9fXuvBRsrd"

func TestADeclarationIsKeptAsItWasLastWritten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		first := Host{AgentID: "web-3", Labels: []string{"web"}, Properties: map[string]any{"rack": 7.0, "spare": true, "zone": "b"}, Hostname: "w3",
			Reach: Reach{Address: "web-3.example.org", User: "kici", Port: 2222, KeySecret: "hosts/web/KEY", HostKey: hostKey}}
		if created, err := declare(t, db, first, 5); !created || err != nil {
			t.Fatalf("created %v, %v", created, err)
		}
		got, err := Declared(t.Context(), db.Read(), "web-3")
		first.DeclaredAt, first.UpdatedAt = 5, 5
		if diff := cmp.Diff(first, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if created, err := declare(t, db, Host{AgentID: "web-3"}, 9); created || err != nil {
			t.Errorf("created again: %v, %v", created, err)
		}
		got, err = Declared(t.Context(), db.Read(), "web-3")
		want := Host{AgentID: "web-3", Reach: Reach{User: "root", Port: 22}, DeclaredAt: 5, UpdatedAt: 9}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if _, err := Declared(t.Context(), db.Read(), "web-4"); !errors.Is(err, ErrUnknown) {
			t.Errorf("error %v", err)
		}
	})
}

func TestADeclarationThatCannotBeIsRefusedByItsField(t *testing.T) {
	long := strings.Repeat("x", 129)
	tests := []struct {
		field string
		edit  func(*Host)
	}{
		{"agentId", func(h *Host) { h.AgentID = "" }},
		{"agentId", func(h *Host) { h.AgentID = "a\nb" }},
		{"agentId", func(h *Host) { h.AgentID = long }},
		{"hostname", func(h *Host) { h.Hostname = "a\x00b" }},
		{"labels", func(h *Host) { h.Labels = []string{"web", ""} }},
		{"labels", func(h *Host) { h.Labels = []string{"a\xff"} }},
		{"labels", func(h *Host) { h.Labels = []string{"KICI:role:builder"} }},
		{"labels", func(h *Host) { h.Labels = make([]string, 257) }},
		{"properties", func(h *Host) { h.Properties = map[string]any{"a": nil} }},
		{"properties", func(h *Host) { h.Properties = map[string]any{"a": "\xff"} }},
		{"properties", func(h *Host) { h.Properties = map[string]any{"": "a"} }},
		{"address", func(h *Host) { h.Reach.Address = "-oProxyCommand=x" }},
		{"address", func(h *Host) { h.Reach.Address = "a b" }},
		{"sshUser", func(h *Host) { h.Reach.User = "-l" }},
		{"sshPort", func(h *Host) { h.Reach.Port = 65536 }},
		{"sshPort", func(h *Host) { h.Reach.Port = -1 }},
		{"sshKeySecret", func(h *Host) { h.Reach.KeySecret = "KEY" }},
		{"sshKeySecret", func(h *Host) { h.Reach.KeySecret = "hosts/../KEY/" }},
		{"sshKeySecret", func(h *Host) { h.Reach.KeySecret = "__source__/s/KEY" }},
		{"sshHostKey", func(h *Host) { h.Reach.HostKey = "ssh-ed25519 no" }},
		{"sshHostKey", func(h *Host) { h.Reach.HostKey = hostKey + "\n" + hostKey }},
	}
	for _, tt := range tests {
		h := Host{AgentID: "web-3"}
		tt.edit(&h)
		wrong, ok := errors.AsType[*InvalidHostError](h.complete())
		if !ok || wrong.Field != tt.field || wrong.Right == "" {
			t.Errorf("%+v: %v, want a refusal of %s", h, wrong, tt.field)
		}
	}
}

func TestTheRosterJoinsWhatWasDeclaredWithTheAgents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		for _, id := range []string{"a-bare", "b-installed", "c-started", "d-gone"} {
			if _, err := declare(t, db, Host{AgentID: id, Labels: []string{"web", "linux"}, Hostname: "declared-" + id}, 1); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range []Agent{
			{ID: "b-installed", Lifecycle: Static, Labels: []string{"linux", "own"}, Hostname: "b", ConnectionID: "c", LastSeenAt: 2},
			{ID: "c-started", Lifecycle: Ephemeral, Labels: []string{"kici:init"}, ConnectionID: "c", LastSeenAt: 3},
			{ID: "d-gone", Lifecycle: Ephemeral, Labels: []string{"kici:init"}, ConnectionID: "c", LastSeenAt: 4},
			{ID: "e-unknown", Lifecycle: Static, Labels: []string{"linux"}, Platform: "linux", Arch: "x64", ConnectionID: "c", LastSeenAt: 5},
		} {
			seen(t, db, a)
		}
		gone(t, db, "b-installed", "c", 6)
		gone(t, db, "d-gone", "c", 6)
		members, err := Members(t.Context(), db.Read())
		if err != nil {
			t.Fatal(err)
		}
		want := []label.RosterHost{
			{AgentID: "a-bare", Name: "declared-a-bare", Labels: []string{"web", "linux"}, Uninitialized: true},
			{AgentID: "b-installed", Name: "b", Labels: []string{"web", "linux", "own"}, LastSeenAt: 2},
			{AgentID: "c-started", Name: "declared-c-started", Labels: []string{"web", "linux", "kici:init"}, Ephemeral: true, Connected: true, LastSeenAt: 3},
			{AgentID: "d-gone", Name: "declared-d-gone", Labels: []string{"web", "linux", "kici:init"}, Ephemeral: true, LastSeenAt: 4, Uninitialized: true},
			{AgentID: "e-unknown", Labels: []string{"linux"}, Platform: "linux", Arch: "x64", Connected: true, LastSeenAt: 5},
		}
		if diff := cmp.Diff(want, Roster(members)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAHostIsForgottenOnceItsAgentIsGone(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		if _, err := declare(t, db, Host{AgentID: "web-3"}, 1); err != nil {
			t.Fatal(err)
		}
		seen(t, db, Agent{ID: "web-3", Lifecycle: Static, ConnectionID: "c"})
		forget := func() (existed bool, err error) {
			err = db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
				existed, err = ForgetHost(ctx, tx, "web-3")
				return err
			})
			return existed, err
		}
		if existed, err := forget(); !existed || !errors.Is(err, ErrConnected) {
			t.Errorf("while its agent is connected: %v, %v", existed, err)
		}
		gone(t, db, "web-3", "c", 2)
		if existed, err := forget(); !existed || err != nil {
			t.Errorf("%v, %v", existed, err)
		}
		if existed, err := forget(); existed || err != nil {
			t.Errorf("twice: %v, %v", existed, err)
		}
		if members, err := Members(t.Context(), db.Read()); len(members) > 0 || err != nil {
			t.Errorf("the roster still has %+v, %v", members, err)
		}
	})
}
