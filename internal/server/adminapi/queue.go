package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/auth"
	"kici/internal/server/inbox"
	"kici/internal/server/report"
)

// queueStatuses are the states of queue rows, first those that have not ended.
var queueStatuses = texts(ci.QueueStatuses)

// listQueue shows the jobs on their way to an agent, oldest first. Without ?status= it leaves out what is history.
func (a *API) listQueue(r *http.Request) (answer, error) {
	q := r.URL.Query()
	f := report.QueueFilter{Statuses: list(r, "status"), Workflow: q.Get("workflowName"), JobName: q.Get("jobName"),
		NotIn: list(r, "statusNotIn"), Prefix: q.Get("jobNamePrefix"), NotLike: q.Get("jobNameNotLike"),
		OrgID: q.Get("orgId"), RoutingKey: caller(r).RoutingKey, Scope: caller(r).RoutingKey, Now: a.Clock.Millis(), Limit: limitOf(r, 100, 1000)}
	if len(f.Statuses)+len(f.NotIn) == 0 {
		f.Statuses = queueStatuses[:3]
	}
	for _, s := range slices.Concat(f.Statuses, f.NotIn) {
		if !slices.Contains(queueStatuses, s) {
			return answer{}, refuse(http.StatusBadRequest, fmt.Sprintf("Invalid status %q. Allowed: %s", s, strings.Join(queueStatuses, ", ")))
		}
	}
	var err error
	if f.After, err = moment(r, "createdAfter"); err != nil {
		return answer{}, err
	}
	entries, err := report.Queue(r.Context(), a.DB.Read(), f)
	if err != nil {
		return answer{}, err
	}
	list := adminwire.QueueList{Entries: entries}
	if !caller(r).Scoped() {
		list.Depth = a.depth()
	}
	return ok(list)
}

// showQueued explains one row, by the id of its job.
func (a *API) showQueued(r *http.Request) (answer, error) {
	id := r.PathValue("id")
	entries, err := report.Queue(r.Context(), a.DB.Read(), report.QueueFilter{ID: id, Scope: caller(r).RoutingKey, Now: a.Clock.Millis(), Limit: 1})
	if err != nil {
		return answer{}, err
	}
	if len(entries) == 0 {
		return answer{}, gone("Queue entry not found")
	}
	if err := allow(r, entries[0].RoutingKey); err != nil {
		return answer{}, err
	}
	return ok(entries[0])
}

// listDeliveries is where one looks when a push started nothing. It never holds a payload.
func (a *API) listDeliveries(r *http.Request) (answer, error) {
	q := r.URL.Query()
	f := report.DeliveryFilter{OrgID: q.Get("orgId"), RoutingKey: q.Get("routingKey"), Event: q.Get("event"), Action: q.Get("action"),
		Status: q.Get("status"), DeliveryID: q.Get("deliveryId"), Limit: limitOf(r, 50, 200), Offset: offsetOf(r)}
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
	deliveries, total, err := report.Deliveries(r.Context(), a.DB.Read(), f)
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.DeliveryList{Deliveries: deliveries, Total: total, Limit: f.Limit, Offset: f.Offset})
}

// showDelivery needs the organisation: two of them may have deliveries of one id.
func (a *API) showDelivery(r *http.Request) (answer, error) {
	withPayload := truthy(r, "includePayload")
	if role := caller(r).Role; withPayload && !role.May(auth.EventLogReadPayload) {
		return answer{}, refuse(http.StatusForbidden, role.Lacks(auth.EventLogReadPayload))
	}
	if err := required(r, "orgId"); err != nil {
		return answer{}, err
	}
	id := r.PathValue("delivery")
	d, err := report.DeliveryOf(r.Context(), a.DB.Read(), r.URL.Query().Get("orgId"), id)
	if errors.Is(err, report.ErrNotFound) {
		return answer{}, gone("Delivery not found")
	}
	if err != nil {
		return answer{}, err
	}
	if err := allow(r, d.RoutingKey); err != nil {
		return answer{}, err
	}
	if withPayload {
		if err := a.addPayload(r.Context(), &d); err != nil {
			return answer{}, err
		}
	}
	return ok(d)
}

// addPayload adds what the sender sent, as long as it is kept.
func (a *API) addPayload(ctx context.Context, d *adminwire.Delivery) error {
	body, kept, err := inbox.Payload(ctx, a.DB.Read(), d.OrgID, d.DeliveryID)
	switch {
	case err != nil:
		return err
	case !kept:
		d.PayloadReadError = "the payload is kept as long as the delivery's id is remembered, and is gone"
	case json.Valid(body):
		d.Payload = body
	default:
		d.Payload, err = json.Marshal(string(body))
	}
	return err
}
