package adminwire

import "encoding/json"

// EmitEvent is what a person tells the workflows of an organisation.
type EmitEvent struct {
	EventName        string          `json:"eventName"`
	Payload          json.RawMessage `json:"payload,omitempty"` // an object; without it an empty one
	SourceRoutingKey string          `json:"sourceRoutingKey,omitempty"`
	SourceRepo       string          `json:"sourceRepo,omitempty"`
}

// EmittedEvent is an event that was taken.
type EmittedEvent struct {
	EventID string `json:"eventId"`
}
