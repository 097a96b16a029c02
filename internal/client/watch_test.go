package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"kici/internal/core/adminwire"
)

// streamer answers with a stream each, and notes from where it was asked to go on.
func streamer(t *testing.T, streams ...string) (*Client, *[]string) {
	t.Helper()
	var from []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, streams[len(from)-1])
	}))
	t.Cleanup(server.Close)
	c, err := New(server.URL, "t")
	if err != nil {
		t.Fatal(err)
	}
	return c, &from
}

func event(id, kind string, sequence int) string {
	return fmt.Sprintf("id: %s\r\nevent: %s\r\ndata: {\"type\":%q,\r\ndata: \"sequence\":%d}\r\n\r\n", id, kind, kind, sequence)
}

func TestBrokenStreamIsTakenUpWhereItBroke(t *testing.T) {
	c, from := streamer(t,
		"retry: 1000\n\n: still here\n\n"+event("e-1", adminwire.ObserveSnapshot, 1)+event("e-2", adminwire.ObserveStatus, 2)+"id: e-3\ndata: {\"type\":",
		event("e-3", adminwire.ObserveLog, 3)+event("e-4", adminwire.ObserveComplete, 4)+event("e-5", "after the end", 5))
	var seen []string
	see := func(m adminwire.Observed) error {
		seen = append(seen, fmt.Sprint(m.Sequence, " ", m.Type))
		return nil
	}
	last, err := c.Watch(t.Context(), "r/1", "", see)
	if !errors.Is(err, io.ErrUnexpectedEOF) || last != "e-2" {
		t.Fatalf("broken stream: last %q, %v", last, err)
	}
	if last, err = c.Watch(t.Context(), "r/1", last, see); err != nil || last != "e-4" {
		t.Fatalf("second stream: last %q, %v", last, err)
	}
	if got := strings.Join(seen, ", "); got != "1 observe.snapshot, 2 observe.status, 3 observe.log, 4 observe.complete" {
		t.Error(got)
	}
	if got := fmt.Sprintf("%q", *from); got != `["" "e-2"]` {
		t.Error(got)
	}
}

func TestWatchingEndsWithAnErrorOfTheReader(t *testing.T) {
	c, _ := streamer(t, event("e-1", adminwire.ObserveSnapshot, 1)+event("e-2", adminwire.ObserveStatus, 2))
	enough := errors.New("enough")
	last, err := c.Watch(t.Context(), "r", "e-0", func(adminwire.Observed) error { return enough })
	if !errors.Is(err, enough) || last != "e-0" {
		t.Errorf("last %q, %v", last, err)
	}
}

func TestStreamOfAnotherKindIsRefused(t *testing.T) {
	c, _ := streamer(t, "data: hello\n\n")
	_, err := c.Watch(t.Context(), "r", "", func(adminwire.Observed) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "is not what this release expects") {
		t.Error(err)
	}
}
