package adminapi

import (
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// maxBody bounds the body of every request.
const maxBody = 25 << 20

// requestID is what a caller may choose as the id of its request. Others are replaced, since ids go into logs.
var requestID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`) })

// observed gives each request its id and writes one line about it: never a header, a query or a body, since those may
// hold tokens and secrets. Reads that went well are on the debug level: user interfaces repeat them all the time.
func (a *API) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-ID")
		if !requestID().MatchString(id) {
			id = uuid.NewString()
			r.Header.Set("X-Request-ID", id)
		}
		w.Header().Set("X-Request-ID", id)
		began := time.Now()
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(recorder, r)
		level := slog.LevelDebug
		if r.Method != http.MethodGet || recorder.status >= 400 {
			level = slog.LevelInfo
		}
		a.Log.Log(r.Context(), level, "admin request", "method", r.Method, "path", r.URL.Path, "status", recorder.status,
			"duration", time.Since(began).Round(time.Microsecond), "requestId", id)
	})
}

// statusRecorder remembers the status of the answer.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// bounded limits what is read of a body, whoever reads it.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// answering runs a handler and writes what it returns; a body that is a handler itself writes itself.
func (a *API) answering(do handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !storable(r) {
			write(w, http.StatusBadRequest, refuse(http.StatusBadRequest, "Invalid request: malformed value for a typed field").body)
			return
		}
		got, err := do(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		if large, ok := got.body.(http.Handler); ok {
			large.ServeHTTP(w, r)
			return
		}
		write(w, got.status, got.body)
	})
}

// storable tells whether the path and the query hold only what a database can compare with.
func storable(r *http.Request) bool {
	good := func(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
	if !good(r.URL.Path) {
		return false
	}
	for _, values := range r.URL.Query() {
		for _, v := range values {
			if !good(v) {
				return false
			}
		}
	}
	return true
}
