package adminapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/server/report"
)

// maxWait is the longest that a follower may wait for a line. Connections that are silent for longer are cut by proxies.
const maxWait = 30 * time.Second

// lookAgain is how often a waiting follower looks whether the step has ended: a step may end without another line.
const lookAgain = time.Second

// readLog gives a page of a step's log. With wait=<duration> it is a follower's: an empty page comes only after that
// time or when the step has ended, and nextCursor is null only when nothing will ever follow.
func (a *API) readLog(r *http.Request) (answer, error) {
	in, err := logQuery(r)
	if err != nil {
		return answer{}, err
	}
	if _, err := a.theRun(r); err != nil {
		return answer{}, err
	}
	place, err := a.logPlace(r.Context(), in)
	if err != nil {
		return answer{}, err
	}
	if a.Logs == nil {
		return answer{}, refuse(http.StatusServiceUnavailable, "Log storage not configured on this orchestrator")
	}
	page := adminwire.LogPage{RunID: in.run, JobID: in.job, StepIndex: in.step, Lines: []adminwire.Untrusted{}}
	lines, total, next, err := a.logLines(r.Context(), in, &place)
	if err != nil {
		return answer{}, err
	}
	for _, line := range lines {
		page.Lines = append(page.Lines, adminwire.Untrusted{Untrusted: true, Value: line})
	}
	page.TotalLines = total
	if in.wait > 0 && !place.Ended && next == 0 {
		next = in.from + int64(len(lines)) // more may come from here on
	}
	if next > 0 || in.wait > 0 && !place.Ended {
		cursor := strconv.FormatInt(next, 10)
		page.NextCursor = &cursor
	}
	return ok(page)
}

// logRequest is which part of which log is asked for.
type logRequest struct {
	run, job string
	step     int
	from     int64 // line
	limit    int
	wait     time.Duration
}

// logQuery reads which lines are wanted. A limit that is nonsense is the default; a cursor or a time that is nonsense is
// refused, since a guess would show other lines than were asked for.
func logQuery(r *http.Request) (in logRequest, err error) {
	in = logRequest{run: r.PathValue("run"), job: r.PathValue("job"), limit: limitOf(r, 500, 2000)}
	if in.step, err = strconv.Atoi(r.PathValue("step")); err != nil || in.step < -1 {
		return in, refuse(http.StatusBadRequest, "Invalid stepIndex")
	}
	q := r.URL.Query()
	if text := q.Get("cursor"); text != "" {
		if in.from, err = strconv.ParseInt(text, 10, 64); err != nil || in.from < 0 {
			return in, refuse(http.StatusBadRequest, "Invalid cursor")
		}
	}
	if text := q.Get("wait"); text != "" {
		if in.wait, err = time.ParseDuration(text); err != nil || in.wait < 0 {
			return in, refuse(http.StatusBadRequest, "Invalid wait: use a duration such as 25s")
		}
		in.wait = min(in.wait, maxWait)
	}
	return in, nil
}

// logPlace finds the log. A step that never logged has an empty one; a job that does not exist is refused.
func (a *API) logPlace(ctx context.Context, in logRequest) (report.LogPlace, error) {
	place, err := report.StepLog(ctx, a.DB.Read(), in.run, in.job, in.step)
	if errors.Is(err, report.ErrNotFound) {
		return place, gone("Job " + in.job + " not found")
	}
	return place, err
}

// logLines reads the lines, and waits for the first of them when the caller wants that. Whether the step has ended is
// always known from before the lines were read: an ended step has them all.
func (a *API) logLines(ctx context.Context, in logRequest, place *report.LogPlace) (lines []string, total, next int64, err error) {
	deadline := time.Now().Add(in.wait)
	for {
		// The end is taken before the lines are read, so that what is appended in between ends the wait below.
		_, end, _, err := a.Logs.Read(ctx, place.Path, math.MaxInt64, 1)
		if err != nil {
			return nil, 0, 0, err
		}
		lines, total, next, err = a.Logs.Lines(ctx, place.Path, in.from, in.limit)
		left := time.Until(deadline)
		if err != nil || len(lines) > 0 || place.Ended || left <= 0 || a.live.Err() != nil {
			return lines, total, next, err
		}
		if err := a.awaitLine(ctx, place.Path, end, min(left, lookAgain)); err != nil {
			return nil, 0, 0, err
		}
		if *place, err = a.logPlace(ctx, in); err != nil {
			return nil, 0, 0, err
		}
	}
}

// awaitLine waits until the log has grown, or for a moment. A log that is finished returns at once; the caller then sees
// that its step has ended, a little later at the worst, so the pause is waited for either way.
func (a *API) awaitLine(ctx context.Context, path string, end int64, pause time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	defer context.AfterFunc(a.live, cancel)()
	more, err := a.Logs.Wait(limited, path, end)
	if err == nil && !more {
		<-limited.Done()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && limited.Err() == nil {
		return err
	}
	return nil
}
