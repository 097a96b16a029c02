package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kici/internal/core/wire"
	"kici/internal/server/auth"
	"kici/internal/server/fleet"
	"kici/internal/server/store"
)

// rootLabel promises jobs the rights of root.
const rootLabel = "kici:privileged:root"

// Labels with these beginnings an agent may always give itself: they say what machine it runs on.
var selfReported = []string{"kici:os:", "kici:arch:", "kici:host:"}

// Bounds of what one agent may say of itself. A registration beyond them is invalid.
const (
	maxAgentID    = 256
	maxLabels     = 256
	maxLabel      = 512 // bytes; kici:host: and the longest name of a host, or kici:scaler: and such a name, fit in
	maxProperties = 256
)

// features are the extensions that this server honours.
var features = []string{wire.FeatureFrameAck, wire.FeatureStartFence, wire.FeatureFastBeat, wire.FeatureArtifacts}

// registration is what an agent registered with, and what the server made of it.
type registration struct {
	id             string
	labels         []string
	mandatory      []string
	features       []string // in force
	version        string
	platform, arch string
	maxConcurrency int
	newer          bool   // than oldSchema: it understands the status unroutable, and being told to wait
	spawn          *Spawn // nil: the server did not start it
}

func (c *conn) has(feature string) bool {
	r := c.agent.Load()
	return r != nil && slices.Contains(r.features, feature)
}

// handshake takes a connection from open to registered.
func (c *conn) handshake() error {
	if c.hub.Settings.NoAuth {
		c.hub.warnNoAuth()
	} else if err := c.authenticate(); err != nil {
		return err
	}
	m, err := c.awaitRegister()
	if err != nil {
		return err
	}
	return c.register(m)
}

func (h *Hub) warnNoAuth() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.warned {
		h.warned = true
		h.Log.Warn("agents are accepted without a token; whoever reaches this server can take jobs and read their secrets")
	}
}

// first reads one frame, and closes the connection when none comes in time.
func (c *conn) first(limit time.Duration, reason string) (wire.Message, error) {
	timer := time.AfterFunc(limit, func() { c.close(wire.CloseTimeout, reason) })
	m, _, err := c.read()
	if !timer.Stop() || c.isClosing() {
		return nil, errClosed
	}
	return m, err
}

// authenticate takes the token. Any auth.failure is final for the agent, so temporary trouble closes without one.
func (c *conn) authenticate() error {
	m, err := c.first(c.hub.Settings.AuthTimeout, wire.ReasonAuthTimeout)
	request, ok := m.(wire.AuthRequest)
	if !ok {
		if err != nil && !isFrameError(err) {
			return err
		}
		return c.fail(wire.ReasonFirstAuth)
	}
	if c.hub.Tokens == nil {
		c.hub.Log.Error("agents must present tokens, but there is no token store")
		return c.fail(wire.ReasonMisconfigured)
	}
	ctx, cancel := c.applyContext()
	defer cancel()
	token, err := c.hub.Tokens.Agent(ctx, request.Token)
	switch {
	case errors.Is(err, auth.ErrInvalidToken):
		return c.fail(wire.ReasonInvalidToken)
	case errors.Is(err, auth.ErrTokenState):
		c.hub.Log.Error("labels of an agent token are unreadable", "token", token.ID)
		return c.fail(wire.ReasonTokenState)
	case err != nil:
		c.hub.Log.Error("agent token not looked up", "remote", c.remote, "err", err)
		return c.refuse(wire.CloseInternal, wire.ReasonInternal)
	}
	c.hub.mu.Lock()
	c.token = token
	c.hub.mu.Unlock()
	return c.send(wire.AuthSuccess{ConnectionID: c.id})
}

// fail refuses an agent for good.
func (c *conn) fail(reason string) error {
	c.hub.Log.Warn("agent not authenticated", "remote", c.remote, "reason", reason)
	c.answer(wire.AuthFailure{Reason: reason})
	return c.refuse(wire.CloseUnauthorized, wire.ReasonAuthFailed)
}

// isFrameError tells what the peer sent wrong from a socket that ended.
func isFrameError(err error) bool {
	_, invalid := errors.AsType[*wire.InvalidError](err)
	return invalid || errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrUnknownType)
}

