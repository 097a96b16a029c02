package cache

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/kit/blob"
)

// transferPause is how long a transfer may stand still.
const transferPause = time.Minute

// Handler serves the blobs of a store that cannot serve them itself, to whoever has a link. It expects paths below
// blob.LinkRoute as the sender wrote them: a router that tidies paths must not stand before it.
func (c *Cache) Handler(links *blob.FileLinks) http.Handler { return &transfers{c, links} }

type transfers struct {
	*Cache
	links *blob.FileLinks
}

// ServeHTTP implements http.Handler.
func (t *transfers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// What is served here is a stranger's: no browser may take it for a page of this server.
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "sandbox")
	w.Header().Set("Cache-Control", "private, no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodPut {
		w.Header().Set("Allow", "GET, PUT")
		deny(w, http.StatusMethodNotAllowed, "Method not allowed")
		return
	}
	key, wrong := routeKey(r.URL.Path)
	if wrong != "" {
		deny(w, http.StatusBadRequest, wrong)
		return
	}
	sig := r.URL.Query().Get("sig")
	if sig == "" {
		deny(w, http.StatusUnauthorized, "Missing sig")
		return
	}
	if err := t.links.Check(r.Method, key, sig); err != nil {
		deny(w, http.StatusUnauthorized, "Invalid token ("+err.Error()+")")
		return
	}
	if r.Method == http.MethodGet {
		t.get(w, r, key)
		return
	}
	t.put(w, r, key)
}

// routeKey is the path of the blob that a request names, or what is wrong with it.
func routeKey(path string) (key, wrong string) {
	key, ok := strings.CutPrefix(path, blob.LinkRoute)
	if !ok || key == "" || strings.IndexByte(key, 0) >= 0 {
		return "", "Invalid key"
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return "", "Invalid key segment"
		}
	}
	return key, ""
}

func (t *transfers) get(w http.ResponseWriter, r *http.Request, key string) {
	content, size, err := t.Blobs.Get(r.Context(), key)
	if errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrPath) {
		deny(w, http.StatusNotFound, "Not found")
		return
	}
	if err != nil {
		t.fail(w, r, key, err)
		return
	}
	defer content.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	control := http.NewResponseController(w)
	_, _ = io.Copy(pacedWriter{control, w}, content) // a reader that is cut off sees it by the length
	_ = control.SetWriteDeadline(time.Time{})        // the connection goes on to other requests
}

func (t *transfers) put(w http.ResponseWriter, r *http.Request, key string) {
	var kind string
	var limit int64
	err := t.DB.Read().QueryRowContext(r.Context(), "SELECT kind, max_bytes FROM cache_uploads WHERE path = $1", key).Scan(&kind, &limit)
	if errors.Is(err, sql.ErrNoRows) {
		deny(w, http.StatusGone, "The upload has ended") // it was confirmed, or given up: what lies there stays as it is
		return
	}
	if err != nil {
		t.fail(w, r, key, err)
		return
	}
	if r.ContentLength == 0 && kind != kindArtifact { // no archive is empty, and a file may be
		deny(w, http.StatusBadRequest, "Missing body")
		return
	}
	body := http.MaxBytesReader(w, r.Body, limit)
	_, err = t.Blobs.Put(r.Context(), key, pacedReader{http.NewResponseController(w), body})
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		deny(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("Body exceeds the limit of %d bytes", limit))
	case errors.Is(err, blob.ErrFull):
		deny(w, http.StatusInsufficientStorage, "No space left")
	case err != nil:
		t.fail(w, r, key, err)
	default:
		answer(w, http.StatusOK, map[string]bool{"ok": true})
	}
}

// fail hides what happened inside from a caller that could not help it. The link itself is a secret and never logged.
func (t *transfers) fail(w http.ResponseWriter, r *http.Request, key string, err error) {
	t.Log.Error("blob transfer failed", "method", r.Method, "key", key, "err", err)
	deny(w, http.StatusInternalServerError, "Internal server error")
}

func deny(w http.ResponseWriter, status int, text string) {
	answer(w, status, adminwire.Error{Error: text})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller may be gone
}

// pacedReader ends an upload that stands still; one that goes on may take as long as it needs.
type pacedReader struct {
	control *http.ResponseController
	from    io.Reader
}

// Read implements io.Reader.
func (p pacedReader) Read(data []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(transferPause)) // what knows no deadlines has none
	n, err := p.from.Read(data)
	if err != nil {
		_ = p.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// pacedWriter does the same for a download.
type pacedWriter struct {
	control *http.ResponseController
	to      io.Writer
}

// Write implements io.Writer.
func (p pacedWriter) Write(data []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(transferPause))
	return p.to.Write(data)
}
