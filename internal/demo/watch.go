package demo

import (
	"context"
	"encoding/json"
	"time"

	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// follower remembers how far each step's log has been shown.
type follower struct {
	d     *demo
	from  map[string]int64 // job and step → line
	first time.Time        // of the first line of a step
}

// watch shows the run of a delivery until it has ended, and gives its end with the time of the first line that a step
// wrote.
func (d *demo) watch(ctx context.Context, deliveryID string) (adminwire.RunDetail, []adminwire.Job, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	f := &follower{d: d, from: map[string]int64{}}
	for {
		run, jobs, err := d.look(ctx, deliveryID)
		if err != nil {
			return run, nil, time.Time{}, err
		}
		if run.RunID != "" {
			d.Screen.Show(run, jobs)
			if err := f.showLines(ctx, run.RunID, jobs); err != nil {
				return run, nil, time.Time{}, err
			}
			if run.Status.Terminal() {
				return run, jobs, f.first, nil
			}
		}
		if err := d.pause(ctx); err != nil {
			return run, nil, time.Time{}, err
		}
	}
}

// look reads the delivery's run; an empty one while there is none.
func (d *demo) look(ctx context.Context, deliveryID string) (run adminwire.RunDetail, jobs []adminwire.Job, err error) {
	list, err := d.api.Runs(ctx, client.RunQuery{Limit: 1})
	if err != nil || len(list.Runs) == 0 {
		return run, nil, err
	}
	if run, err = d.api.Run(ctx, list.Runs[0].RunID); err != nil {
		return run, nil, err
	}
	if run.DeliveryID == nil || *run.DeliveryID != deliveryID {
		return adminwire.RunDetail{}, nil, nil
	}
	jobs, err = d.api.Jobs(ctx, run.RunID)
	return run, jobs, err
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
	key := j.JobID + "/" + s.StepName
	page, err := f.d.api.Logs(ctx, runID, j.JobID, s.StepIndex, client.LogQuery{From: f.from[key]})
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
		f.d.Screen.Line(j.JobName, s.StepName, record.Msg)
	}
	f.from[key] += int64(len(page.Lines))
	return nil
}
