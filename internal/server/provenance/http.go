package provenance

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"kici/internal/core/adminwire"
	"kici/internal/core/attest"
)

// The public routes.
const (
	discoveryRoute = "GET /.well-known/openid-configuration"
	keySetRoute    = "GET " + attest.KeySetPath
	verifyRoute    = "POST /api/v1/verify-attestation"
)

// notConfigured is the answer of a server that signs nothing.
const notConfigured = "Provenance signing is not configured"

// Mount adds the routes that anybody may ask: where the keys are, which they are, and whether a bundle holds.
func (r *Room) Mount(mux *http.ServeMux) {
	mux.HandleFunc(discoveryRoute, r.serveDiscovery)
	mux.HandleFunc(keySetRoute, r.serveKeySet)
	mux.HandleFunc(verifyRoute, r.serveVerify)
}

// serveDiscovery answers that there is no issuer, too, while its key cannot be opened: nobody should be sent for keys that
// sign nothing. A database that does not answer changes nothing in the document.
func (r *Room) serveDiscovery(w http.ResponseWriter, req *http.Request) {
	if !r.Enabled() {
		refuse(w, http.StatusServiceUnavailable, notConfigured)
		return
	}
	if _, _, err := r.active(req.Context()); err != nil && r.sealed.Load() {
		refuse(w, http.StatusServiceUnavailable, "The signing key cannot be opened")
		return
	}
	publish(w, discover(r.Issuer))
}

// serveKeySet never answers an empty set: a verifier would take it for the revocation of all keys.
func (r *Room) serveKeySet(w http.ResponseWriter, req *http.Request) {
	if !r.Enabled() {
		refuse(w, http.StatusServiceUnavailable, notConfigured)
		return
	}
	set, err := r.published(req.Context())
	if err != nil {
		r.trouble(w, req.Context(), err)
		return
	}
	if len(set.Keys) == 0 {
		refuse(w, http.StatusServiceUnavailable, "No key has been published yet")
		return
	}
	publish(w, set)
}

// serveVerify judges a bundle. Whatever is wrong with it is a verdict, so that callers have one shape to read.
func (r *Room) serveVerify(w http.ResponseWriter, req *http.Request) {
	if !r.Enabled() {
		refuse(w, http.StatusServiceUnavailable, notConfigured)
		return
	}
	if !r.visitors.admit(r.Client(req), r.Clock()) {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "Too many requests")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, attest.MaxBundle))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		refuse(w, http.StatusRequestEntityTooLarge, "The body exceeds the limit of 1 MiB")
		return
	}
	if err != nil {
		return // the caller is gone
	}
	question, ok := readQuestion(body)
	if !ok {
		answer(w, http.StatusOK, attest.Unreadable())
		return
	}
	if question.Keys, err = r.keySet(req.Context()); err != nil {
		r.trouble(w, req.Context(), err)
		return
	}
	question.Issuer, question.Now = r.Issuer, r.Clock().Unix()
	answer(w, http.StatusOK, attest.Verify(question))
}

// trouble says no more than that there is some.
func (r *Room) trouble(w http.ResponseWriter, ctx context.Context, err error) {
	if ctx.Err() == nil {
		r.Log.Error("signing keys cannot be read", "err", err)
	}
	refuse(w, http.StatusServiceUnavailable, "The signing keys cannot be read at present")
}

// publish answers what others may keep for a while.
func publish(w http.ResponseWriter, body any) {
	w.Header().Set("Cache-Control", "public, max-age=300")
	answer(w, http.StatusOK, body)
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Cache-Control", "no-store")
	answer(w, status, adminwire.Error{Error: text})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller may be gone
}
