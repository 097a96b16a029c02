package auth

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/kit/seal"
	"kici/internal/server/store"
)

// touchEvery is how often the last use of a token is written. More often would cost a write for every request.
const touchEvery = time.Minute

// maxLabels bounds the labels of a token, so that a row stays small.
const maxLabels = 256

// Agent is the token behind the text that an agent presented: not revoked, not used up, not expired. Errors:
// ErrInvalidToken, ErrTokenState, or a temporary one. That it was seen is noted, at most once a minute.
func (t *Tokens) Agent(ctx context.Context, token string) (AgentToken, error) {
	now := t.clock.Millis()
	row := t.db.Read().QueryRowContext(ctx, selectAgentByHash, seal.HashToken(token), now)
	found, err := scanAgentToken(row)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return AgentToken{}, ErrInvalidToken
	case err != nil:
		return AgentToken{}, fmt.Errorf("look up agent token: %w", err)
	}
	t.touch(ctx, touchAgent, found.ID, found.LastSeenAt, now)
	return found, nil
}

// NewAgentToken describes a token to make.
type NewAgentToken struct {
	Labels          []string // nil is unrestricted
	MandatoryLabels []string
	CreatedBy       string // static tokens: free text for people
	Agent           string // ephemeral tokens: the agent id that it is bound to
	SingleUse       bool   // ephemeral tokens: it admits one registration only
	Life            time.Duration
}

// CreateStatic makes a token that any number of agents may share. The token's text is given here and never again.
func (t *Tokens) CreateStatic(ctx context.Context, n NewAgentToken) (token string, made AgentToken, err error) {
	err = t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		token, made, err = t.CreateStaticTx(ctx, tx, n)
		return err
	})
	return token, made, err
}

// CreateStaticTx is CreateStatic within a transaction.
func (t *Tokens) CreateStaticTx(ctx context.Context, tx *store.Tx, n NewAgentToken) (string, AgentToken, error) {
	return t.insertAgent(ctx, tx, n, AgentToken{Type: AgentStatic, CreatedBy: ci.CutName(n.CreatedBy)})
}

// CreateEphemeralTx makes a token for the agent that n.Agent names, which ends after n.Life. It is part of the
// transaction that records the agent's start, so that neither exists without the other.
func (t *Tokens) CreateEphemeralTx(ctx context.Context, tx *store.Tx, n NewAgentToken) (string, AgentToken, error) {
	if n.Agent == "" || n.Life <= 0 {
		return "", AgentToken{}, fmt.Errorf("%w: an ephemeral token needs an agent and a life", ErrInvalid)
	}
	expires := t.clock().Add(n.Life).UnixMilli()
	made := AgentToken{Type: AgentEphemeral, CreatedBy: n.Agent, ExpiresAt: &expires}
	if n.SingleUse {
		made.CreatedBy = bootstrapBy + n.Agent
	}
	return t.insertAgent(ctx, tx, n, made)
}

func (t *Tokens) insertAgent(ctx context.Context, tx *store.Tx, n NewAgentToken, made AgentToken) (string, AgentToken, error) {
	labels, err := labelsJSON(n.Labels)
	if err != nil {
		return "", AgentToken{}, err
	}
	mandatory, err := labelsJSON(n.MandatoryLabels)
	if err != nil {
		return "", AgentToken{}, err
	}
	token := seal.NewAgentToken()
	made.ID, made.Prefix, made.CreatedAt = uuid.NewString(), seal.TokenPrefix(token), t.clock.Millis()
	made.Labels, made.MandatoryLabels = n.Labels, n.MandatoryLabels
	err = tx.Do(ctx, insertAgentToken, made.ID, seal.HashToken(token), made.Prefix, labels, mandatory,
		made.Type, made.CreatedBy, made.CreatedAt, made.ExpiresAt)
	if err != nil {
		return "", AgentToken{}, fmt.Errorf("create agent token: %w", err)
	}
	return token, made, nil
}

// labelsJSON is the stored form of labels: NULL for nil, which means unrestricted.
func labelsJSON(labels []string) (*string, error) {
	if labels == nil {
		return nil, nil
	}
	if len(labels) > maxLabels {
		return nil, fmt.Errorf("%w: more than %d labels", ErrInvalid, maxLabels)
	}
	for _, l := range labels {
		if l == "" || len(l) > ci.MaxRepository || l != ci.CleanText(l) {
			return nil, fmt.Errorf("%w: a label must be a text of 1 to %d bytes", ErrInvalid, ci.MaxRepository)
		}
	}
	raw, err := json.Marshal(labels)
	if err != nil {
		return nil, fmt.Errorf("create agent token: %w", err)
	}
	text := string(raw)
	return &text, nil
}

// AgentTokens lists the tokens that are not revoked, newest first; typ "" lists both types.
func (t *Tokens) AgentTokens(ctx context.Context, typ AgentType) ([]AgentToken, error) {
	return t.agentTokens(ctx, listAgentTokens, typ)
}

// ExpiredAgentTokens lists ephemeral tokens whose time is up, oldest first, at most 500. The sweeper closes their
// connections and then calls DeleteAgent; it leaves alone a token whose agent still works on a job.
func (t *Tokens) ExpiredAgentTokens(ctx context.Context) ([]AgentToken, error) {
	return t.agentTokens(ctx, listExpiredAgents, t.clock.Millis())
}

