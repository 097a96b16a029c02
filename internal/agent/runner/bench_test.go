//go:build unix

package runner

import (
	"testing"
	"time"

	"kici/internal/testenv"
)

// BenchmarkFirstStep measures from execute to the first step's start and to the runner's exit, start-up apart. Node itself
// is started by the job, and so is part of the time there.
func BenchmarkFirstStep(b *testing.B) {
	for _, host := range hosts {
		b.Run(host, func(b *testing.B) { benchmarkFirstStep(b, host) })
	}
}

func benchmarkFirstStep(b *testing.B, host string) {
	if host == "node" {
		testenv.Need(b, "node")
	}
	var first, all time.Duration
	for b.Loop() {
		b.StopTimer()
		j := prepareBench(b, host)
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
		j := prepareBench(b, "embedded")
		b.StopTimer()
		_ = j.process.Kill()
		b.StartTimer()
	}
}

func prepareBench(b *testing.B, host string) *job {
	j := prepare(b, host, workflow(`step('x', async () => {})`))
	for m := range j.process.Messages() {
		if m.Type == TypeReady {
			break
		}
	}
	return j
}
