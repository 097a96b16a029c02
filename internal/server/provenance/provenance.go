// Package provenance is the server's side of build provenance: it issues the identity tokens of jobs, signed by keys of its
// own, publishes those keys, takes the bundles that jobs make with such tokens, and says of a bundle whether it holds.
//
// What a bundle proves depends on the keys alone. They are rows: every node reads them when it signs and when it verifies,
// so a key that is revoked is believed by none from that moment on.
package provenance

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"kici/internal/core/attest"
	"kici/internal/kit/blob"
	"kici/internal/kit/seal"
	"kici/internal/kit/service"
	"kici/internal/server/auth"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

// Jobs tells who a job is.
type Jobs interface {
	// JobIdentity reads the identity of a job, or ok=false when there is no such job.
	JobIdentity(ctx context.Context, jobID string) (id engine.JobIdentity, ok bool, err error)
}

// Uploads let jobs put something, and this room read it.
type Uploads interface {
	Lend(ctx context.Context, job engine.Owned, key string, maxSize int64) (link string, err error)
	Lent(ctx context.Context, job engine.Owned, key string) ([]byte, error)
	EndLendingTx(ctx context.Context, tx *store.Tx, jobID, key string) error
	ReadAll(ctx context.Context, path string, most int64) ([]byte, error)
	DiscardTx(ctx context.Context, tx *store.Tx, path string) error
}

// AccessLog writes down who did what, in the transaction that does it.
type AccessLog interface {
	Record(ctx context.Context, tx *store.Tx, e auth.Entry) error
}

// Deps are what a room works with.
type Deps struct {
	DB      *store.DB
	Keys    *seal.Keyring
	Jobs    Jobs
	Uploads Uploads
	Blobs   blob.Store
	People  blob.Links // as the machines of people reach blobs
	Access  AccessLog
	Clock   service.Clock
	Log     *slog.Logger
	Issuer  string // of tokens, verbatim; "" issues none
	NodeID  string
	// Client is the address that a request comes from, "" when it is unknown.
	Client func(*http.Request) string
}

// Room is this node's part. It is safe for concurrent use, also by several servers on one database.
type Room struct {
	Deps
	sealed   atomic.Bool // the active key did not open when it was last tried
	visitors visitors
}

// New makes a room.
func New(d Deps) *Room { return &Room{Deps: d, visitors: newVisitors()} }

// Enabled tells whether this server signs tokens.
func (r *Room) Enabled() bool { return r.Issuer != "" }

// GoodIssuer tells whether a text can name an issuer: the URL of a server, below which its keys are published.
func GoodIssuer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") && u.User == nil && !strings.ContainsAny(text, "?#")
}

// ErrNotConfigured says that this server signs nothing.
var ErrNotConfigured = errors.New("provenance signing is not configured")

// discovery is the document by which others find the keys (OpenID Connect Discovery 1.0).
type discovery struct {
	Issuer        string   `json:"issuer"`
	KeySet        string   `json:"jwks_uri"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Claims        []string `json:"claims_supported"`
}

// discover makes the document, of the issuer alone.
func discover(issuer string) discovery {
	return discovery{Issuer: issuer, KeySet: strings.TrimRight(issuer, "/") + attest.KeySetPath, Algorithms: []string{"ES256"},
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"}, Claims: []string{"iss", "sub", "aud", "iat", "nbf", "exp", "jti",
			"kici_run_id", "kici_job_id", "repository", "ref", "sha", "workflow_ref", "orchestrator_id", "org_id", "source_origin", "provider"}}
}
