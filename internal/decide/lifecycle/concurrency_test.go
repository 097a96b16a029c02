package lifecycle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTakeSlot(t *testing.T) {
	active := func(id string) Slot { return Slot{RunID: id, Active: true} }
	queued := func(id string) Slot { return Slot{RunID: id} }
	queue := func(n int) Concurrency { return Concurrency{Max: n} }
	tests := []struct {
		name  string
		rule  Concurrency
		slots []Slot
		want  SlotDecision
	}{
		{"an empty group", queue(1), nil, SlotDecision{Proceed: true}},
		{"a full group", queue(1), []Slot{active("a")}, SlotDecision{}},
		{"a group with room", queue(2), []Slot{active("a")}, SlotDecision{Proceed: true}},
		{"room is not taken past who waits", queue(2), []Slot{active("a"), queued("b")}, SlotDecision{}},
		{"the same run again, which holds a place", queue(1), []Slot{active("me"), queued("b")}, SlotDecision{Proceed: true}},
		{"the same run again, which waits in front", queue(1), []Slot{queued("me"), queued("b")}, SlotDecision{Proceed: true}},
		{"the same run again, which waits", queue(1), []Slot{active("a"), queued("me")}, SlotDecision{}},
		{"the newest takes the place of all", Concurrency{Max: 1, CancelInProgress: true}, []Slot{active("a"), queued("b")}, SlotDecision{Proceed: true, Supersede: []string{"a", "b"}}},
		{"but not its own", Concurrency{Max: 1, CancelInProgress: true}, []Slot{active("me")}, SlotDecision{Proceed: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, TakeSlot("me", tt.rule, tt.slots)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAGroupIsNeverTooFullAndNeverIdle lets runs come and go in a group at random.
func TestAGroupIsNeverTooFullAndNeverIdle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 3).Draw(t, "max")
		var slots []Slot
		next := 0
		count := func() (active, waiting int) {
			for _, s := range slots {
				if s.Active {
					active++
				} else {
					waiting++
				}
			}
			return active, waiting
		}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(*rapid.T) {
				next++
				id := fmt.Sprint("run-", next)
				slots = append(slots, Slot{RunID: id, Active: TakeSlot(id, Concurrency{Max: limit}, slots).Proceed})
			},
			"go": func(t *rapid.T) {
				if len(slots) == 0 {
					t.Skip("nobody is there")
				}
				i := rapid.IntRange(0, len(slots)-1).Draw(t, "who")
				slots = slices.Delete(slots, i, i+1)
				for _, id := range NextSlots(slots, func(string) int { return limit }) {
					slots[slices.IndexFunc(slots, func(s Slot) bool { return s.RunID == id })].Active = true
				}
			},
			"": func(t *rapid.T) {
				active, waiting := count()
				if active > limit || waiting > 0 && active < limit {
					t.Fatalf("%d run and %d wait in a group of %d", active, waiting, limit)
				}
				firstWaiting := slices.IndexFunc(slots, func(s Slot) bool { return !s.Active })
				if firstWaiting >= 0 && slices.ContainsFunc(slots[firstWaiting:], func(s Slot) bool { return s.Active }) {
					t.Fatalf("somebody overtook: %+v", slots)
				}
			},
		})
	})
}
