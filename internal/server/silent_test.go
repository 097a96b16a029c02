package server_test

import (
	"testing"
	"time"

	"kici/internal/core/wire"
	"kici/internal/server"
	"kici/internal/server/servertest"
)

// TestASilentAgentIsNotOfferedTheJobAgain has two agents, of which the first by name answers nothing.
func TestASilentAgentIsNotOfferedTheJobAgain(t *testing.T) {
	t.Parallel() // it waits more than it works
	servertest.Each(t, func(s *server.Settings) { s.AckTimeout = 300 * time.Millisecond }, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		silent, other := h.Dial(t), h.Dial(t)
		silent.Hello(h, register("a"))
		other.Hello(h, register("b"))
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("build")))
		if _, ok := silent.Next().(wire.JobDispatch); !ok {
			t.Fatal("no dispatch")
		}
		if code, reason := silent.Ending(); code != wire.CloseNoAck {
			t.Errorf("the silent agent is closed with %d %s", code, reason)
		}
		if _, ok := other.Next().(wire.JobDispatch); !ok {
			t.Error("the job is not given to the other agent")
		}
		if n := h.Count(t, "SELECT count(*) FROM dispatch_attempts WHERE agent_id = 'a'"); n != 1 {
			t.Errorf("the silent agent was given the job %d times", n)
		}
	})
}
