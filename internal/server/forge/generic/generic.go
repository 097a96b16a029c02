// Package generic gives meaning to deliveries of any sender. They name no repository: workflows of other repositories
// that listen to the source are what they start.
package generic

import (
	"encoding/json"

	"kici/internal/decide/envelope"
	"kici/internal/server/forge"
)

// IdempotencyKey is by what the sender tells a repeated delivery, "" for nothing. Header names are in lower case.
func IdempotencyKey(src forge.Options, headers map[string]string, payload json.RawMessage) string {
	if src.IdempotencyKeyHeader != "" && headers[src.IdempotencyKeyHeader] != "" {
		return headers[src.IdempotencyKeyHeader]
	}
	if src.IdempotencyKeyPath != "" {
		value, _ := envelope.Nested(payload, src.IdempotencyKeyPath)
		if key, ok := value.(string); ok && key != "" {
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
	n, err := envelope.Normalize(envelope.Delivery{Kind: envelope.Generic, Event: event, Payload: payload})
	if err != nil || n.Event == nil {
		return forge.Facts{}, false
	}
	return forge.Facts{Event: *n.Event, Ref: n.Ref}, true
}
