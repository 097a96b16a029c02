package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/server/events"
	"kici/internal/server/forge"
)

// Events takes what people tell the workflows of an organisation. An event that it does not take is an *events.Refusal.
type Events interface {
	EmitByHand(ctx context.Context, e events.Event) (id string, err error)
}

// emitEvent takes an event. It is noted with its name, also when it is refused.
func (a *API) emitEvent(r *http.Request) (answer, error) {
	if a.Events == nil {
		return notFound(r)
	}
	var in adminwire.EmitEvent
	if err := read(r, &in); err != nil {
		return answer{}, err
	}
	id, err := a.emit(r, in)
	e := entry(r, "event.emit", "event", id)
	e.Meta = map[string]any{"eventName": ci.CutName(in.EventName), "sourceRoutingKey": ci.CutName(in.SourceRoutingKey)}
	a.noteEntry(r, a.judged(e, err))
	if err != nil {
		return answer{}, err
	}
	return created(adminwire.EmittedEvent{EventID: id})
}

func (a *API) emit(r *http.Request, in adminwire.EmitEvent) (id string, err error) {
	if err := allow(r, in.SourceRoutingKey); err != nil {
		return "", err
	}
	if in.EventName == "" {
		return "", invalid(problem("eventName", "too_small", "eventName is required"))
	}
	if in.SourceRepo != ci.CleanText(in.SourceRepo) || utf8.RuneCountInString(in.SourceRepo) > ci.MaxRepository {
		return "", invalid(problem("sourceRepo", "invalid", fmt.Sprintf("sourceRepo must be the name of a repository, at most %d characters", ci.MaxRepository)))
	}
	org, err := a.orgOf(r.Context(), in.SourceRoutingKey)
	if err != nil {
		return "", err
	}
	id, err = a.Events.EmitByHand(r.Context(), events.Event{Name: in.EventName, Payload: in.Payload, OrgID: org,
		Source: events.Source{RoutingKey: in.SourceRoutingKey, Repo: in.SourceRepo}})
	if refused, ok := errors.AsType[*events.Refusal](err); ok {
		status := http.StatusBadRequest
		if refused.TooFast() {
			status = http.StatusTooManyRequests
		}
		return "", refuse(status, refused.Error())
	}
	return id, err
}

// orgOf is the organisation of a source. An event of a source that is not there would reach nobody. What names no source
// belongs to the one organisation that a server has.
func (a *API) orgOf(ctx context.Context, routingKey string) (string, error) {
	if routingKey == "" {
		return ci.DefaultOrg, nil
	}
	src, err := a.Sources.ByRoutingKey(ctx, routingKey)
	if errors.Is(err, forge.ErrUnknownSource) {
		return "", invalid(problem("sourceRoutingKey", "invalid", "no source has this routing key"))
	}
	return src.OrgID, err
}
