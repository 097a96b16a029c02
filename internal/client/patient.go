package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"kici/internal/kit/service"
)

// patience is how long a patient client waits for a server that is away: a restart takes seconds.
const patience = time.Minute

// The pause between two tries of a patient client begins short and grows.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Patient is the same client for whoever looks on for long: its questions wait for a server that is away for a moment, and
// are asked again. Commands are given once, since one without an answer may have been followed.
func (c *Client) Patient() *Client {
	patient := *c
	patient.patience = patience
	return &patient
}

// silentError is that a server did not answer, or not to the end.
type silentError struct {
	what  string
	cause error
}

func (e *silentError) Error() string { return fmt.Sprintf("%s: %v", e.what, e.cause) }
func (e *silentError) Unwrap() error { return e.cause }

// away tells whether an error may be over in a moment: nobody answered, or somebody who says that the server does not.
func away(err error) bool {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Status == http.StatusBadGateway || refused.Status == http.StatusServiceUnavailable || refused.Status == http.StatusGatewayTimeout
	}
	_, silent := errors.AsType[*silentError](err)
	return silent
}

// asking asks until there is an answer, or the client's patience or ctx is at its end.
func (c *Client) asking(ctx context.Context, ask func() error) error {
	until := time.Now().Add(c.patience)
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		err := ask()
		if err == nil || !away(err) || time.Now().Add(wait).After(until) {
			return err
		}
		if !service.Sleep(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}
