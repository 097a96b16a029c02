package server_test

import (
	"testing"

	"kici/internal/core/wire"
	"kici/internal/server/servertest"
)

// BenchmarkRun is a trivial run from its webhook to its end, with an agent in the same process that answers at once.
func BenchmarkRun(b *testing.B) {
	h := servertest.New(b, nil)
	sha := h.Commit(b, "bench/app", servertest.Lock("a"))
	h.Start(b)
	ledger := servertest.NewLedger(func(string) {})
	for _, id := range []string{"agent-1", "agent-2", "agent-3", "agent-4"} {
		h.Employ(b, &servertest.Agent{ID: id, Ledger: ledger, Features: []string{wire.FeatureFrameAck, wire.FeatureStartFence}})
	}
	b.ResetTimer()
	for i := range b.N {
		h.Push(b, "bench/app", "main", sha)
		if i%50 == 49 {
			h.AwaitRuns(b, i+1)
		}
	}
	h.AwaitRuns(b, b.N)
}
