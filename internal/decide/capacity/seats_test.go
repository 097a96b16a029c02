package capacity

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"kici/internal/core/label"
)

// TestSeatsAreThoseOfTheFirstAgentWithRoom compares with looking at every agent for every job.
func TestSeatsAreThoseOfTheFirstAgentWithRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"linux", "gpu", "fast"}), 0, 3, rapid.ID)
		var agents []Seat
		for i := range rapid.IntRange(0, 6).Draw(t, "agents") {
			agents = append(agents, Seat{
				Agent: label.Agent{ID: fmt.Sprint(i), Labels: few.Draw(t, "labels"), Mandatory: few.Draw(t, "gate")},
				Free:  rapid.IntRange(-1, 3).Draw(t, "free"), // an agent may hold more than it says it can
			})
		}
		seats, model := NewSeats(agents), slices.Clone(agents)
		for range rapid.IntRange(0, 12).Draw(t, "jobs") {
			s := label.Selector{Labels: few.Draw(t, "wanted")}
			first := slices.IndexFunc(model, func(a Seat) bool { return a.Free > 0 && s.Matches(a.Agent) })
			if got := seats.Take(s.Canonical(), s); got != (first >= 0) {
				t.Fatalf("%s gets a place: %v; agents %+v", s.Canonical(), got, model)
			}
			if first >= 0 {
				model[first].Free--
			}
		}
	})
}
