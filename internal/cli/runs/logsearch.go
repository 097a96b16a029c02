package runs

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"kici/internal/core/adminwire"
)

// matches prints the lines of one step that were searched for. The server answers in parts, so that a search of a
// gigabyte shows what it has found so far.
func (l *logPrinter) matches(ctx context.Context, j adminwire.Job, s adminwire.Step) error {
	q := *l.search
	q.From = l.first
	for {
		found, err := l.c.SearchLog(ctx, l.run, j.JobID, s.StepIndex, q)
		if err != nil {
			return err
		}
		if found.Expired {
			l.sayExpired(j, s)
		}
		for _, m := range found.Matches {
			if err := l.line(j, s, record{TS: m.TS, Msg: m.Text.Value}, m.Line+1); err != nil {
				return err
			}
		}
		if found.NextCursor == nil {
			return nil
		}
		if q.From, err = strconv.ParseInt(*found.NextCursor, 10, 64); err != nil {
			return fmt.Errorf("read the server's cursor: %w", err)
		}
	}
}

// rawTries is how often a download that broke is gone on with, without a byte in between.
const rawTries = 3

// printRaw prints the stored log of the only wanted step.
func (l *logPrinter) printRaw(ctx context.Context) error {
	run, err := l.c.Run(ctx, l.run)
	if err != nil {
		return err
	}
	jobs, err := l.c.Jobs(ctx, l.run)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		for _, s := range append([]adminwire.Step{j.OwnLog()}, j.Steps...) {
			if l.of.wanted(j, s) {
				return l.download(ctx, j, s)
			}
		}
	}
	return l.none(run.Status, jobs)
}

// download goes on where a broken connection ended.
func (l *logPrinter) download(ctx context.Context, j adminwire.Job, s adminwire.Step) error {
	var at int64
	for try := 1; ; try++ {
		n, err := l.c.RawLog(ctx, l.run, j.JobID, s.StepIndex, at, l.Stdout)
		if at += n; n > 0 {
			try = 1
		}
		if err == nil || ctx.Err() != nil || at == 0 || try >= rawTries {
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}