func (t *Tokens) agentTokens(ctx context.Context, query string, arg any) ([]AgentToken, error) {
	rows, err := t.db.Read().QueryContext(ctx, query, arg)
	if err != nil {
		return nil, fmt.Errorf("list agent tokens: %w", err)
	}
	defer rows.Close()
	out := []AgentToken{}
	for rows.Next() {
		one, err := scanAgentToken(rows)
		if err != nil && !errors.Is(err, ErrTokenState) { // an unreadable token must still be seen, to be revoked
			return nil, fmt.Errorf("list agent tokens: %w", err)
		}
		out = append(out, one)
	}
	return out, rows.Err()
}

// RevokeAgentTx revokes a token. ErrNotFound says that it does not exist or was revoked before. The caller closes the
// connections that use it before it answers.
func (t *Tokens) RevokeAgentTx(ctx context.Context, tx *store.Tx, id string) error {
	changed, err := store.Changed(tx.ExecContext(ctx, revokeAgentToken, id, t.clock.Millis()))
	if err != nil {
		return fmt.Errorf("revoke agent token %s: %w", id, err)
	}
	if !changed {
		return ErrNotFound
	}
	return nil
}

// RevokeAgent is RevokeAgentTx in a transaction of its own.
func (t *Tokens) RevokeAgent(ctx context.Context, id string) error {
	return t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return t.RevokeAgentTx(ctx, tx, id) })
}

// ConsumeTx uses up a single-use token and reports whether this call did. Of two agents that register at once with one
// token, exactly one gets true.
func (t *Tokens) ConsumeTx(ctx context.Context, tx *store.Tx, id string) (bool, error) {
	changed, err := store.Changed(tx.ExecContext(ctx, consumeAgentToken, id, t.clock.Millis()))
	if err != nil {
		return false, fmt.Errorf("consume agent token %s: %w", id, err)
	}
	return changed, nil
}

// Consume is ConsumeTx in a transaction of its own.
func (t *Tokens) Consume(ctx context.Context, id string) (consumed bool, err error) {
	err = t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		consumed, err = t.ConsumeTx(ctx, tx, id)
		return err
	})
	return consumed, err
}

// DeleteAgent removes an ephemeral token; a static one is revoked, never removed. It is no error when it is gone.
func (t *Tokens) DeleteAgent(ctx context.Context, id string) error {
	return t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.Do(ctx, deleteAgentToken, id); err != nil {
			return fmt.Errorf("delete agent token %s: %w", id, err)
		}
		return nil
	})
}

// touch notes the last use of a token, best effort: a lookup must not fail because a note of it could not be made.
func (t *Tokens) touch(ctx context.Context, statement, id string, last *int64, now int64) {
	before := now - touchEvery.Milliseconds()
	if last != nil && *last > before {
		return
	}
	err := t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Do(ctx, statement, id, now, before)
	})
	if err != nil {
		t.log.Warn("last use of a token was not noted", "id", id, "err", err)
	}
}

// scanAgentToken reads one row. Labels that cannot be read come with ErrTokenState and the rest of the token; mandatory
// labels that cannot be read count as none.
func scanAgentToken(row interface{ Scan(...any) error }) (AgentToken, error) {
	var t AgentToken
	var labels, mandatory sql.NullString
	err := row.Scan(&t.ID, &t.Prefix, &labels, &mandatory, &t.Type, &t.CreatedBy, &t.CreatedAt, &t.ExpiresAt, &t.LastSeenAt)
	if err != nil {
		return AgentToken{}, err
	}
	if mandatory.Valid {
		if json.Unmarshal([]byte(mandatory.String), &t.MandatoryLabels) != nil {
			t.MandatoryLabels = nil
		}
	}
	if labels.Valid {
		if json.Unmarshal([]byte(labels.String), &t.Labels) != nil || t.Labels == nil {
			t.Labels = []string{}
			return t, ErrTokenState
		}
	}
	return t, nil
}

const agentColumns = `id, token_prefix, labels, mandatory_labels, agent_type, created_by, created_at, expires_at, last_seen_at`

const (
	selectAgentByHash = `SELECT ` + agentColumns + ` FROM agent_tokens
		WHERE token_hash = $1 AND revoked_at IS NULL AND consumed_at IS NULL AND (expires_at IS NULL OR expires_at > $2)`
	insertAgentToken = `INSERT INTO agent_tokens
		(id, token_hash, token_prefix, labels, mandatory_labels, agent_type, created_by, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	listAgentTokens = `SELECT ` + agentColumns + ` FROM agent_tokens
		WHERE revoked_at IS NULL AND (agent_type = $1 OR $1 = '') ORDER BY created_at DESC, id LIMIT 10000`
	listExpiredAgents = `SELECT ` + agentColumns + ` FROM agent_tokens
		WHERE agent_type = 'ephemeral' AND expires_at <= $1 ORDER BY expires_at, id LIMIT 500`
	touchAgent        = `UPDATE agent_tokens SET last_seen_at = $2 WHERE id = $1 AND (last_seen_at IS NULL OR last_seen_at <= $3)`
	revokeAgentToken  = `UPDATE agent_tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL`
	consumeAgentToken = `UPDATE agent_tokens SET consumed_at = $2
		WHERE id = $1 AND consumed_at IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)`
	deleteAgentToken = `DELETE FROM agent_tokens WHERE id = $1 AND agent_type = 'ephemeral'`
)
