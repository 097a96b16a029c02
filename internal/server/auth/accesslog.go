package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// Values of entries that more than one place writes.
const (
	OutcomeAllowed = "allowed"
	OutcomeDenied  = "denied"
	OutcomeError   = "error"

	SourceHTTP = "admin_http"
	SourceCLI  = "admin_cli"

	ActorAPIKey = "api_key"
	ActorSystem = "system"

	// InstanceOrg is the organisation of entries that concern the whole server.
	InstanceOrg = "__orchestrator__"
)

// Entry is one row of the access log: who looked at or changed what. Empty texts are left out.
type Entry struct {
	ID         string // time-ordered; set by Record
	At         int64  // epoch ms; set by Record
	OrgID      string // "" for InstanceOrg
	ActorType  string
	ActorID    string
	ActorMeta  map[string]any
	Action     string
	Source     string
	TargetType string
	TargetID   string
	Outcome    string // "" for OutcomeAllowed
	RoutingKey string
	RequestID  string
	Error      string         // what went wrong or why it was denied
	Meta       map[string]any // more about the access; never a value that is secret
}

// Entry is an entry about an act of this caller over HTTP.
func (i Identity) Entry(action string) Entry {
	return Entry{
		ActorType: ActorAPIKey, ActorID: i.TokenID, ActorMeta: map[string]any{"role": i.Role, "label": i.Label},
		Action: action, Source: SourceHTTP, RoutingKey: i.RoutingKey,
	}
}

// storedMeta is the meta column: the texts that have no column of their own, and the caller's.
type storedMeta struct {
	RoutingKey string         `json:"routingKey,omitempty"`
	RequestID  string         `json:"requestId,omitempty"`
	Error      string         `json:"errorMessage,omitempty"`
	More       map[string]any `json:"more,omitempty"`
}

// Record writes an entry, always, in the transaction of the change that it is about, so that neither exists without the
// other.
func (t *Tokens) Record(ctx context.Context, tx *store.Tx, e Entry) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("record access: %w", err)
	}
	meta, err := json.Marshal(storedMeta{RoutingKey: e.RoutingKey, RequestID: e.RequestID, Error: ci.CutText(e.Error), More: e.Meta})
	if err != nil {
		return fmt.Errorf("record access: %w", err)
	}
	actorMeta, err := json.Marshal(e.ActorMeta)
	if err != nil {
		return fmt.Errorf("record access: %w", err)
	}
	err = tx.Do(ctx, insertAccess, id.String(), t.clock.Millis(), orText(e.OrgID, InstanceOrg), e.ActorType,
		e.ActorID, string(actorMeta), e.Action, e.Source, e.TargetType, ci.CutText(e.TargetID),
		orText(e.Outcome, OutcomeAllowed), string(meta))
	if err != nil {
		return fmt.Errorf("record access: %w", err)
	}
	return nil
}

// noteTime bounds how long a note may hold up the request that it is about.
const noteTime = 2 * time.Second

// Note writes an entry about a read or a refusal, best effort: a failure is logged and the request goes on. Reads that
// happen all the time are sampled; see Sampled.
func (t *Tokens) Note(ctx context.Context, e Entry) {
	if !Sampled(e) {
		return
	}
	// The caller may be gone already; its access is noted all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	err := t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return t.Record(ctx, tx, e) })
	if err != nil {
		t.log.Warn("access was not noted", "action", e.Action, "err", err)
	}
}

// samples tells which share of the allowed accesses is written, for reads that user interfaces repeat all the time.
// Every other action is always written.
var samples = map[string]float64{
	"run.detail.read": 0.05, "run.structured.read": 0.05, "runs.list.read": 0.05, "runs.filters.read": 0.05,
	"event_log.list.read": 0.05,
	"sources.list.read":   0.1, "run.orch_logs.read": 0.1, "step.logs.read": 0.1, "context.list.read": 0.1,
	"registration.list.read": 0.1, "global_workflows.get.read": 0.1,
	"context.get.read": 0.2, "context.history.read": 0.2, "held_run.list.read": 0.2, "context_binding.list.read": 0.2,
	"backend.list.read": 0.2, "backend.get.read": 0.2, "event_dlq.list.read": 0.2,
	"diagnostics.read": 0.05, "scaler.capacity.read": 0.05, "scaler.agents.read": 0.05, "fleet.read": 0.05,
}

// Sampled tells whether an access is written. The decision is a function of the actor and the request, so one request
// is noted as a whole; denials and errors always are.
func Sampled(e Entry) bool {
	share, sampled := samples[e.Action]
	if !sampled || e.Outcome == OutcomeDenied || e.Outcome == OutcomeError {
		return true
	}
	h := fnv.New32a()
	h.Write([]byte(e.ActorType + ":" + e.ActorID + "|" + e.RequestID))
	return float64(h.Sum32())/(1<<32) < share
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

const insertAccess = `INSERT INTO access_log
	(id, at, org_id, actor_type, actor_id, actor_meta, action, source, target_type, target_id, outcome, meta)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
