package adminapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/server/auth"
	"kici/internal/server/contexts"
	"kici/internal/server/forge"
	"kici/internal/server/inbox"
	"kici/internal/server/ingest"
	"kici/internal/server/live"
	"kici/internal/server/logs/joined"
	"kici/internal/server/orgs"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// answer is what a caller gets.
type answer struct {
	status int
	body   any
}

// ok answers 200; created 201.
func ok(body any) (answer, error) { return answer{http.StatusOK, body}, nil }

func created(body any) (answer, error) { return answer{http.StatusCreated, body}, nil }

// refusal is an error that the caller is told about.
type refusal struct {
	status int
	body   adminwire.Error
}

func (r *refusal) Error() string { return r.body.Error }

func refuse(status int, text string) *refusal {
	return &refusal{status, adminwire.Error{Error: text}}
}

// gone refuses what is not there.
func gone(text string) *refusal { return refuse(http.StatusNotFound, text) }

// invalid refuses input, with everything that is wrong with it.
func invalid(problems ...adminwire.Problem) *refusal {
	return &refusal{http.StatusBadRequest, adminwire.Error{Error: "Validation error", Details: problems}}
}

// problem is one wrong member, by the name that the body gives it.
func problem(path, code, message string) adminwire.Problem {
	return adminwire.Problem{Path: path, Message: message, Code: code}
}

// problemsOf are the mistakes in a source, in the API's form.
func problemsOf(wrong forge.InvalidError) []adminwire.Problem {
	out := make([]adminwire.Problem, len(wrong))
	for i, p := range wrong {
		out[i] = problem(p.Field, "invalid", p.Message)
	}
	return out
}

// otherKeyText is the refusal of what belongs to another routing key, in the words of the API's contract.
const otherKeyText = "Access denied: token is restricted to a single routing key and this request targets a different one"

// allow refuses what belongs to another routing key than the caller's token is bound to.
func allow(r *http.Request, routingKey string) error {
	if caller(r).Covers(routingKey) {
		return nil
	}
	return refuse(http.StatusForbidden, otherKeyText)
}

// caller is who calls a route that needs a token.
func caller(r *http.Request) auth.Identity {
	id, _ := auth.FromContext(r.Context()) // the gate before every such route has set it
	return id
}

// fail answers with the refusal, or with a 500 whose cause only the log is told.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	refused := known(err)
	if refused == nil {
		if r.Context().Err() != nil {
			return // the caller has gone; nobody would read the answer
		}
		a.Log.Error("admin request failed", "path", r.URL.Path, "requestId", r.Header.Get("X-Request-ID"), "err", err)
		refused = refuse(http.StatusInternalServerError, "Internal server error")
	}
	write(w, refused.status, refused.body)
}

// known gives the refusal that an error of another room stands for, nil when it is a failure of ours.
func known(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	if problems, ok := errors.AsType[forge.InvalidError](err); ok {
		return invalid(problemsOf(problems)...)
	}
	if away, ok := errors.AsType[*joined.AwayError](err); ok {
		return refuse(http.StatusServiceUnavailable, away.Error())
	}
	for _, k := range []struct {
		err    error
		status int
		text   string // "" shows the error's own
	}{
		{forge.ErrUnknownSource, http.StatusNotFound, "Source not found"},
		{forge.ErrNameTaken, http.StatusConflict, "A source of this name exists already"},
		{forge.ErrNoRepository, http.StatusNotFound, ""},
		{forge.ErrNoCommit, http.StatusNotFound, ""},
		{forge.ErrRefused, http.StatusBadRequest, ""},
		{ingest.ErrCannotTrigger, http.StatusConflict, ""},
		{live.ErrBusy, http.StatusServiceUnavailable, ""},
		{inbox.ErrBacklog, http.StatusServiceUnavailable, "Too many deliveries are waiting"},
		{secrets.ErrNotConfigured, http.StatusServiceUnavailable, "Secret store not configured on this orchestrator"},
		{secrets.ErrInvalid, http.StatusBadRequest, ""},
		{secrets.ErrReserved, http.StatusBadRequest, ""},
		{secrets.ErrNotFound, http.StatusNotFound, "Scope not found"},
		{secrets.ErrExists, http.StatusConflict, "Scope already exists"},
		{contexts.ErrInvalid, http.StatusBadRequest, ""},
		{orgs.ErrInvalid, http.StatusBadRequest, ""},
		{auth.ErrInvalid, http.StatusBadRequest, ""},
		{auth.ErrCursor, http.StatusBadRequest, "Invalid cursor"},
		{auth.ErrLastOwner, http.StatusConflict, "Cannot revoke the last owner token"},
	} {
		switch {
		case !errors.Is(err, k.err):
		case k.text != "":
			return refuse(k.status, k.text)
		default:
			return refuse(k.status, err.Error())
		}
	}
	switch {
	case store.IsUnique(err):
		return refuse(http.StatusConflict, "Conflict: resource already exists")
	case store.IsFull(err):
		return refuse(http.StatusServiceUnavailable, "Storage is full")
	}
	return nil
}

// write sends an answer.
func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store") // answers may hold a token that is shown once
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller may be gone; nobody else needs to know
}

// read decodes the body into v and refuses texts that hold NUL. An empty body counts as an empty object, since some routes
// need nothing said.
func read(r *http.Request, v any) error {
	raw, err := readBody(r)
	if err != nil {
		return err
	}
	if place, found := nulPlace(raw); found {
		return invalid(problem(place, "invalid_string", "must not hold the character NUL"))
	}
	return decodeBody(raw, v)
}

func readBody(r *http.Request) ([]byte, error) {
	raw, err := io.ReadAll(r.Body)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, refuse(http.StatusRequestEntityTooLarge, "Request body too large")
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "Request body could not be read")
	}
	if len(strings.TrimSpace(string(raw))) == 0 {
		raw = []byte("{}")
	}
	return raw, nil
}

func decodeBody(raw []byte, v any) error {
	err := json.Unmarshal(raw, v)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return invalid(problem(wrong.Field, "invalid_type", "expected "+kindName(wrong.Type.Kind().String())+", received "+wrong.Value))
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "Invalid JSON body")
	}
	return nil
}

// kindName is a kind of Go's in the words of JSON.
func kindName(kind string) string {
	switch {
	case kind == "slice":
		return "array"
	case kind == "struct" || kind == "map":
		return "object"
	case kind == "bool":
		return "boolean"
	case strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "float"):
		return "number"
	}
	return "string"
}
