package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/core/logline"
	"kici/internal/server/logs"
	"kici/internal/server/logs/search"
)

// searchLog looks for q=<text> or re=<RE2 expression> in a step's log. It answers after two seconds at the latest, with
// what it has found and a cursor to go on from.
func (a *API) searchLog(r *http.Request) (answer, error) {
	in, err := stepQuery(r)
	if err != nil {
		return answer{}, err
	}
	log, place, err := a.theLog(r, in)
	if err != nil {
		return answer{}, err
	}
	q := r.URL.Query()
	found, err := log.Search(r.Context(), place.Path, search.Query{
		Text: q.Get("q"), Pattern: q.Get("re"), Fold: truthy(r, "ignoreCase"), From: in.from, Limit: limitOf(r, 100, 1000),
	})
	if errors.Is(err, logline.ErrQuery) {
		return answer{}, refuse(http.StatusBadRequest, err.Error())
	}
	expired := errors.Is(err, logs.ErrExpired)
	if err != nil && !expired {
		return answer{}, err
	}
	out := adminwire.LogSearch{RunID: in.run, JobID: in.job, StepIndex: in.step, TotalLines: found.Total,
		Matches: make([]adminwire.LogMatch, len(found.Hits)), NextCursor: cursorOf(found.Next, found.Next < found.Total), Expired: expired}
	for i, h := range found.Hits {
		out.Matches[i] = adminwire.LogMatch{Line: h.Line, TS: h.TS, Text: adminwire.Untrusted{Untrusted: true, Value: h.Text}}
	}
	return ok(out)
}

// rawLog gives a whole log as it is stored, or the byte range of it that the request names.
func (a *API) rawLog(r *http.Request) (answer, error) {
	in, err := stepQuery(r)
	if err != nil {
		return answer{}, err
	}
	log, place, err := a.theLog(r, in)
	if err != nil {
		return answer{}, err
	}
	content, err := log.Open(r.Context(), place.Path)
	if errors.Is(err, logs.ErrExpired) {
		return answer{}, &refusal{http.StatusGone, adminwire.Error{Error: "The log has expired", ErrorCode: adminwire.CodeLogExpired}}
	}
	if err != nil {
		return answer{}, err
	}
	return ok(rawBody{content, fmt.Sprintf("step-%d.log", in.step), a})
}

// rawBody is a log as the body of an answer. It may be a gigabyte, and its reader may be slow.
type rawBody struct {
	content logs.Content
	name    string
	api     *API
}

// ServeHTTP sends the log. What is appended meanwhile is for the next request.
func (b rawBody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if err := b.content.Close(); err != nil {
			b.api.Log.Error("log not closed", "path", r.URL.Path, "err", err)
		}
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", `attachment; filename="`+b.name+`"`)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	http.ServeContent(w, r, "", time.Time{}, b.content)
}
