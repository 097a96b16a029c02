package demo

import (
	"context"
	"encoding/json"
	"time"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/rig"
)

// follower remembers how far each step's log has been shown.
type follower struct {
	d     *demo
	from  map[adminwire.LogName]int64 // next line
	first time.Time                   // of the first line of a step
}

// watch shows the run of a delivery until it has ended, and gives its end with the time of the first line that a step
// wrote.
func (d *demo) watch(ctx context.Context, delivery rig.Delivery) (run adminwire.RunDetail, jobs []adminwire.Job, first time.Time, err error) {
	f := &follower{d: d, from: map[adminwire.LogName]int64{}}
	err = d.rig.Await(ctx, "the run to end", func() (ended bool, err error) {
		var ok bool
		if run, ok, err = d.rig.RunOf(ctx, delivery); err != nil || !ok {
			return false, err
		}
		if jobs, err = d.rig.API.Jobs(ctx, run.RunID); err != nil {
			return false, err
		}
		d.Screen.Show(run, jobs)
		return run.Status.Terminal(), f.showLines(ctx, run.RunID, jobs)
	})
	return run, jobs, f.first, err
}

func (f *follower) showLines(ctx context.Context, runID string, jobs []adminwire.Job) error {
	for _, j := range jobs {
		for _, s := range j.Steps {
			if err := f.showStep(ctx, runID, j, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *follower) showStep(ctx context.Context, runID string, j adminwire.Job, s adminwire.Step) error {
	key := j.Log(s)
	page, err := f.d.rig.API.Logs(ctx, runID, j.JobID, s.StepIndex, client.LogQuery{From: f.from[key]})
	if err != nil {
		return err
	}
	for _, line := range page.Lines {
		var record struct {
			TS  time.Time `json:"ts"`
			Msg string    `json:"msg"`
		}
		if err := json.Unmarshal([]byte(line.Value), &record); err != nil {
			return err
		}
		if f.first.IsZero() || record.TS.Before(f.first) {
			f.first = record.TS
		}
		f.d.seen.WriteString(record.Msg + "\n")
		f.d.Screen.Line(j.Log(s), record.Msg)
	}
	f.from[key] += int64(len(page.Lines))
	return nil
}
