package adminapi

import (
	"errors"
	"net/http"

	"kici/internal/core/adminwire"
	"kici/internal/kit/seal"
	"kici/internal/server/auth"
	"kici/internal/server/secrets"
)

// vault is the store of secrets, or why there is none.
func (a *API) vault() (Secrets, error) {
	if a.Secrets == nil {
		return nil, secrets.ErrNotConfigured
	}
	return a.Secrets, nil
}

// actor is who the audit log says it was.
func actor(r *http.Request) secrets.Actor {
	id := caller(r)
	return secrets.Actor{UserID: id.TokenID, Role: string(id.Role), RoutingKey: id.RoutingKey}
}

// place is the organisation and scope that a body names.
type place struct {
	OrgID    string `json:"orgId"`
	Scope    string `json:"scope"`
	OldScope string `json:"oldScope"`
	NewScope string `json:"newScope"`
}

// listScopes leaves out the scopes of the server's own, which the store hides.
func (a *API) listScopes(r *http.Request) (answer, error) {
	if err := required(r, "orgId"); err != nil {
		return answer{}, err
	}
	vault, err := a.vault()
	if err != nil {
		return answer{}, err
	}
	scopes, err := vault.Scopes(r.Context(), r.URL.Query().Get("orgId"))
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.Scopes{Scopes: append([]string{}, scopes...)})
}

// listKeys is noted each time: names of secrets tell a reader what there is to steal.
func (a *API) listKeys(r *http.Request) (answer, error) {
	if err := required(r, "orgId", "scope"); err != nil {
		return answer{}, err
	}
	vault, err := a.vault()
	if err != nil {
		return answer{}, err
	}
	keys, err := vault.Keys(r.Context(), r.URL.Query().Get("orgId"), r.URL.Query().Get("scope"))
	if err != nil {
		return answer{}, err
	}
	a.note(r, "secret.list.read", "secret_scope", r.URL.Query().Get("scope"))
	return ok(adminwire.Keys{Keys: append([]string{}, keys...)})
}

// changeSecret runs a change of secrets, whose audit row the store writes with it, and answers {"<done>": true}.
func (a *API) changeSecret(done string, change func(vault Secrets) error) (answer, error) {
	vault, err := a.vault()
	if err != nil {
		return answer{}, err
	}
	if err := change(vault); err != nil {
		return answer{}, err
	}
	return ok(map[string]bool{done: true})
}

// createScope is no error for a scope that exists.
func (a *API) createScope(r *http.Request) (answer, error) {
	var in place
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	ofOrg(r, in.OrgID)
	return a.changeSecret("created", func(v Secrets) error { return v.CreateScope(r.Context(), actor(r), in.OrgID, in.Scope) })
}

// renameScope moves the secrets; jobs that name the old scope no longer get them.
func (a *API) renameScope(r *http.Request) (answer, error) {
	var in place
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	ofOrg(r, in.OrgID)
	return a.changeSecret("renamed", func(v Secrets) error {
		return v.RenameScope(r.Context(), actor(r), in.OrgID, in.OldScope, in.NewScope)
	})
}

// deleteScope is no error when there is none, so that a script may repeat it.
func (a *API) deleteScope(r *http.Request) (answer, error) {
	return a.changeSecret("deleted", func(v Secrets) error {
		return v.DeleteScope(r.Context(), actor(r), r.PathValue("org"), r.PathValue("scope"))
	})
}

// setSecret takes the empty text as a value, and refuses an absent one: a mistyped member must not empty a secret.
func (a *API) setSecret(r *http.Request) (answer, error) {
	var in adminwire.Secret
	raw, err := readBody(r) // a value may hold any character: it is stored sealed
	if err == nil {
		err = decodeBody(raw, &in)
	}
	if err != nil {
		return answer{}, err
	}
	if in.Value == nil {
		return answer{}, invalid(problem("value", "required", "value is required"))
	}
	return a.changeSecret("set", func(v Secrets) error {
		return v.Set(r.Context(), actor(r), r.PathValue("org"), r.PathValue("scope"), r.PathValue("key"), *in.Value)
	})
}

// deleteSecret is no error when there is none, so that a script may repeat it.
func (a *API) deleteSecret(r *http.Request) (answer, error) {
	return a.changeSecret("deleted", func(v Secrets) error {
		return v.Delete(r.Context(), actor(r), r.PathValue("org"), r.PathValue("scope"), r.PathValue("key"))
	})
}

