package ingest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"kici/internal/decide/envelope"
	"kici/internal/server/forge"
	"kici/internal/server/forge/generic"
	"kici/internal/server/inbox"
	"kici/internal/server/store"
)

// request is one delivery on its way through the steps.
type request struct {
	in *Ingest
	w  http.ResponseWriter
	r  *http.Request

	src        forge.Source
	remembered bool // src was not read for this request
	held       bool // and was seen to hold
	outdated   bool // or to have changed
	admitted   bool // the request was counted by its source's rate
	spoiled    bool // the body was read in part

	body    []byte            // raw
	headers map[string]string // all of them, lower case
	payload json.RawMessage   // the body as an object; nil for a local source's body that is none
	event   string
	key     string // idempotency key, "" for none
	id      string // delivery id
}

// recall takes the source as it is remembered. A body that this source refuses, or whose length is not announced, is left to
// the source as it is, since a body can be read only once.
func (q *request) recall() (ok bool) {
	q.src, ok = q.in.deps.Sources.Known(q.r.PathValue("orgId"), q.r.PathValue("sourceName"))
	q.remembered = ok && q.r.ContentLength >= 0 && q.r.ContentLength <= q.limit()
	return q.remembered
}

// confirm finds out whether the source that a request was worked on with has changed, unless that is known.
func (q *request) confirm(ctx context.Context) *answer {
	if !q.remembered || q.held || q.outdated {
		return nil
	}
	holds, err := q.in.deps.Sources.Holds(context.WithoutCancel(ctx), q.src)
	if err != nil {
		return q.failed("find source", err)
	}
	q.held, q.outdated = holds, !holds
	return nil
}

// findSource reads one row. To watch meanwhile for a sender that goes away takes goroutines, and more than the reading does.
func (q *request) findSource(ctx context.Context) *answer {
	src, err := q.in.deps.Sources.ByName(context.WithoutCancel(ctx), q.r.PathValue("orgId"), q.r.PathValue("sourceName"))
	if errors.Is(err, forge.ErrUnknownSource) {
		return unknownSource()
	}
	if err != nil {
		return q.failed("find source", err)
	}
	q.src = src
	return nil
}

func unknownSource() *answer { return reject(http.StatusNotFound, "Unknown source") }

func (q *request) checkEnabled(context.Context) *answer {
	if !q.src.Enabled {
		return unknownSource()
	}
	return nil
}

func (q *request) limit() int64 { return min(q.src.MaxPayloadBytes, forge.MaxRouteBytes) }

// readBody refuses a body that is announced as too large before a byte of it is read, and counts the bytes of every
// other one, since a length may be absent or untrue.
func (q *request) readBody(context.Context) *answer {
	limit := q.limit()
	if q.r.ContentLength > limit {
		return tooLarge(limit)
	}
	if q.headers != nil {
		return nil // it was read already
	}
	// Not every ResponseWriter has deadlines; the server's own still hold then.
	control := http.NewResponseController(q.w)
	_ = control.SetReadDeadline(time.Now().Add(readTime))
	q.spoiled = true
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.r.Body, limit))
	_ = control.SetReadDeadline(time.Time{})
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(limit)
	}
	if err != nil {
		return reject(http.StatusBadRequest, "Body could not be read")
	}
	q.body, q.headers, q.spoiled = body, forge.Headers(q.r.Header), false
	return nil
}

func (q *request) limitRate(context.Context) *answer {
	wait := q.in.rates.admit(q.src.ID, q.src.RateLimitRPM, q.in.deps.Clock())
	if q.admitted = wait == 0; q.admitted {
		return nil
	}
	a := reject(http.StatusTooManyRequests, "Rate limit exceeded")
	a.retryAfter = int(math.Ceil(wait.Seconds()))
	return a
}

func (q *request) verify(context.Context) *answer {
	v, err := q.in.deps.Sources.Verification(q.src)
	if err != nil && q.src.Method != forge.MethodNone {
		return &answer{status: http.StatusInternalServerError, body: rejection{Rejected: true, Reason: "Source verification misconfigured"}, note: func() {
			q.in.deps.Log.Error("delivery refused: its source's verification cannot be read", "source", q.src.ID, "err", err)
		}}
	}
	sent := forge.Request{Body: q.body, Headers: q.headers, ClientIP: ClientIP(q.r, q.in.deps.TrustedProxies)}
	if q.src.Method == forge.MethodNone || v.Passes(sent) {
		return nil
	}
	a := reject(http.StatusUnauthorized, "Invalid signature")
	a.note = func() {
		q.in.deps.Log.Warn("delivery refused: verification did not pass", "source", q.src.ID, "method", q.src.Method, "client", sent.ClientIP)
	}
	return a
}

