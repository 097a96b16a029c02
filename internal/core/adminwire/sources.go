package adminwire

import "encoding/json"

// Source is a configured origin of deliveries. Secrets of its verification are masked as ***.
type Source struct {
	ID                   string          `json:"id"`
	OrgID                string          `json:"orgId"`
	Name                 string          `json:"name"`
	ProviderType         string          `json:"providerType"` // generic or local
	RoutingKey           string          `json:"routingKey"`
	Enabled              bool            `json:"enabled"`
	VerificationMethod   string          `json:"verificationMethod"`
	VerificationConfig   json.RawMessage `json:"verificationConfig"`
	EventTypeHeader      *string         `json:"eventTypeHeader"`
	EventTypePath        *string         `json:"eventTypePath"`
	IdempotencyKeyHeader *string         `json:"idempotencyKeyHeader"`
	IdempotencyKeyPath   *string         `json:"idempotencyKeyPath"`
	DedupWindowSeconds   int64           `json:"dedupWindowSeconds"`
	MaxPayloadBytes      int64           `json:"maxPayloadBytes"`
	AllowedEvents        []string        `json:"allowedEvents"` // null allows all
	StripHeaders         []string        `json:"stripHeaders"`
	RateLimitRPM         int             `json:"rateLimitRpm"`
	LocalConfig          *LocalConfig    `json:"localConfig"`
	WebhookPath          string          `json:"webhookPath"` // below the server's URL
	CreatedAt            Time            `json:"createdAt"`
	UpdatedAt            Time            `json:"updatedAt"`
	DeletedAt            Time            `json:"deletedAt"`
}

// LocalConfig says where a local source's repositories lie on the server's machine.
type LocalConfig struct {
	RepoBasePath string `json:"repoBasePath"`
	CloneURLBase string `json:"cloneUrlBase,omitempty"`
}

// SourceSettings are what can be said of a source when it is made or changed. What is nil keeps its default, or in a
// change its present value. Explicit nulls in a change clear; see the API's handler for which.
type SourceSettings struct {
	OrgID                string          `json:"orgId,omitempty"` // only when it is made
	Name                 *string         `json:"name,omitempty"`
	ProviderType         *string         `json:"providerType,omitempty"`
	VerificationMethod   *string         `json:"verificationMethod,omitempty"`
	VerificationConfig   json.RawMessage `json:"verificationConfig,omitempty"`
	EventTypeHeader      *string         `json:"eventTypeHeader,omitempty"`
	EventTypePath        *string         `json:"eventTypePath,omitempty"`
	IdempotencyKeyHeader *string         `json:"idempotencyKeyHeader,omitempty"`
	IdempotencyKeyPath   *string         `json:"idempotencyKeyPath,omitempty"`
	DedupWindowSeconds   *int64          `json:"dedupWindowSeconds,omitempty"`
	MaxPayloadBytes      *int64          `json:"maxPayloadBytes,omitempty"`
	AllowedEvents        *[]string       `json:"allowedEvents,omitempty"`
	StripHeaders         *[]string       `json:"stripHeaders,omitempty"`
	RateLimitRPM         *int            `json:"rateLimitRpm,omitempty"`
	LocalConfig          *LocalConfig    `json:"localConfig,omitempty"`
}

// OneSource is the answer about one source.
type OneSource struct {
	Source Source `json:"source"`
}

// SourceList is an organisation's sources by name.
type SourceList struct {
	Sources []Source `json:"sources"`
}

// Trigger asks for what a push of a ref would start.
type Trigger struct {
	Repo string `json:"repo"`
	Ref  string `json:"ref"` // branch, tag or commit; "" is the default branch
}

// Triggered names the delivery that was made of a trigger. Its runs carry the delivery's id.
type Triggered struct {
	DeliveryID string `json:"deliveryId"`
	SHA        string `json:"sha"`
}

// Delivery is a row of the log of deliveries.
type Delivery struct {
	OrgID                string  `json:"orgId"`
	DeliveryID           string  `json:"deliveryId"`
	RoutingKey           string  `json:"routingKey"`
	Event                string  `json:"event"`
	Action               *string `json:"action"`
	Source               string  `json:"source"`
	Provider             string  `json:"provider"`
	RepoIdentifier       *string `json:"repoIdentifier"`
	Ref                  *string `json:"ref"`
	Status               string  `json:"status"` // received until it has been evaluated
	MatchedCount         int     `json:"matchedCount"`
	RunID                *string `json:"runId"`
	ErrorMessage         *string `json:"errorMessage"`
	ReceivedAt           Time    `json:"receivedAt"`
	PayloadOmitted       bool    `json:"payloadOmitted"`
	PayloadOmittedReason *string `json:"payloadOmittedReason"`
	PayloadSizeBytes     int64   `json:"payloadSizeBytes"`
	PayloadHash          string  `json:"payloadHash"`

	// Payload is the body as it was received, where it was asked for: its JSON, or else the text as a JSON string.
	Payload json.RawMessage `json:"payload,omitempty"`
	// PayloadReadError says why it is not there although it was asked for.
	PayloadReadError string `json:"payloadReadError,omitempty"`
}

// DeliveryList is a page of deliveries, newest first.
type DeliveryList struct {
	Deliveries []Delivery `json:"deliveries"`
	Total      int        `json:"total"`
	Limit      int        `json:"limit"`
	Offset     int        `json:"offset"`
}