// purgeSecrets deletes the secrets of one organisation, or of all where none is named: {"orgId":null} and "" name none, too.
func (a *API) purgeSecrets(r *http.Request) (answer, error) {
	var in struct {
		OrgID string `json:"orgId"`
	}
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	vault, err := a.vault()
	if err != nil {
		return answer{}, err
	}
	ofOrg(r, in.OrgID)
	n, err := vault.Purge(r.Context(), actor(r), in.OrgID)
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.PurgedSecrets{Deleted: n})
}

// rotateKey tells what could not be read from what was done; nothing else is left out.
func (a *API) rotateKey(r *http.Request) (answer, error) {
	if a.Rotation == nil {
		return answer{}, secrets.ErrNotConfigured
	}
	done, err := a.Rotation.RotateKey(r.Context(), actor(r))
	if errors.Is(err, seal.ErrUnreadable) {
		return answer{}, refuse(http.StatusInternalServerError, "A secret cannot be read with either key, and no secret was changed: "+err.Error())
	}
	if err != nil {
		return answer{}, err
	}
	return ok(done)
}

// listAudit shows a scoped token the entries of its own routing key, whatever it asks for.
func (a *API) listAudit(r *http.Request) (answer, error) {
	q := r.URL.Query()
	f := secrets.AuditFilter{Context: q.Get("contextName"), RoutingKey: q.Get("routingKey"), Action: q.Get("action"),
		Limit: limitOf(r, 100, 1000), Offset: offsetOf(r)}
	if id := caller(r); id.Scoped() {
		f.RoutingKey = id.RoutingKey
	}
	var err error
	if f.From, err = moment(r, "from"); err != nil {
		return answer{}, err
	}
	if f.To, err = moment(r, "to"); err != nil {
		return answer{}, err
	}
	vault, err := a.vault()
	if err != nil {
		return answer{}, err
	}
	rows, err := vault.Audit(r.Context(), f)
	if err != nil {
		return answer{}, err
	}
	out := make([]adminwire.AuditEntry, len(rows))
	for i, e := range rows {
		out[i] = adminwire.AuditEntry{ID: e.ID, CreatedAt: adminwire.At(e.At), Action: e.Action, Context: orNull(e.Context), RoutingKey: orNull(e.RoutingKey),
			Keys: e.Keys, Outcome: e.Outcome, RunID: orNull(e.RunID), JobID: orNull(e.JobID), UserID: orNull(e.UserID), Role: orNull(e.Role)}
	}
	return ok(adminwire.AuditList{Entries: out})
}

// listAccess is itself noted, always: who looks at the log is part of it.
func (a *API) listAccess(r *http.Request) (answer, error) {
	q := r.URL.Query()
	f := auth.AccessFilter{OrgID: q.Get("orgId"), ActorType: q.Get("actorType"), ActorID: q.Get("actorId"), Action: q.Get("action"),
		Source: q.Get("source"), Outcome: q.Get("outcome"), TargetType: q.Get("targetType"), TargetID: q.Get("targetId"),
		Text: q.Get("q"), Limit: limitOf(r, 50, 200), Cursor: q.Get("cursor")}
	var err error
	if f.From, err = moment(r, "from"); err != nil {
		return answer{}, err
	}
	if f.To, err = moment(r, "to"); err != nil {
		return answer{}, err
	}
	rows, next, err := a.Tokens.AccessLog(r.Context(), f)
	if err != nil {
		return answer{}, err
	}
	out := make([]adminwire.AccessEntry, len(rows))
	for i, e := range rows {
		out[i] = accessRow(e)
	}
	return ok(adminwire.AccessList{Items: out, NextCursor: orNull(next)})
}

// showAccess is noted as the list is.
func (a *API) showAccess(r *http.Request) (answer, error) {
	e, err := a.Tokens.Access(r.Context(), r.URL.Query().Get("orgId"), r.PathValue("id"))
	if errors.Is(err, auth.ErrNotFound) {
		return answer{}, gone("Access log entry not found")
	}
	if err != nil {
		return answer{}, err
	}
	return ok(accessRow(e))
}

func accessRow(e auth.Entry) adminwire.AccessEntry {
	return adminwire.AccessEntry{ID: e.ID, Timestamp: adminwire.At(e.At), OrgID: e.OrgID, ActorType: e.ActorType, ActorID: e.ActorID, ActorMeta: e.ActorMeta,
		Action: e.Action, Source: e.Source, TargetType: orNull(e.TargetType), TargetID: orNull(e.TargetID), Outcome: e.Outcome,
		RoutingKey: orNull(e.RoutingKey), RequestID: orNull(e.RequestID), ErrorMessage: orNull(e.Error), Meta: e.Meta}
}
