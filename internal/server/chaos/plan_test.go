package chaos

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestThePlanFollowsFromItsSeedAndKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shape{
			servers: rapid.IntRange(1, 5).Draw(t, "servers"), agents: rapid.IntRange(1, 8).Draw(t, "agents"),
			lines:    rapid.IntRange(1, 10).Draw(t, "lines"),
			duration: time.Duration(rapid.IntRange(1, 600).Draw(t, "seconds")) * time.Second,
		}
		seed := rapid.Uint64().Draw(t, "seed")
		faults := plan(seed, s)
		if diff := cmp.Diff(faults, plan(seed, s)); diff != "" {
			t.Fatalf("the same seed gives another plan: %s", diff)
		}
		spaces := map[Action]int{}
		count := map[Action]int{}
		for _, a := range actions {
			spaces[a.Action], count[a.Action] = a.space, a.on(s)
		}
		busy := map[[2]int]time.Duration{}
		before := time.Duration(0)
		for _, f := range faults {
			target := [2]int{spaces[f.Action], f.Target}
			switch {
			case f.At < before:
				t.Fatalf("%s comes after one at %s", f, before)
			case f.At+f.For > s.duration || f.For <= 0:
				t.Fatalf("%s does not end within %s", f, s.duration)
			case f.Target < 0 || f.Target >= count[f.Action]:
				t.Fatalf("%s has no target", f)
			case f.At < busy[target]:
				t.Fatalf("%s meets another fault of the same target", f)
			}
			busy[target], before = f.At+f.For, f.At
		}
	})
}

func TestALongPlanHasEveryKindOfFault(t *testing.T) {
	seen := map[Action]int{}
	long := 0
	for _, f := range plan(1, shape{servers: 3, agents: 4, lines: 6, duration: 10 * time.Minute}) {
		seen[f.Action]++
		if f.For > usual {
			long++
		}
	}
	for _, a := range actions {
		if seen[a.Action] == 0 {
			t.Errorf("no %s within ten minutes", a.Action)
		}
	}
	if long == 0 {
		t.Error("nothing lasts long")
	}
}
