package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"kici/internal/core/wire"
	"kici/internal/server/engine"
	"kici/internal/server/provenance"
)

// methodToken is the call of a job for a token that says who it is.
const methodToken = "oidc.token.request"

// maxAudience bounds for whom a token is, in characters.
const maxAudience = 255

// Identities issue tokens for jobs.
type Identities interface {
	// Mint issues a token for the audience. Errors: provenance.ErrOver, provenance.ErrUntrusted, provenance.ErrUnavailable.
	Mint(ctx context.Context, job engine.Owned, audience string) (provenance.Token, error)
}

// later is the answer where a token cannot be issued now and may be later.
type later struct {
	Deferred bool   `json:"deferred"`
	Code     string `json:"code"`
}

// identity answers a job that asks for a token. Nothing of the request goes into it but for whom it is.
func (c *conn) identity(ctx context.Context, m wire.APIRequest) error {
	var q struct {
		JobID    string `json:"jobId"`
		Audience string `json:"audience"`
	}
	err := decodeParams(m.Params, &q)
	if n := utf8.RuneCountInString(q.Audience); err != nil || q.JobID == "" || n == 0 || n > maxAudience {
		c.answer(wire.APIResponse{RequestID: m.RequestID, Error: fmt.Sprintf("%s: jobId must be the id of a job and audience a text of 1 to %d characters", methodToken, maxAudience)})
		return nil
	}
	job, ok, err := c.owns(ctx, q.JobID, wire.APIResponse{RequestID: m.RequestID, Error: errNotOwner})
	if err != nil || !ok {
		return err
	}
	mint := func(ctx context.Context, _ json.RawMessage) (any, error) { return c.mint(ctx, job, q.Audience) }
	c.aside(job.JobID, func(ctx context.Context) { c.answer(c.hub.callAPI(ctx, mint, m)) })
	return nil
}

func (c *conn) mint(ctx context.Context, job engine.Owned, audience string) (any, error) {
	if err := c.ownedStill(ctx, job); errors.Is(err, engine.ErrNotOwner) {
		return nil, Refuse("%s", errNotOwner)
	} else if err != nil {
		return nil, err
	}
	token, err := c.hub.Identities.Mint(ctx, job, audience)
	switch {
	case errors.Is(err, provenance.ErrOver), errors.Is(err, provenance.ErrUntrusted):
		return nil, Refuse("%s: %v", methodToken, err)
	case errors.Is(err, provenance.ErrUnavailable):
		c.hub.Log.Warn("identity token not issued", "agent", c.name(), "run", job.RunID, "job", job.JobID, "err", err)
		return later{Deferred: true, Code: "unavailable"}, nil
	}
	return token, err
}