// awaitRegister reads the registration. Without tokens an agent that has one sends it all the same, and is told that it
// is welcome.
func (c *conn) awaitRegister() (wire.AgentRegister, error) {
	greeted := false
	for {
		m, err := c.first(c.hub.Settings.RegisterTimeout, wire.ReasonRegisterTimeout)
		if err != nil && !isFrameError(err) {
			return wire.AgentRegister{}, err
		}
		switch m := m.(type) {
		case wire.AgentRegister:
			return m, nil
		case wire.AuthRequest:
			if c.hub.Settings.NoAuth && !greeted {
				greeted = true
				if err := c.send(wire.AuthSuccess{ConnectionID: c.id}); err != nil {
					return wire.AgentRegister{}, err
				}
				continue
			}
		}
		return wire.AgentRegister{}, c.refuse(wire.CloseInvalid, wire.ReasonFirstRegister)
	}
}

// register takes an agent.register, the first one of a connection or a later one that refreshes it.
func (c *conn) register(m wire.AgentRegister) error {
	known := c.agent.Load()
	if !plausible(m) || known != nil && known.id != m.AgentID {
		c.answer(wire.ErrorFrame{Code: wire.CodeInvalidMessage, Message: wire.TextInvalidMessage})
		return c.refuse(wire.CloseInvalid, wire.ReasonInvalid)
	}
	if reason := gate(m, c.token); reason != "" {
		c.hub.Log.Warn("agent refused at a gate", "agent", m.AgentID, "reason", reason)
		return c.refuse(wire.CloseUnauthorized, reason)
	}
	lock := c.hub.registeringLock(m.AgentID)
	lock.Lock()
	defer lock.Unlock()
	if c.hub.collides(c, m.AgentID) {
		return c.refuse(wire.CloseInvalid, wire.ReasonCollision)
	}
	ctx, cancel := c.applyContext()
	defer cancel()
	err := c.admit(ctx, m)
	if err != nil && !errors.Is(err, errRefused) && !errors.Is(err, errClosed) {
		c.hub.Log.Error("agent not registered", "agent", m.AgentID, "err", err)
		return c.refuse(wire.CloseInternal, wire.ReasonInternal)
	}
	return err
}

// admit stores the agent, makes this its current connection and settles its jobs. The agent's registering lock is held.
func (c *conn) admit(ctx context.Context, m wire.AgentRegister) error {
	r, err := c.describe(ctx, m)
	if err != nil {
		return err
	}
	fresh := c.agent.Load() == nil
	consumed, err := c.store(ctx, m, r, fresh && c.token.SingleUse())
	if err != nil {
		return err
	}
	if !consumed {
		return c.fail(wire.ReasonInvalidToken)
	}
	c.hub.install(c, r) // from here on the end of this connection is the loss of the agent
	err = c.send(wire.RegisterAck{
		AgentID: r.id, Labels: r.labels, Features: r.features,
		ScalerManaged: r.spawn != nil, PendingDispatch: r.spawn != nil && r.spawn.PendingJob,
	})
	if err != nil {
		return err
	}
	cancels, err := c.hub.Engine.Connected(ctx, r.id, m.InFlightJobs, fresh)
	if err != nil {
		return err
	}
	for _, one := range cancels {
		c.answer(one)
		if !c.has(wire.FeatureFrameAck) {
			c.occupy(one.JobID, false)
		}
	}
	c.hub.setReady(c)
	c.hub.Log.Info("agent registered", "agent", r.id, "connection", c.id, "remote", c.remote, "version", r.version,
		"features", r.features, "jobs", len(m.InFlightJobs), "again", !fresh)
	return nil
}

