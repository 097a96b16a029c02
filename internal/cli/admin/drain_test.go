package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"kici/internal/cli"
	"kici/internal/core/adminwire"
)

// TestDrainWaits plays servers that answer one look after the other.
func TestDrainWaits(t *testing.T) {
	running := func(n int) adminwire.Drain { return adminwire.Drain{Draining: true, JobsRunning: n} }
	tests := []struct {
		name    string
		answers []adminwire.Drain // the last one again and again
		code    int
		says    string
	}{
		{"until nothing runs", []adminwire.Drain{running(2), running(0)}, 0, ""},
		{"for so long", []adminwire.Drain{running(2)}, 2, "Still draining after 3s, 2 jobs running."},
		{"until the drain is forgotten", []adminwire.Drain{running(2), {JobsRunning: 2}}, 1, "the server no longer drains"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			looks := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer := tt.answers[min(looks, len(tt.answers)-1)]
				looks++
				if err := json.NewEncoder(w).Encode(answer); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			var out, errs bytes.Buffer
			code := cli.Run(context.Background(), []string{"kici", "admin", "orchestrator", "drain", "--wait", "--timeout", "3"},
				cli.Process{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Environ: []string{"KICI_ADMIN_URL=" + server.URL, "KICI_ADMIN_TOKEN=x"}})
			if code != tt.code || !strings.Contains(errs.String(), tt.says) {
				t.Errorf("exit code %d, want %d; it says %q", code, tt.code, errs.String())
			}
			if !strings.HasPrefix(out.String(), "draining=true jobsRunning=2\n") {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}