// parse reads the body and what the source says about where to find event and key. It refuses nothing: the steps after
// it do, in their order.
func (q *request) parse(context.Context) *answer {
	if q.src.Provider == forge.Local {
		q.payload, _ = forge.ParseJSON(q.body)
		q.event = q.headers["x-event-type"]
	} else {
		q.payload = forge.ParseBody(q.body, q.headers["content-type"])
		q.event = envelope.EventType(q.headers, q.payload, q.src.EventTypeHeader, q.src.EventTypePath)
	}
	q.key = bounded(generic.IdempotencyKey(q.src.Options, q.headers, q.payload))
	mark := q.key
	for _, name := range []string{"x-delivery-id", "x-request-id", "x-idempotency-key"} {
		if mark == "" {
			mark = bounded(q.headers[name])
		}
	}
	if mark == "" {
		mark = uuid.NewString()
	}
	q.id = inbox.DeliveryID(q.src.RoutingKey, mark)
	return nil
}

// bounded keeps marks that senders choose short and storable. A mark that is not is replaced by its hash, since cutting
// it would make two deliveries one.
func bounded(mark string) string {
	odd := func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\uFFFD' }
	if len(mark) <= 200 && !strings.ContainsFunc(mark, odd) {
		return mark
	}
	sum := sha256.Sum256([]byte(mark))
	return "sha256-" + hex.EncodeToString(sum[:])
}

func (q *request) refuseRepeated(ctx context.Context) *answer {
	if q.key == "" {
		return nil
	}
	seen, err := q.in.deps.Inbox.Seen(ctx, q.src.ID, q.key)
	if err != nil {
		return q.failed("look up idempotency key", err)
	}
	if !seen {
		return nil
	}
	return q.duplicate("")
}

func (q *request) checkLocal(context.Context) *answer {
	switch {
	case q.src.Provider != forge.Local:
		return nil
	case q.payload == nil:
		return reject(http.StatusBadRequest, "Local source requires JSON body")
	case q.event == "":
		return reject(http.StatusBadRequest, "Missing x-event-type header for local source")
	}
	return nil
}

func (q *request) filter(context.Context) *answer {
	if q.src.Provider == forge.Local {
		return nil
	}
	if _, ok := (generic.Normaliser{}).Normalise(q.event, q.payload); !ok {
		return reject(http.StatusBadRequest, "Normalization failed")
	}
	if q.src.AllowedEvents != nil && !slices.Contains(q.src.AllowedEvents, q.event) {
		return filtered(q.event)
	}
	return nil
}

// accept hands the delivery over. The sender is told of its acceptance only after everything about it has committed.
func (q *request) accept(ctx context.Context) *answer {
	d := inbox.Delivery{
		ID: q.id, OrgID: q.src.OrgID, RoutingKey: q.src.RoutingKey, SourceID: q.src.ID, Provider: q.src.Provider,
		Event: q.event, Headers: forge.Stripped(q.headers, q.src.StripHeaders), Payload: q.body, RequestID: uuid.NewString(),
		Key: q.key, Window: q.src.DedupWindow, Source: &q.src, Remembered: q.remembered,
	}
	outcome, err := q.in.deps.Inbox.Accept(ctx, d)
	q.held, q.outdated = err == nil, errors.Is(err, inbox.ErrSourceChanged)
	switch {
	case q.outdated:
		return &answer{} // which nobody is given
	case errors.Is(err, inbox.ErrBacklog):
		if failed := q.confirm(ctx); failed != nil || q.outdated {
			return cmp.Or(failed, &answer{})
		}
		return q.shed(ctx, d)
	case err != nil:
		return q.failed("accept delivery", err)
	case outcome == inbox.Duplicate:
		return q.duplicate(q.id)
	}
	return nil
}

func (q *request) duplicate(id string) *answer {
	return &answer{status: http.StatusOK, body: acceptance{Accepted: true, DeliveryID: id, Duplicate: true}, note: func() { q.in.deps.Duplicates.Inc() }}
}

// shed records a delivery that was proven genuine and finds no room, so that its sender's operator can see that.
func (q *request) shed(ctx context.Context, d inbox.Delivery) *answer {
	q.in.deps.Shed.Inc("queue_full")
	if err := q.in.deps.Inbox.Shed(ctx, d); err != nil {
		q.in.deps.Log.Error("shed delivery was not recorded", "delivery", d.ID, "err", err)
	}
	a := overloaded()
	return &a
}

func (q *request) accepted() answer {
	return answer{status: http.StatusAccepted, body: acceptance{Accepted: true, DeliveryID: q.id}}
}

// failed is the answer to what the sender cannot help; nothing of the delivery is stored then. A full disk is told from
// other failures, since it needs a person.
func (q *request) failed(what string, err error) *answer {
	log := q.in.deps.Log.With("source", q.src.ID, "delivery", q.id, "step", what)
	if store.IsFull(err) {
		log.Error("delivery refused: the database has no room left", "err", err)
		return &answer{status: http.StatusServiceUnavailable, body: failure{"Storage is full"}, retryAfter: 60}
	}
	log.Error("delivery failed", "err", err)
	return &answer{status: http.StatusInternalServerError, body: failure{"Internal server error"}}
}
