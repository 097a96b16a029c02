package adminapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/server/auth"
	"kici/internal/server/store"
)

// kickTime bounds how long the answer to a revocation waits for the connections to end.
const kickTime = 10 * time.Second

// recorded runs a change and the access-log row about it in one transaction, so that neither exists without the other.
// The row is built after the change, when its target is known.
func (a *API) recorded(r *http.Request, change func(ctx context.Context, tx *store.Tx) (auth.Entry, error)) error {
	err := a.DB.Write(r.Context(), func(ctx context.Context, tx *store.Tx) error {
		e, err := change(ctx, tx)
		if err != nil {
			return err
		}
		return a.Tokens.Record(ctx, tx, e)
	})
	if err == nil {
		noted(r)
	}
	return err
}

// entry is an access-log row about this request.
func entry(r *http.Request, action, targetType, targetID string) auth.Entry {
	e := caller(r).Entry(action)
	e.OrgID, e.TargetType, e.TargetID, e.RequestID = orgOf(r), targetType, targetID, r.Header.Get("X-Request-ID")
	return e
}

// note writes the access-log row of a call that knows its target better than its route does, best effort.
func (a *API) note(r *http.Request, action, targetType, targetID string) {
	a.noteEntry(r, entry(r, action, targetType, targetID))
}

func (a *API) noteEntry(r *http.Request, e auth.Entry) {
	a.Tokens.Note(r.Context(), e)
	noted(r)
}

// createToken answers with the text of the token, which is stored nowhere: who loses it makes another.
func (a *API) createToken(r *http.Request) (answer, error) {
	var in adminwire.NewAdminToken
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	n := auth.NewAdminToken{Label: in.Label, Role: auth.Role(in.Role), Subject: in.Subject}
	if in.RoutingKey != nil {
		n.RoutingKey = *in.RoutingKey
	}
	if in.ExpiresAt != nil && !in.ExpiresAt.IsZero() {
		expires := in.ExpiresAt.UnixMilli()
		n.ExpiresAt = &expires
	}
	var out adminwire.CreatedAdminToken
	err := a.recorded(r, func(ctx context.Context, tx *store.Tx) (auth.Entry, error) {
		var err error
		out.Token, out.ID, err = a.Tokens.CreateAdminTx(ctx, tx, n)
		return entry(r, "token.create", "token", out.ID), err
	})
	if err != nil {
		return answer{}, err
	}
	return created(out)
}

// listTokens shows revoked tokens too, since the access log names them.
func (a *API) listTokens(r *http.Request) (answer, error) {
	tokens, err := a.Tokens.AdminTokens(r.Context())
	if err != nil {
		return answer{}, err
	}
	out := adminwire.AdminTokenList{Tokens: make([]adminwire.AdminToken, len(tokens))}
	for i, t := range tokens {
		out.Tokens[i] = adminwire.AdminToken{ID: t.ID, Label: t.Label, Role: string(t.Role), RoutingKey: orNull(t.RoutingKey),
			CreatedAt: adminwire.At(t.CreatedAt), ExpiresAt: at(t.ExpiresAt), LastUsedAt: at(t.LastUsedAt), Revoked: t.Revoked}
	}
	return ok(out)
}

// revokeToken may end the very token that the request was made with; the next request is refused then. The last owner
// token stays: without it nobody could make another.
func (a *API) revokeToken(r *http.Request) (answer, error) {
	id := r.PathValue("id")
	err := a.recorded(r, func(ctx context.Context, tx *store.Tx) (auth.Entry, error) {
		return entry(r, "token.revoke", "token", id), a.Tokens.RevokeAdminTx(ctx, tx, id)
	})
	if errors.Is(err, auth.ErrNotFound) {
		return answer{}, refuse(http.StatusNotFound, "Token not found")
	}
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.Revoked{Revoked: true})
}

// createAgentToken makes a static token. Those for single agents are made by whoever starts the agents.
func (a *API) createAgentToken(r *http.Request) (answer, error) {
	var in adminwire.NewAgentToken
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	if in.CreatedBy == "" {
		in.CreatedBy = caller(r).Label
	}
	var token string
	var made auth.AgentToken
	err := a.recorded(r, func(ctx context.Context, tx *store.Tx) (auth.Entry, error) {
		var err error
		token, made, err = a.Tokens.CreateStaticTx(ctx, tx, auth.NewAgentToken{Labels: in.Labels, MandatoryLabels: in.MandatoryLabels, CreatedBy: in.CreatedBy})
		return entry(r, "agent_token.create", "token", made.ID), err
	})
	if err != nil {
		return answer{}, err
	}
	return created(adminwire.CreatedAgentToken{ID: made.ID, Token: token, TokenPrefix: made.Prefix, Labels: made.Labels,
		AgentType: string(made.Type), CreatedAt: adminwire.At(made.CreatedAt)})
}

// listAgentTokens shows a token by its first characters, by which people tell tokens apart.
func (a *API) listAgentTokens(r *http.Request) (answer, error) {
	kind := auth.AgentType(r.URL.Query().Get("type"))
	if kind != "" && kind != auth.AgentStatic && kind != auth.AgentEphemeral {
		return answer{}, refuse(http.StatusBadRequest, "type must be static or ephemeral")
	}
	tokens, err := a.Tokens.AgentTokens(r.Context(), kind)
	if err != nil {
		return answer{}, err
	}
	out := adminwire.AgentTokenList{Tokens: make([]adminwire.AgentToken, len(tokens))}
	for i, t := range tokens {
		out.Tokens[i] = adminwire.AgentToken{ID: t.ID, TokenPrefix: t.Prefix, Labels: t.Labels, MandatoryLabels: t.MandatoryLabels,
			AgentType: string(t.Type), CreatedBy: t.CreatedBy, CreatedAt: adminwire.At(t.CreatedAt), LastSeenAt: at(t.LastSeenAt), ExpiresAt: at(t.ExpiresAt)}
	}
	return ok(out)
}

// revokeAgentToken ends the token's connections before it answers. Without a hub it refuses and revokes nothing: a
// revoked token with a live connection would be taken for ended.
func (a *API) revokeAgentToken(r *http.Request) (answer, error) {
	if a.Kicker == nil {
		return answer{}, refuse(http.StatusServiceUnavailable, "Agent registry not available")
	}
	id := r.PathValue("id")
	err := a.recorded(r, func(ctx context.Context, tx *store.Tx) (auth.Entry, error) {
		return entry(r, "agent_token.revoke", "token", id), a.Tokens.RevokeAgentTx(ctx, tx, id)
	})
	if errors.Is(err, auth.ErrNotFound) {
		return answer{}, refuse(http.StatusNotFound, "Agent token not found or already revoked")
	}
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), kickTime)
	defer cancel()
	return ok(adminwire.Kicked{Kicked: a.Kicker.KickToken(ctx, id)})
}

// at is a stored time that may be NULL, as the API writes it.
func at(millis *int64) adminwire.Time {
	if millis == nil {
		return adminwire.Time{}
	}
	return adminwire.At(*millis)
}

// orNull is a text that is null in JSON when it is empty: absent texts are stored as NULL and read as "".
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
