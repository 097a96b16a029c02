package lifecycle

import (
	"testing"

	"kici/internal/core/ci"
)

// TestARunEndsForWhatKeptItsAgentsFromStarting settles a run whose only job waited in the queue for too long.
func TestARunEndsForWhatKeptItsAgentsFromStarting(t *testing.T) {
	for detail, want := range map[string]string{
		"":                             "Failed jobs: a",
		"docker: no such image 'node'": "docker: no such image 'node'",
	} {
		for _, routable := range []bool{true, false} {
			o := QueueExpired(Job{ID: "j", Row: &Row{Status: ci.QueuePending}}, routable, detail, 9)
			run := Run{Status: ci.RunPending}
			if o.Run != nil {
				run.Reason = o.Run.Reason
			}
			end := Settle(run, []Summary{{Name: "a", Status: o.Jobs[0].Status}}, false, 9)
			reason := run.Reason
			if end.Run.Reason != nil {
				reason = end.Run.Reason
			}
			if end.Run.Status != ci.RunFailed || reason.Message != want {
				t.Errorf("detail %q, routable %v: %s for %+v", detail, routable, end.Run.Status, reason)
			}
		}
	}
}
