package auth

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// Texts of refusals that name a routing key.
const (
	otherKeyText = "Access denied: token is restricted to a single routing key and this request targets a different one"
	unscopedText = "Access denied: this route requires an unscoped admin token (the calling token is restricted to a single routing key)"
)

type identityKey struct{}

// FromContext gives who calls, in handlers behind Require or RequireUnscoped.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}

// WithIdentity is a context of calls by id.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// Require lets a request pass whose admin token has the permission. The handler checks the routing key of what it is
// asked for, with AllowRoutingKey or Identity.Covers. Others are answered with 401, 403, or 503 when the token could not
// be looked up.
func (t *Tokens) Require(p Permission, next http.Handler) http.Handler { return t.gate(p, false, next) }

// RequireUnscoped is Require for routes that concern the whole organisation or server: tokens bound to one routing key
// are refused before their permission is looked at.
func (t *Tokens) RequireUnscoped(p Permission, next http.Handler) http.Handler {
	return t.gate(p, true, next)
}

func (t *Tokens) gate(p Permission, unscoped bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := t.authenticate(w, r)
		if !ok {
			return
		}
		switch {
		case unscoped && id.Scoped():
			t.deny(r, id, p)
			refuse(w, http.StatusForbidden, unscopedText)
		case !id.Role.May(p):
			t.deny(r, id, p)
			refuse(w, http.StatusForbidden, id.Role.Lacks(p))
		default:
			next.ServeHTTP(w, r.WithContext(WithIdentity(r.Context(), id)))
		}
	})
}

// authenticate finds who calls, or answers the request. A missing token takes the same way as a wrong one, with a look-up
// that finds nothing, so that the time of the answer tells neither from the other.
func (t *Tokens) authenticate(w http.ResponseWriter, r *http.Request) (Identity, bool) {
	token, present := bearer(r)
	id, err := t.Admin(r.Context(), token)
	switch {
	case !present:
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "Missing authorization")
	case errors.Is(err, ErrInvalidToken):
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		refuse(w, http.StatusUnauthorized, "Invalid or expired token")
	case err != nil:
		if r.Context().Err() == nil { // else the caller went away, which is no failure of ours
			t.log.Error("token lookup failed", "err", err)
		}
		refuse(w, http.StatusServiceUnavailable, "Authentication unavailable")
	default:
		return id, true
	}
	return Identity{}, false
}

// Holds tells whether the token of a request that was let pass is still good, for answers that go on for long. A token that
// cannot be looked up holds.
func (t *Tokens) Holds(r *http.Request) bool {
	token, _ := bearer(r)
	_, err := t.Admin(r.Context(), token)
	return !errors.Is(err, ErrInvalidToken)
}

// AllowRoutingKey tells whether the caller may act on a routing key, and answers the request with 403 when not.
func (t *Tokens) AllowRoutingKey(w http.ResponseWriter, r *http.Request, routingKey string) bool {
	id, ok := FromContext(r.Context())
	if ok && id.Covers(routingKey) {
		return true
	}
	refuse(w, http.StatusForbidden, otherKeyText)
	return false
}

// deny notes a refusal of somebody known. The action is the permission: what was to be done with it is the route's to
// know, and the route was not reached.
func (t *Tokens) deny(r *http.Request, id Identity, p Permission) {
	e := id.Entry(string(p))
	e.Outcome, e.RequestID = OutcomeDenied, r.Header.Get("X-Request-ID")
	t.Note(r.Context(), e)
}

// bearer is the token of the Authorization header. The scheme is accepted in any case.
func bearer(r *http.Request) (token string, present bool) {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != ""
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text}) // the caller may be gone; nobody else needs to know
}
