package provenance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"kici/internal/decide/contexts"
	"kici/internal/server/engine"
)

// tokenLife is how long a token holds.
const tokenLife = 600 * time.Second

// defaultOrg stands in claims for an organisation that is not known.
const defaultOrg = "__default__"

// Why a job gets no token.
var (
	// ErrUnavailable says that no key can sign now. It may be able to later; no other key ever signs in its place.
	ErrUnavailable = errors.New("the signing key is not available")
	// ErrOver says that the job has ended, or never was.
	ErrOver = errors.New("the job is not running")
	// ErrUntrusted says that nobody vouches for the run. Its token would be one of the repository that it wants to change.
	ErrUntrusted = errors.New("the run is of a contributor whom nobody vouches for, so its jobs get no credentials")
)

// Token is an identity token for a job. Whoever holds it can speak for the job: it is neither logged nor stored.
type Token struct {
	Token     string `json:"token"`
	ExpiresIn int64  `json:"expiresIn"` // seconds
	ID        string `json:"jti"`
}

// claims are those of a token, in the order of their documentation. Texts that are not known are null.
type claims struct {
	Issuer       string  `json:"iss"`
	Subject      string  `json:"sub"`
	Audience     string  `json:"aud"`
	IssuedAt     int64   `json:"iat"` // epoch seconds, as the following
	NotBefore    int64   `json:"nbf"`
	Expires      int64   `json:"exp"`
	ID           string  `json:"jti"`
	Run          string  `json:"kici_run_id"`
	Job          string  `json:"kici_job_id"`
	Repository   *string `json:"repository"`
	Ref          *string `json:"ref"`
	SHA          *string `json:"sha"`
	WorkflowRef  *string `json:"workflow_ref"`
	Orchestrator *string `json:"orchestrator_id"`
	Org          string  `json:"org_id"`
	SourceOrigin *string `json:"source_origin"`
	Provider     *string `json:"provider"`
}

// claimsOf says of a job what its rows say. A test run's commit is not what it runs, so nothing is said of it: no bundle
// can claim then that it was made from that commit.
func claimsOf(id engine.JobIdentity, issuer, nodeID, audience, tokenID string, now time.Time) claims {
	c := claims{Issuer: issuer, Subject: subject(id), Audience: audience,
		IssuedAt: now.Unix(), NotBefore: now.Unix(), Expires: now.Add(tokenLife).Unix(), ID: tokenID, Run: id.RunID, Job: id.JobID,
		Repository: known(id.Repo), Ref: known(id.Ref), SHA: known(id.SHA), Orchestrator: known(nodeID), Org: id.OrgID,
		SourceOrigin: known(id.Provider), Provider: known(id.Provider)}
	if id.Test {
		c.SHA = nil
	}
	if c.SHA != nil && id.Workflow != "" {
		c.WorkflowRef = known(id.Workflow + "@" + id.SHA)
	}
	if c.Org == "" {
		c.Org = defaultOrg
	}
	return c
}

// subject names repository, ref and event. A colon in one of the first two is escaped: no name of a repository reads as
// another one with its ref.
func subject(id engine.JobIdentity) string {
	escape := strings.NewReplacer("%", "%25", ":", "%3A").Replace
	return fmt.Sprintf("repo:%s:ref:%s:event:%s", escape(id.Repo), escape(id.Ref), id.TriggerEvent)
}

func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Mint issues a token for a job that its agent has now. Errors: ErrOver, ErrUntrusted, ErrUnavailable.
func (r *Room) Mint(ctx context.Context, job engine.Owned, audience string) (Token, error) {
	id, ok, err := r.Jobs.JobIdentity(ctx, job.JobID)
	if err != nil {
		return Token{}, err
	}
	if !ok || id.Over || job.Past || id.RunID != job.RunID {
		return Token{}, ErrOver
	}
	if contexts.Withheld(id.Tier) {
		return Token{}, ErrUntrusted
	}
	key, err := r.signer(ctx)
	if err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	tokenID := uuid.NewString()
	token, err := key.SignToken(claimsOf(id, r.Issuer, r.NodeID, audience, tokenID, r.Clock()))
	if err != nil {
		return Token{}, err
	}
	r.Log.Info("identity token issued", "run", id.RunID, "job", id.JobID, "jti", tokenID, "kid", key.ID())
	return Token{Token: token, ExpiresIn: int64(tokenLife / time.Second), ID: tokenID}, nil
}
