package auth

import (
	"errors"
	"log/slog"
	"strings"

	"kici/internal/kit/service"
	"kici/internal/server/store"
)

// Errors of lookups and changes. Any other error of a lookup means that it could not be done: refuse, and let the caller
// try again.
var (
	ErrInvalidToken = errors.New("invalid or expired token")
	// ErrTokenState says that the stored labels of an agent token cannot be read, so nobody knows what it grants.
	ErrTokenState = errors.New("stored labels of the token are unreadable")
	ErrNotFound   = errors.New("token not found or already revoked")
	ErrLastOwner  = errors.New("cannot revoke the last owner token")
	ErrExists     = errors.New("token already exists")
	// ErrInvalid is behind every error that says what is wrong with the input.
	ErrInvalid = errors.New("invalid token request")
)

// Tokens owns the tables of admin and agent tokens and of the access log.
type Tokens struct {
	db    *store.DB
	clock service.Clock
	log   *slog.Logger
}

// New makes the owner of the token tables.
func New(db *store.DB, clock service.Clock, log *slog.Logger) *Tokens {
	return &Tokens{db: db, clock: clock, log: log}
}

// AdminToken is an admin token as lists show it. Times are epoch milliseconds; nil means never or not yet.
type AdminToken struct {
	ID         string
	Label      string
	Role       Role
	RoutingKey string // "" for all
	Subject    string // the person whom it stands for, "" for none
	CreatedAt  int64
	ExpiresAt  *int64
	LastUsedAt *int64
	Revoked    bool
}

// AgentType tells how an agent token came to be.
type AgentType string

// The types of agent tokens.
const (
	AgentStatic    AgentType = "static"    // made by a person, for any number of agents
	AgentEphemeral AgentType = "ephemeral" // made for one agent
)

// bootstrapBy starts CreatedBy of a token that admits its agent once.
const bootstrapBy = "bootstrap:"

// AgentToken is what an agent token grants. Times are epoch milliseconds; nil means never or not yet.
type AgentToken struct {
	ID              string
	Prefix          string   // the first characters, for people
	Labels          []string // what its agents may carry; nil is unrestricted, empty is none
	MandatoryLabels []string // what a job must name to run on its agents
	Type            AgentType
	CreatedBy       string // static: free text; ephemeral: the agent it was made for, see BoundAgent
	CreatedAt       int64
	ExpiresAt       *int64
	LastSeenAt      *int64
}

// SingleUse tells whether the token admits one registration only; see Consume.
func (t AgentToken) SingleUse() bool {
	return t.Type == AgentEphemeral && strings.HasPrefix(t.CreatedBy, bootstrapBy)
}

// BoundAgent is the only agent id that may use the token, "" when any may.
func (t AgentToken) BoundAgent() string {
	if t.Type != AgentEphemeral {
		return ""
	}
	return strings.TrimPrefix(t.CreatedBy, bootstrapBy)
}