// describe makes the registration of a frame. A later frame keeps what the first one was granted.
func (c *conn) describe(ctx context.Context, m wire.AgentRegister) (*registration, error) {
	r := &registration{
		id: m.AgentID, labels: m.Labels, version: m.Version, platform: or(m.Platform, "linux"), arch: or(m.Arch, "x64"),
		maxConcurrency: max(m.MaxConcurrency, 1),
		mandatory:      c.token.MandatoryLabels,
	}
	for _, f := range features {
		if slices.Contains(m.Features, f) {
			r.features = append(r.features, f)
		}
	}
	r.newer = newer(r.version, r.features)
	if known := c.agent.Load(); known != nil {
		r.mandatory, r.spawn = known.mandatory, known.spawn
		return r, nil
	}
	if c.hub.Scalers == nil {
		return r, nil
	}
	spawn, ok, err := c.hub.Scalers.Spawned(ctx, m.AgentID)
	if err != nil {
		return nil, fmt.Errorf("ask who started agent %s: %w", m.AgentID, err)
	}
	if ok {
		r.spawn, r.mandatory = &spawn, spawn.MandatoryLabels
	}
	return r, nil
}

// store writes the agent and, for a token that admits one registration, uses it up in the same transaction. consumed is
// false when somebody else was faster with that token.
func (c *conn) store(ctx context.Context, m wire.AgentRegister, r *registration, consume bool) (consumed bool, err error) {
	lifecycle := fleet.Static
	if r.spawn != nil || c.token.Type == auth.AgentEphemeral {
		lifecycle = fleet.Ephemeral
	}
	a := fleet.Agent{
		ID: r.id, Labels: r.labels, MandatoryLabels: r.mandatory, Features: r.features,
		Platform: r.platform, Arch: r.arch, Hostname: m.Hostname, Version: m.Version,
		Lifecycle: lifecycle, MaxConcurrency: r.maxConcurrency, Properties: m.Properties,
		Inventory: fleet.Inventory{
			OSRelease: m.OSRelease, OSVersion: m.OSVersion, NodeVersion: m.NodeVersion, RunningAsUser: m.RunningAsUser,
			RunningAsUID: m.RunningAsUID, TotalMemoryMb: m.TotalMemoryMb, CPUCount: m.CPUCount,
		},
		TokenID: c.token.ID, NodeID: c.hub.Settings.NodeID, ConnectionID: c.id, LastSeenAt: c.hub.Clock.Millis(),
	}
	err = c.hub.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		consumed = true
		if consume {
			if consumed, err = c.hub.Tokens.ConsumeTx(ctx, tx, c.token.ID); err != nil || !consumed {
				return err
			}
		}
		return fleet.Seen(ctx, tx, a)
	})
	return consumed, err
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func plausible(m wire.AgentRegister) bool {
	long := func(l string) bool { return len(l) > maxLabel }
	return m.AgentID != "" && len(m.AgentID) <= maxAgentID && len(m.Labels) <= maxLabels && !slices.ContainsFunc(m.Labels, long) &&
		len(m.Properties) <= maxProperties
}

// gate gives the reason for which a token does not admit this agent, or "".
func gate(m wire.AgentRegister, token auth.AgentToken) string {
	root := slices.Contains(m.Labels, rootLabel) || slices.Contains(token.Labels, rootLabel) || slices.Contains(token.MandatoryLabels, rootLabel)
	if root && (m.RunningAsUID == nil || *m.RunningAsUID != 0) {
		uid := "absent"
		if m.RunningAsUID != nil {
			uid = fmt.Sprint(*m.RunningAsUID)
		}
		return fmt.Sprintf("privileged-root token presented by non-root agent (uid=%s)", uid)
	}
	if token.Labels != nil {
		if excess := beyond(m.Labels, token.Labels); len(excess) > 0 {
			return "Agent labels exceed token-bound scope: " + strings.Join(excess, ", ")
		}
	}
	if bound := token.BoundAgent(); bound != "" && bound != m.AgentID {
		return fmt.Sprintf("Ephemeral token bound to a different agentId: expected %s, got %s", bound, m.AgentID)
	}
	return ""
}

// beyond lists the labels that are neither allowed nor self-reported.
func beyond(labels, allowed []string) (excess []string) {
	for _, l := range labels {
		self := slices.ContainsFunc(selfReported, func(prefix string) bool { return strings.HasPrefix(l, prefix) })
		if !self && !slices.Contains(allowed, l) {
			excess = append(excess, l)
		}
	}
	return excess
}
