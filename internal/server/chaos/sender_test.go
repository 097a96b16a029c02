//go:build linux

package chaos_test

import (
	"os"
	"testing"

	"kici/internal/rig"
)

// A sender whose answer was lost sends again, and must learn that its push is taken care of.
func TestAPushThatIsSentAgainIsTheSameDelivery(t *testing.T) {
	workflow, err := os.ReadFile("workflow.ts")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rig.New(t.Context(), rig.Options{Name: "chaos", Repo: "chaos/app", Workflow: workflow})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	push := rig.Push{URL: r.Server.URL, Mark: "push-0"}
	first, err := r.Send(t.Context(), push)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Send(t.Context(), push)
	if err != nil || again.ID != first.ID {
		t.Errorf("sent again it is %q, %v; want %q", again.ID, err, first.ID)
	}
}
