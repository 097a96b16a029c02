package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestHistogramsShowTheirBuckets(t *testing.T) {
	r := NewRegistry()
	r.Histogram("kici_h_seconds", "Empty.", []float64{0.5})
	h := r.Histogram("kici_d_seconds", "Durations.", []float64{1, 5}, Label{Name: "job"})
	h.Observe(0.2, "a")
	h.Observe(9, "a")
	body, _ := scrape(t, r)
	for _, want := range []string{
		`kici_h_seconds_count 0`, `kici_d_seconds_bucket{job="a",le="1"} 1`, `kici_d_seconds_bucket{job="a",le="+Inf"} 2`,
		`kici_d_seconds_sum{job="a"} 9.2`, `kici_d_seconds_count{job="a"} 2`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
}

func TestGaugeOfWhatLeftIsTakenAway(t *testing.T) {
	r := NewRegistry()
	g := r.Gauge("kici_g", "By agent.", Label{Name: "scaler", Cap: 5})
	g.Set(1, "a")
	g.Set(2, "b")
	g.Delete("a")
	body, _ := scrape(t, r)
	if strings.Contains(body, `kici_g{scaler="a"}`) || !strings.Contains(body, `kici_g{scaler="b"} 2`) {
		t.Error(body)
	}
}

func TestFormatDoesNotDependOnTheCaller(t *testing.T) {
	r := NewRegistry()
	for _, accept := range []string{"", "application/openmetrics-text;version=1.0.0", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"} {
		req := httptest.NewRequest("GET", "/metrics", nil)
		req.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, req)
		if got := w.Header().Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("Accept %q: %q", accept, got)
		}
	}
}

func TestTextIsEscapedAndOrdered(t *testing.T) {
	r := NewRegistry()
	c := r.Counter("kici_z_total", "One\\two\nthree.", Label{Name: "b"}, Label{Name: "a"})
	c.Add(0.5, "2", "say \"x\"\\\n")
	c.Inc("1", "y")
	c.Inc("0", "y")
	c.Inc("bad \xff", "z")
	r.GaugeFunc("kici_y", "Read when asked.", func() float64 { return 3 })
	r.CounterFunc("kici_x_total", "Kept elsewhere.", func() float64 { return 1e9 })
	r.Gauge("kici_none", "Without series.", Label{Name: "a"})
	body, _ := scrape(t, r)
	_, ours, _ := strings.Cut(body, "# HELP kici")
	ours, _, _ = strings.Cut("# HELP kici"+ours, "# HELP p")
	want := `# HELP kici_x_total Kept elsewhere.
# TYPE kici_x_total counter
kici_x_total 1e+09
# HELP kici_y Read when asked.
# TYPE kici_y gauge
kici_y 3
# HELP kici_z_total One\\two\nthree.
# TYPE kici_z_total counter
kici_z_total{a="say \"x\"\\\n",b="2"} 0.5
kici_z_total{a="y",b="0"} 1
kici_z_total{a="y",b="1"} 1
kici_z_total{a="z",b="bad �"} 1
`
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Error(diff)
	}
}

func TestRegistryShowsTheProcess(t *testing.T) {
	names := []string{"go_info{version=", "go_goroutines ", "go_threads ", "go_gc_duration_seconds{quantile=\"0.25\"} ",
		"go_gc_duration_seconds_count ", "go_memstats_heap_inuse_bytes ", "go_memstats_last_gc_time_seconds ", "go_gc_gomemlimit_bytes "}
	if runtime.GOOS == "linux" {
		names = append(names, "process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_virtual_memory_bytes ",
			"process_virtual_memory_max_bytes ", "process_start_time_seconds ", "process_open_fds ", "process_max_fds ")
	}
	body, _ := scrape(t, NewRegistry())
	for _, name := range names {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("no line begins with %s in\n%s", name, body)
		}
	}
}

func TestTwoMetricsOfOneNameAreRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the second one was taken")
		}
	}()
	r := NewRegistry()
	r.Counter("kici_twice_total", "First.")
	r.Counter("kici_twice_total", "Second.")
}

func TestTextLog(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(&out, slog.LevelInfo, FormatText)
	log.Info("hello", "run", "r", "adminToken", "planted")
	if got := out.String(); !strings.Contains(got, "level=INFO msg=hello run=r adminToken="+hidden) {
		t.Errorf("got %q", got)
	}
}

func TestJSONLog(t *testing.T) {
	var out bytes.Buffer
	var level slog.LevelVar
	log := NewLog(&out, &level, FormatAuto, strings.NewReplacer("hunter2", "***").Replace)
	log.Debug("not written")
	level.Set(slog.LevelDebug)
	log.Debug("pw is hunter2", "run", "r", "err", errors.New("at hunter2"), "apiKey", "planted", "routingKey", "github:1",
		"tokens", 3, slog.Group("g", "password", "planted", "run", 1), "list", []string{"hunter2"})
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err, out.String())
	}
	stamp, _ := got["timestamp"].(string)
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", stamp); err != nil {
		t.Error(err)
	}
	delete(got, "timestamp")
	want := map[string]any{
		"level": "debug", "message": "pw is ***", "runId": "r", "error": "at ***", "apiKey": hidden, "routingKey": "github:1",
		"tokens": 3.0, "g": map[string]any{"password": hidden, "run": 1.0}, "list": []any{"***"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseLevel(t *testing.T) {
	for text, want := range map[string]slog.Level{"debug": slog.LevelDebug, "": slog.LevelInfo, "WARN": slog.LevelWarn, "error": slog.LevelError} {
		if got, err := ParseLevel(text); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil {
		t.Error("an unknown level is taken")
	}
}
