// Package generic gives meaning to deliveries of any sender. They name no repository: workflows of other repositories
// that listen to the source are what they start.
package generic

import (
	"encoding/json"

	"kici/internal/core/ci"
	"kici/internal/server/forge"
)

// DefaultEvent is the event of a delivery that names none.
const DefaultEvent = "default"

// targetBranch stands where events of repositories have a branch.
const targetBranch = "__generic__"

// EventType tells what a delivery is about: the source's header, the source's path into the body, x-event-type, or
// DefaultEvent. Header names are in lower case.
func EventType(src forge.Options, headers map[string]string, body forge.Body) string {
	if src.EventTypeHeader != "" && headers[src.EventTypeHeader] != "" {
		return headers[src.EventTypeHeader]
	}
	if src.EventTypePath != "" {
		if event := body.Text(src.EventTypePath); event != "" {
			return event
		}
	}
	if event := headers["x-event-type"]; event != "" {
		return event
	}
	return DefaultEvent
}

// IdempotencyKey is by what the sender tells a repeated delivery, "" for nothing.
func IdempotencyKey(src forge.Options, headers map[string]string, body forge.Body) string {
	if src.IdempotencyKeyHeader != "" && headers[src.IdempotencyKeyHeader] != "" {
		return headers[src.IdempotencyKeyHeader]
	}
	if src.IdempotencyKeyPath != "" {
		if key := body.Text(src.IdempotencyKeyPath); key != "" {
			return key
		}
	}
	if key := headers["x-idempotency-key"]; key != "" {
		return key
	}
	return headers["x-delivery-id"]
}

// Normaliser is the forge.Normaliser of generic sources.
type Normaliser struct{}

// Normalise gives the event that workflows listening to the source see.
func (Normaliser) Normalise(event string, payload json.RawMessage) (forge.Facts, bool) {
	e := ci.Event{Type: "generic_webhook", TargetBranch: targetBranch, Payload: payload, Provider: forge.Generic}
	if event != DefaultEvent {
		e.Action = event
	}
	return forge.Facts{Event: e, Ref: "HEAD"}, true
}
