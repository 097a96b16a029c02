package auth

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"kici/internal/server/store"
)

// ErrCursor says that a cursor is none that this list gave.
var ErrCursor = errors.New("invalid cursor")

// AccessFilter chooses entries of the access log. Empty fields choose all.
type AccessFilter struct {
	OrgID      string
	ActorType  string
	ActorID    string
	Action     string
	Source     string
	Outcome    string
	TargetType string
	TargetID   string
	From       int64 // epoch ms, inclusive
	To         int64 // epoch ms, exclusive; 0 for no end
	Text       string
	Limit      int    // 1 to 200, 50 otherwise
	Cursor     string // from the page before
}

// AccessLog gives a page of entries, newest first, and the cursor of the next page, "" after the last. Text is looked
// for in error messages, in any case. A bad cursor is ErrCursor.
func (t *Tokens) AccessLog(ctx context.Context, f AccessFilter) (entries []Entry, next string, err error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	limit = min(limit, 200)
	query, args, err := accessQuery(f, limit+1)
	if err != nil {
		return nil, "", err
	}
	rows, err := t.db.Read().QueryContext(ctx, query, args...)
	if err != nil {
		return nil, "", fmt.Errorf("read access log: %w", err)
	}
	defer rows.Close()
	entries = []Entry{}
	for rows.Next() {
		e, err := scanAccess(rows)
		if err != nil {
			return nil, "", fmt.Errorf("read access log: %w", err)
		}
		entries = append(entries, e)
	}
	if err := rows.Err(); err != nil {
		return nil, "", fmt.Errorf("read access log: %w", err)
	}
	if len(entries) > limit {
		entries = entries[:limit]
		next = cursorOf(entries[limit-1])
	}
	return entries, next, nil
}

// Access gives one entry; ErrNotFound when there is none. An empty orgID looks in all.
func (t *Tokens) Access(ctx context.Context, orgID, id string) (Entry, error) {
	e, err := scanAccess(t.db.Read().QueryRowContext(ctx, selectAccess+` WHERE id = $1 AND (org_id = $2 OR $2 = '')`, id, orgID))
	if errors.Is(err, sql.ErrNoRows) {
		return Entry{}, ErrNotFound
	}
	if err != nil {
		return Entry{}, fmt.Errorf("read access log: %w", err)
	}
	return e, nil
}

// PurgeAccessTx removes entries that are older than their class is kept for, days before now: denials and errors 180,
// sampled reads 30, secrets 365, all others 180. It removes at most 5000 and tells how many, so that one cleanup never
// holds the database for long; call it until it gives 0.
func (t *Tokens) PurgeAccessTx(ctx context.Context, tx *store.Tx) (int64, error) {
	const day = 24 * 60 * 60 * 1000
	now := t.clock.Millis()
	args := []any{now - 180*day, now - 30*day, now - 365*day}
	names := make([]string, 0, len(samples))
	for action := range samples {
		args = append(args, action)
		names = append(names, "$"+strconv.Itoa(len(args)))
	}
	res, err := tx.ExecContext(ctx, `DELETE FROM access_log WHERE id IN (SELECT id FROM access_log WHERE at < CASE
		WHEN outcome <> 'allowed' THEN CAST($1 AS BIGINT)
		WHEN action IN (`+strings.Join(names, ", ")+`) THEN CAST($2 AS BIGINT)
		WHEN action LIKE 'secret%' THEN CAST($3 AS BIGINT)
		ELSE CAST($1 AS BIGINT) END ORDER BY at LIMIT 5000)`, args...)
	if err != nil {
		return 0, fmt.Errorf("purge access log: %w", err)
	}
	return res.RowsAffected()
}

// renamed are the present names of what was called otherwise when contexts were environments.
var renamed = map[string]string{"environment": "context", "environment.create": "context.create", "environment.update": "context.policy.update",
	"environment.delete": "context.delete", "environment.list.read": "context.list.read", "environment.get.read": "context.get.read",
	"env_var.list.read": "variable.list.read", "env_var.set": "variable.set", "env_var.delete": "variable.delete", "env_binding.set": "context.bind"}

// now is the present name of an action or of a type of targets.
func now(name string) string {
	if present, ok := renamed[name]; ok {
		return present
	}
	return name
}

// accessQuery builds the statement out of constant parts; every value is an argument.
func accessQuery(f AccessFilter, limit int) (string, []any, error) {
	var where []string
	var args []any
	add := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(args)), 1)
		}
		where = append(where, condition)
	}
	for _, c := range []struct{ column, value string }{
		{"org_id", f.OrgID}, {"actor_type", f.ActorType}, {"actor_id", f.ActorID}, {"action", now(f.Action)},
		{"source", f.Source}, {"outcome", f.Outcome}, {"target_type", now(f.TargetType)}, {"target_id", f.TargetID},
	} {
		if c.value != "" {
			add(c.column+" = ?", c.value)
		}
	}
	if f.From > 0 {
		add("at >= ?", f.From)
	}
	if f.To > 0 {
		add("at < ?", f.To)
	}
	if f.Text != "" {
		add(`LOWER(meta) LIKE ? ESCAPE '!'`, `%"errormessage":"%`+likeText(f.Text)+`%`)
	}
	if f.Cursor != "" {
		at, id, err := parseCursor(f.Cursor)
		if err != nil {
			return "", nil, err
		}
		add("(at < ? OR (at = ? AND id < ?))", at, at, id)
	}
	query := selectAccess
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	args = append(args, limit)
	return query + " ORDER BY at DESC, id DESC LIMIT $" + strconv.Itoa(len(args)), args, nil
}

// likeText is a text, as it stands inside JSON and in lower case, for LIKE with the escape character "!".
func likeText(s string) string {
	quoted, _ := json.Marshal(strings.ToLower(s)) // a string always marshals
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(string(quoted[1 : len(quoted)-1]))
}

func cursorOf(e Entry) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(e.At, 10) + ":" + e.ID))
}

func parseCursor(cursor string) (at int64, id string, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, "", ErrCursor
	}
	text, id, found := strings.Cut(string(raw), ":")
	at, err = strconv.ParseInt(text, 10, 64)
	if !found || err != nil || id == "" {
		return 0, "", ErrCursor
	}
	return at, id, nil
}

func scanAccess(row interface{ Scan(...any) error }) (Entry, error) {
	var e Entry
	var actorMeta, meta sql.NullString
	err := row.Scan(&e.ID, &e.At, &e.OrgID, &e.ActorType, &e.ActorID, &actorMeta, &e.Action, &e.Source, &e.TargetType,
		&e.TargetID, &e.Outcome, &meta)
	if err != nil {
		return Entry{}, err
	}
	if actorMeta.Valid {
		if err := json.Unmarshal([]byte(actorMeta.String), &e.ActorMeta); err != nil {
			return Entry{}, fmt.Errorf("entry %s: %w", e.ID, err)
		}
	}
	if meta.Valid {
		var m storedMeta
		if err := json.Unmarshal([]byte(meta.String), &m); err != nil {
			return Entry{}, fmt.Errorf("entry %s: %w", e.ID, err)
		}
		e.RoutingKey, e.RequestID, e.Error, e.Meta = m.RoutingKey, m.RequestID, m.Error, m.More
	}
	return e, nil
}

const selectAccess = `SELECT id, at, org_id, actor_type, actor_id, actor_meta, action, source, target_type, target_id,
	outcome, meta FROM access_log`
