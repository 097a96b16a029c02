package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// shaky answers the first questions with what is wrong, and the others well.
func shaky(t *testing.T, wrong ...http.HandlerFunc) (*Client, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := int(asked.Add(1)); n <= len(wrong) {
			wrong[n-1](w, r)
			return
		}
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	c, err := New(server.URL, "t")
	if err != nil {
		t.Fatal(err)
	}
	return c, &asked
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("{"))
	panic(http.ErrAbortHandler)
}

func TestAPatientClientWaitsForAServerThatIsAway(t *testing.T) {
	for name, wrong := range map[string]http.HandlerFunc{"hangs up": hangUp, "breaks off": breakOff, "is not there": status(503), "has nobody behind it": status(502)} {
		t.Run(name, func(t *testing.T) {
			c, asked := shaky(t, wrong)
			if _, err := c.Run(t.Context(), "r"); err == nil || asked.Load() != 1 {
				t.Errorf("others give up at once: %v after %d questions", err, asked.Load())
			}
			c, asked = shaky(t, wrong, wrong)
			if _, err := c.Patient().Run(t.Context(), "r"); err != nil || asked.Load() != 3 {
				t.Errorf("%v after %d questions", err, asked.Load())
			}
		})
	}
}

func TestPatienceIsForQuestionsAndForWhatPasses(t *testing.T) {
	c, asked := shaky(t, status(503))
	if _, err := c.Patient().Cancel(t.Context(), "r", false); err == nil || asked.Load() != 1 {
		t.Errorf("a command that may have been followed: %v after %d questions", err, asked.Load())
	}
	c, asked = shaky(t, status(404))
	if _, err := c.Patient().Run(t.Context(), "r"); !NotFound(err) || asked.Load() != 1 {
		t.Errorf("a refusal: %v after %d questions", err, asked.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, _ = shaky(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503); cancel() })
	if _, err := c.Patient().Run(ctx, "r"); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
}
