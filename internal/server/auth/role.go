// Package auth knows who may do what: admin tokens with roles, agent tokens with labels, and the log of accesses. Of a
// token only its hash is stored; a lookup that cannot be done refuses.
package auth

import (
	"fmt"
	"slices"
)

// Role is what an admin token may do.
type Role string

// The roles. There are no others and no permissions of single tokens.
const (
	RoleOwner   Role = "owner"
	RoleAdmin   Role = "admin"
	RoleAuditor Role = "auditor" // never receives a secret value
)

// Roles lists the roles, the most powerful first.
func Roles() []Role { return []Role{RoleOwner, RoleAdmin, RoleAuditor} }

// Valid tells whether r is a role.
func (r Role) Valid() bool { return slices.Contains(Roles(), r) }

// Permission names what a route demands.
type Permission string

// The permissions.
const (
	ContextRead         Permission = "context.read"
	ContextCreate       Permission = "context.create"
	ContextUpdate       Permission = "context.update"
	ContextDelete       Permission = "context.delete"
	SecretRead          Permission = "secret.read"
	SecretWrite         Permission = "secret.write"
	SecretDelete        Permission = "secret.delete"
	SecretReveal        Permission = "secret.reveal"
	AuditRead           Permission = "audit.read"
	TokenManage         Permission = "token.manage"
	KeyRotate           Permission = "key.rotate"
	RunRead             Permission = "run.read"
	RunCancel           Permission = "run.cancel"
	EventLogRead        Permission = "event_log.read"
	EventLogReadPayload Permission = "event_log.read_payload"
	AccessLogRead       Permission = "access_log.read"
	ScheduledJobTrigger Permission = "scheduled_job.trigger"
	EventDLQRead        Permission = "event_dlq.read"
	EventDLQManage      Permission = "event_dlq.manage"
	OrchestratorDrain   Permission = "orchestrator.drain"
	CITrustRead         Permission = "ci_trust.read"
	CITrustAdmin        Permission = "ci_trust.admin"
	AttestationRetry    Permission = "attestation.retry"
)

var (
	ownerOnly = []Role{RoleOwner}
	writers   = []Role{RoleOwner, RoleAdmin}
	everyone  = Roles()
)

// grants is the whole table of who may do what.
var grants = map[Permission][]Role{
	ContextRead:         everyone,
	ContextCreate:       writers,
	ContextUpdate:       writers,
	ContextDelete:       writers,
	SecretRead:          writers,
	SecretWrite:         writers,
	SecretDelete:        writers,
	SecretReveal:        writers,
	AuditRead:           everyone,
	TokenManage:         ownerOnly,
	KeyRotate:           ownerOnly,
	RunRead:             everyone,
	RunCancel:           writers,
	EventLogRead:        everyone,
	EventLogReadPayload: writers,
	AccessLogRead:       everyone,
	ScheduledJobTrigger: writers,
	EventDLQRead:        everyone,
	EventDLQManage:      writers,
	OrchestratorDrain:   writers,
	CITrustRead:         everyone,
	CITrustAdmin:        writers,
	AttestationRetry:    writers,
}

// May tells whether the role has the permission. An unknown role or permission has none.
func (r Role) May(p Permission) bool { return slices.Contains(grants[p], r) }

// Lacks is the refusal of a role that may not, in the words of the API's contract.
func (r Role) Lacks(p Permission) string {
	return fmt.Sprintf("Role %q does not have permission %q", r, p)
}

// Identity is who calls: the admin token behind a request.
type Identity struct {
	TokenID    string
	Label      string
	Role       Role
	RoutingKey string // the only routing key that the token may act on, "" for all
}

// Scoped tells whether the token is bound to one routing key.
func (i Identity) Scoped() bool { return i.RoutingKey != "" }

// Covers tells whether the token may act on that routing key.
func (i Identity) Covers(routingKey string) bool { return !i.Scoped() || i.RoutingKey == routingKey }
