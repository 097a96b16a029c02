package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"kici/internal/client"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

// The chunks of the measured log: lines as a build prints them, as many as an agent puts into one frame.
const (
	logLine  = 100      // bytes
	logChunk = 64 << 10 // bytes of lines
)

// openings is how often a page of the log is read.
const openings = 5

// Logs measures how fast a server takes in the log of one step, N MiB of it, and how long it takes to open its first and its
// last page.
func Logs(ctx context.Context, o Options) (Result, error) {
	result := Result{Measure: "logs", Store: o.store(), Status: "success"}
	b, err := newBed(ctx, o)
	if err != nil {
		return result, err
	}
	defer b.close()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	f, d, err := b.startFlood(serving, 0)
	if err != nil {
		return result, err
	}
	o.say("one agent sends %d MiB of log lines", o.N)
	step := wire.StepStatus{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, StepName: "loud", State: ci.StepRunning, Timestamp: time.Now().UnixMilli()}
	if err := f.post(serving, step); err != nil {
		return result, err
	}
	took, cpu, err := b.timed(func() error { return f.print(serving, d, o.N) })
	if err != nil {
		return result, err
	}
	rate, each := float64(o.N)/took.Seconds(), millis(cpu)/float64(o.N)
	result.Ingest, result.LogCPU = &rate, &each
	if result.OpenFirst, result.OpenLast, err = b.openings(ctx, o, d); err != nil {
		return result, err
	}
	return result, b.memory(&result)
}

// print sends so many MiB of lines.
func (f *flood) print(ctx context.Context, d wire.JobDispatch, mib int) error {
	lines := make([]string, logChunk/logLine)
	n := 0
	for range mib << 20 / logChunk {
		for i := range lines {
			n++
			lines[i] = fmt.Sprintf("%10d %s", n, strings.Repeat("=", logLine-12))
		}
		err := f.post(ctx, wire.LogChunk{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, Lines: lines, Timestamp: time.Now().UnixMilli()})
		if err != nil {
			return err
		}
	}
	return f.await(ctx, 0)
}

func (b *bed) openings(ctx context.Context, o Options, d wire.JobDispatch) (first, last *Figure, err error) {
	total := int64(0)
	open := func(from func() int64) (*Figure, error) {
		var times []time.Duration
		for range openings {
			asked := time.Now()
			page, err := b.API.Logs(ctx, d.RunID, d.JobID, 0, client.LogQuery{From: from(), Limit: 100})
			if err != nil {
				return nil, err
			}
			if len(page.Lines) == 0 {
				return nil, errors.New("the log has no lines")
			}
			total = page.TotalLines
			times = append(times, time.Since(asked))
		}
		return summarise(times), nil
	}
	o.say("opening the log")
	if first, err = open(func() int64 { return 0 }); err != nil {
		return nil, nil, err
	}
	last, err = open(func() int64 { return total - 100 })
	return first, last, err
}
