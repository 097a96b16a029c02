//go:build unix

package runner

import (
	"testing"
	"time"
)

// BenchmarkFirstStep measures from execute to the first step's start and to the runner's exit, start-up apart.
func BenchmarkFirstStep(b *testing.B) {
	var first, all time.Duration
	for b.Loop() {
		b.StopTimer()
		j := prepareBench(b)
		b.StartTimer()
		begin := time.Now()
		j.execute(nil)
		for m := range j.process.Messages() {
			if m.Type == TypeStepStart {
				first += time.Since(begin)
			}
		}
		all += time.Since(begin)
		b.StopTimer()
		_ = j.process.Kill()
		b.StartTimer()
	}
	b.ReportMetric(float64(first.Microseconds())/1000/float64(b.N), "ms/first-step")
	b.ReportMetric(float64(all.Microseconds())/1000/float64(b.N), "ms/job")
}

// BenchmarkStart measures the start of a runner to its ready message.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		j := prepareBench(b)
		b.StopTimer()
		_ = j.process.Kill()
		b.StartTimer()
	}
}

func prepareBench(b *testing.B) *job {
	j := prepare(b, "embedded", workflow(`step('x', async () => {})`))
	for m := range j.process.Messages() {
		if m.Type == TypeReady {
			break
		}
	}
	return j
}
