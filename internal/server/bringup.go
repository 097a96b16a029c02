package server

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"kici/internal/core/ci"
	"kici/internal/decide/plan"
	"kici/internal/server/auth"
	"kici/internal/server/fleet"
	"kici/internal/server/hub"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// bootstrapLife is how long the token lives that admits a started agent.
const bootstrapLife = 10 * time.Minute

// bringUps hands out what an agent needs to reach a declared host: to start another one there, or to let it boot.
type bringUps struct {
	db      *store.DB
	tokens  *auth.Tokens
	secrets *secrets.Store
	base    func() string // URL of this server as agents reach it
}

// Begin gives an agent the way to a host, the key, and a token for the agent to start, and notes that it did, or why not.
// The token and the note are one transaction: nobody gets a key without a trace.
func (b bringUps) Begin(ctx context.Context, caller hub.Caller, target string) (hub.BringUp, error) {
	answer, err := b.prepare(ctx, caller, target)
	if err == nil && answer.BroughtUp {
		err = b.db.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			answer.BootstrapToken, _, err = b.tokens.CreateEphemeralTx(ctx, tx, auth.NewAgentToken{Labels: answer.Labels, Agent: target, SingleUse: true, Life: bootstrapLife})
			if err != nil {
				return err
			}
			return b.tokens.Record(ctx, tx, entryOf(caller, actionBringUp, target, nil))
		})
		return answer, err
	}
	b.tokens.Note(ctx, entryOf(caller, actionBringUp, target, err))
	return answer, err
}

// What agents did, as the access log names it.
const (
	actionBringUp = "host.bring_up"
	actionPreBoot = "host.pre_boot_send"
)

func entryOf(caller hub.Caller, action, target string, refusal error) auth.Entry {
	e := auth.Entry{ActorType: "agent", ActorID: caller.AgentID, Action: action, Source: "agent", TargetType: "host", TargetID: target}
	if refusal != nil {
		e.Outcome, e.Error = auth.OutcomeDenied, refusal.Error()
	}
	return e
}

// prepare finds all but the token. A label that an agent gave itself opens nothing here: the answer holds a private key.
func (b bringUps) prepare(ctx context.Context, caller hub.Caller, target string) (hub.BringUp, error) {
	none := hub.BringUp{}
	if err := mayReach(caller); err != nil {
		return none, err
	}
	agent, err := fleet.Get(ctx, b.db.Read(), target)
	if err == nil && agent.Connected() {
		return none, nil
	}
	if err != nil && !errors.Is(err, fleet.ErrUnknown) {
		return none, err
	}
	reach, key, err := b.way(ctx, target)
	if err != nil {
		return none, err
	}
	address, err := socketURL(b.base())
	if err != nil {
		return none, err
	}
	return hub.BringUp{BroughtUp: true, PrivateKey: key, TargetAgentID: target, OrchestratorURL: address, Reach: &reach,
		Labels: []string{"kici:init", "kici:privileged:root", "kici:host:" + target}}, nil
}

func mayReach(caller hub.Caller) error {
	if !slices.Contains(caller.Granted, plan.CapabilitySSH) {
		return hub.Refuse("the token of agent %s does not name the label %s", caller.AgentID, plan.CapabilitySSH)
	}
	return nil
}

// way is how SSH gets to a declared host, and the private key for it.
func (b bringUps) way(ctx context.Context, target string) (reach hub.Reach, key string, err error) {
	host, err := fleet.Declared(ctx, b.db.Read(), target)
	switch {
	case errors.Is(err, fleet.ErrUnknown):
		return reach, "", hub.Refuse("no host is declared under the id %s", target)
	case err != nil:
		return reach, "", err
	case host.Reach.Address == "":
		return reach, "", hub.Refuse("host %s was declared without an address", target)
	}
	key, err = b.key(ctx, host)
	r := host.Reach
	return hub.Reach{AgentID: target, Address: r.Address, SSHUser: r.User, SSHPort: r.Port, HostKey: r.HostKey}, key, err
}

// key reads the private key of a host.
func (b bringUps) key(ctx context.Context, host fleet.Host) (string, error) {
	i := strings.LastIndexByte(host.Reach.KeySecret, '/')
	if i < 0 {
		return "", hub.Refuse("host %s was declared without the secret of its SSH key", host.AgentID)
	}
	key, ok, err := b.secrets.Named(ctx, ci.DefaultOrg, host.Reach.KeySecret[:i], host.Reach.KeySecret[i+1:])
	switch {
	case errors.Is(err, secrets.ErrNotConfigured):
		return "", hub.Refuse("the server has no key to open secrets with")
	case err != nil:
		return "", err
	case !ok:
		return "", hub.Refuse("secret %s, which holds the SSH key of host %s, does not exist", host.Reach.KeySecret, host.AgentID)
	}
	return key, nil
}

// socketURL is where agents on other machines connect, from the base URL of the server.
func socketURL(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return "", hub.Refuse("the server does not know its address for other hosts; set KICI_STORAGE_FS_BASE_URL to its URL")
	}
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	return u.JoinPath("ws").String(), nil
}
