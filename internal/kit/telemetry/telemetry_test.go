package telemetry

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
)

func scrape(t *testing.T, r *Registry) (body, contentType string) {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String(), w.Header().Get("Content-Type")
}

func TestMetricsAreWrittenAsText(t *testing.T) {
	r := NewRegistry()
	r.Counter("kici_a_total", "Things.")
	r.Counter("kici_b_total", "Things by kind.", Label{Name: "kind"}).Inc("x")
	r.Gauge("kici_c", "Depth.", Label{Name: "status"}).Set(3, "pending")
	body, contentType := scrape(t, r)
	if !strings.HasPrefix(contentType, "text/plain; version=0.0.4") {
		t.Errorf("content type %q", contentType)
	}
	for _, want := range []string{"kici_a_total 0\n", `kici_b_total{kind="x"} 1`, `kici_c{status="pending"} 3`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	if strings.Contains(body, "# EOF") || strings.Contains(body, "# UNIT") {
		t.Error("the text holds lines of another format")
	}
}

func TestLabelsFromOutsideAreCapped(t *testing.T) {
	r := NewRegistry()
	c := r.Counter("kici_events_total", "Events.", Label{Name: "source"}, Label{Name: "event", Cap: 3})
	for i := range 10 {
		c.Inc("generic", fmt.Sprint("event-", i))
	}
	c.Inc("generic", "event-1") // known before the cap was reached
	body, _ := scrape(t, r)
	for _, want := range []string{`event="event-1",source="generic"} 2`, `event="__overflow__",source="generic"} 7`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	if strings.Contains(body, "event-3") {
		t.Error("a value beyond the cap has a series of its own")
	}
}

func TestLogFormats(t *testing.T) {
	var text, json bytes.Buffer
	NewLog(&text, slog.LevelInfo, FormatText).Info("hello", "run", "r")
	NewLog(&json, slog.LevelWarn, FormatAuto).Info("not written")
	NewLog(&json, slog.LevelWarn, FormatAuto).Warn("hello", "run", "r")
	if !strings.Contains(text.String(), "msg=hello run=r") || !strings.Contains(json.String(), `"msg":"hello","run":"r"`) || strings.Contains(json.String(), "not written") {
		t.Errorf("text %q, json %q", text.String(), json.String())
	}
	if _, err := ParseLevel("loud"); err == nil {
		t.Error("an unknown level is taken")
	}
}
