package engine_test

import "testing"

func TestPurgingOthersGoesFromTheEndOfAChainAndLeavesWhatGoesOn(t *testing.T) {
	each(t, func(b *bench) {
		b.ended("a-1", "")
		b.ended("a-2", "a-1")
		b.ended("b-1", "")
		r := registration("b-2", job{name: "one"})
		r.ParentRunID, r.OriginalRunID = "b-1", "b-1"
		b.must(b.e.Register(b.t.Context(), r)) // goes on, and repeats b-1
		runs, jobs, err := b.e.PurgeOthers(b.t.Context(), r.RoutingKey, nil)
		b.must(err)
		if runs+jobs != 0 {
			b.t.Errorf("%d runs with %d jobs of the key that is kept went", runs, jobs)
		}
		runs, jobs, err = b.e.PurgeOthers(b.t.Context(), "another", nil)
		b.must(err)
		if runs != 2 || jobs != 2 {
			b.t.Errorf("%d runs with %d jobs went", runs, jobs)
		}
		b.want("runs", b.runs(), "b-1", "b-2")
	})
}
