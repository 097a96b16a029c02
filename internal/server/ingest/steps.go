package ingest

import (
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

	src     forge.Source
	body    []byte            // raw
	headers map[string]string // all of them, lower case
	payload json.RawMessage   // the body as an object; nil for a local source's body that is none
	event   string
	key     string // idempotency key, "" for none
	id      string // delivery id
}

// findSource reads one row. To watch meanwhile for a sender that goes away takes goroutines, and more than the reading does.
func (q *request) findSource(ctx context.Context) *answer {
	ctx = context.WithoutCancel(ctx)
	src, err := q.in.deps.Sources.ByName(ctx, q.r.PathValue("orgId"), q.r.PathValue("sourceName"))
	if errors.Is(err, forge.ErrUnknownSource) || err == nil && !src.Enabled {
		return reject(http.StatusNotFound, "Unknown source")
	}
	if err != nil {
		return q.failed("find source", err)
	}
	q.src = src
	return nil
}

// readBody refuses a body that is announced as too large before a byte of it is read, and counts the bytes of every
// other one, since a length may be absent or untrue.
func (q *request) readBody(context.Context) *answer {
	limit := min(q.src.MaxPayloadBytes, forge.MaxRouteBytes)
	if q.r.ContentLength > limit {
		return tooLarge(limit)
	}
	// Not every ResponseWriter has deadlines; the server's own still hold then.
	control := http.NewResponseController(q.w)
	_ = control.SetReadDeadline(time.Now().Add(readTime))
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.r.Body, limit))
	_ = control.SetReadDeadline(time.Time{})
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(limit)
	}
	if err != nil {
		return reject(http.StatusBadRequest, "Body could not be read")
	}
	q.body, q.headers = body, forge.Headers(q.r.Header)
	return nil
}

func (q *request) limitRate(context.Context) *answer {
	wait := q.in.rates.admit(q.src.ID, q.src.RateLimitRPM, q.in.deps.Clock())
	if wait == 0 {
		return nil
	}
	a := reject(http.StatusTooManyRequests, "Rate limit exceeded")
	a.retryAfter = int(math.Ceil(wait.Seconds()))
	return a
}

func (q *request) verify(context.Context) *answer {
	v, err := q.in.deps.Sources.Verification(q.src)
	if err != nil && q.src.Method != forge.MethodNone {
		q.in.deps.Log.Error("delivery refused: its source's verification cannot be read", "source", q.src.ID, "err", err)
		return &answer{status: http.StatusInternalServerError, body: rejection{Rejected: true, Reason: "Source verification misconfigured"}}
	}
	sent := forge.Request{Body: q.body, Headers: q.headers, ClientIP: ClientIP(q.r, q.in.deps.TrustedProxies)}
	if q.src.Method != forge.MethodNone && !v.Passes(sent) {
		q.in.deps.Log.Warn("delivery refused: verification did not pass", "source", q.src.ID, "method", q.src.Method, "client", sent.ClientIP)
		return reject(http.StatusUnauthorized, "Invalid signature")
	}
	return nil
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
	q.in.deps.Received.Inc("generic", forge.EventLabel(q.event))
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
	q.in.deps.Duplicates.Inc()
	return &answer{status: http.StatusOK, body: acceptance{Accepted: true, Duplicate: true}}
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
		Key: q.key, Window: q.src.DedupWindow, Source: &q.src,
	}
	outcome, err := q.in.deps.Inbox.Accept(ctx, d)
	switch {
	case errors.Is(err, inbox.ErrBacklog):
		return q.shed(ctx, d)
	case err != nil:
		return q.failed("accept delivery", err)
	case outcome == inbox.Duplicate:
		q.in.deps.Duplicates.Inc()
		return &answer{status: http.StatusOK, body: acceptance{Accepted: true, DeliveryID: q.id, Duplicate: true}}
	}
	return nil
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
