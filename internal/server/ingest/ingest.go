// Package ingest takes deliveries in over HTTP: it bounds, verifies and stores them, and answers. No answer waits for more
// than a moment for what comes of a delivery, and none tells of it.
package ingest

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"kici/internal/kit/service"
	"kici/internal/server/forge"
	"kici/internal/server/inbox"
)

// Sources is what is needed of the table of sources.
type Sources interface {
	ByName(ctx context.Context, orgID, name string) (forge.Source, error)
	Known(orgID, name string) (forge.Source, bool)
	Holds(ctx context.Context, src forge.Source) (bool, error)
	Get(ctx context.Context, id string) (forge.Source, error)
	Verification(src forge.Source) (forge.Verification, error)
}

// Inbox is what is needed of the inbox.
type Inbox interface {
	Accept(ctx context.Context, d inbox.Delivery) (inbox.Outcome, error)
	Seen(ctx context.Context, sourceID, key string) (bool, error)
	Shed(ctx context.Context, d inbox.Delivery) error
}

// Counter counts by label values.
type Counter interface{ Inc(labels ...string) }

// Deps are what an Ingest works with.
type Deps struct {
	Sources Sources
	Inbox   Inbox
	Refs    map[string]forge.Refs // by provider, for runs that are started without a delivery from outside
	Clock   service.Clock
	Log     *slog.Logger
	// TrustedProxies may say whom they speak for. Without any, the client is whoever is at the other end of the socket.
	TrustedProxies []netip.Prefix
	// MaxConcurrent bounds the requests worked on at a time (128); those beyond are told to come again.
	MaxConcurrent int

	// Counters; nil counts nothing.
	Received   Counter // kici_orch_webhooks_received_total{source,event}
	Duplicates Counter // kici_orch_dedup_hits_total
	Shed       Counter // kici_orch_ingest_shed_total{reason}
}

// Ingest is the HTTP ingress.
type Ingest struct {
	deps  Deps
	room  chan struct{}
	rates *rates
}

// readTime bounds the sending of a body, since a request that is being sent takes up room.
const readTime = 30 * time.Second

// New makes an Ingest.
func New(deps Deps) *Ingest {
	if deps.MaxConcurrent == 0 {
		deps.MaxConcurrent = 128
	}
	for _, c := range []*Counter{&deps.Received, &deps.Duplicates, &deps.Shed} {
		if *c == nil {
			*c = noCounter{}
		}
	}
	return &Ingest{deps: deps, room: make(chan struct{}, deps.MaxConcurrent), rates: newRates()}
}

type noCounter struct{}

func (noCounter) Inc(...string) {}

// Handler serves POST /webhook/{orgId}/generic/{sourceName}.
func (in *Ingest) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /webhook/{orgId}/generic/{sourceName}", in.serve)
	return mux
}

func (in *Ingest) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case in.room <- struct{}{}:
		defer func() { <-in.room }()
		in.take(w, r).write(w)
	default:
		in.deps.Shed.Inc("queue_full")
		overloaded().write(w)
	}
}

// take works on a request with its source as it is remembered here, and anew with the source as it is where that has
// changed. The statement that accepts a delivery looks whether it has; of every other outcome this asks before the sender is
// answered. So a change is in force with the next delivery, and most deliveries spare the reading.
func (in *Ingest) take(w http.ResponseWriter, r *http.Request) answer {
	q := &request{in: in, w: w, r: r}
	if q.recall() {
		a := q.pass(r.Context())
		if failed := q.confirm(r.Context()); failed != nil {
			return *failed
		}
		if !q.outdated || q.spoiled {
			return q.told(a)
		}
		if q.admitted {
			in.rates.withdraw(q.src.ID)
		}
		q = &request{in: in, w: w, r: r, body: q.body, headers: q.headers}
	}
	if a := q.findSource(r.Context()); a != nil {
		return *a
	}
	return q.told(q.pass(r.Context()))
}

// pass goes through the steps; the first that has an answer gives it.
func (q *request) pass(ctx context.Context) answer {
	for _, step := range []func(context.Context) *answer{
		q.checkEnabled, q.readBody, q.limitRate, q.verify, q.parse, q.refuseRepeated, q.checkLocal, q.filter, q.accept,
	} {
		if a := step(ctx); a != nil {
			return *a
		}
	}
	return q.accepted()
}

// told gives the answer, and counts and logs what belongs to it.
func (q *request) told(a answer) answer {
	if q.id != "" {
		q.in.deps.Received.Inc("generic", forge.EventLabel(q.event))
	}
	if a.note != nil {
		a.note()
	}
	return a
}
