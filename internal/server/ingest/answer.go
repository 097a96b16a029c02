package ingest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// answer is what a sender is told.
type answer struct {
	status     int
	body       any
	retryAfter int    // seconds; 0: not said
	note       func() // counts or logs the answer when it is given; nil: nothing to note
}

func (a answer) write(w http.ResponseWriter) {
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.retryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	// A sender that has gone away learns nothing, and there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(a.body)
}

type rejection struct {
	Rejected bool   `json:"rejected"`
	Reason   string `json:"reason"`
	MaxBytes int64  `json:"maxBytes,omitempty"`
}

type acceptance struct {
	Accepted   bool   `json:"accepted"`
	DeliveryID string `json:"deliveryId,omitempty"`
	Duplicate  bool   `json:"duplicate,omitempty"`
	Status     string `json:"status,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

type failure struct {
	Error string `json:"error"`
}

func reject(status int, reason string) *answer {
	return &answer{status: status, body: rejection{Rejected: true, Reason: reason}}
}

func overloaded() answer {
	a := reject(http.StatusTooManyRequests, "Overloaded")
	a.retryAfter = 5
	return *a
}

func tooLarge(limit int64) *answer {
	return &answer{status: http.StatusRequestEntityTooLarge, body: rejection{Rejected: true, Reason: "Payload too large", MaxBytes: limit}}
}

func filtered(event string) *answer {
	return &answer{status: http.StatusOK, body: acceptance{Accepted: true, Status: "filtered",
		Reason: fmt.Sprintf("Event '%s' not in allowed list", event)}}
}
