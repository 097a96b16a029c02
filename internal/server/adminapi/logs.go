package adminapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/server/logs"
	"kici/internal/server/logs/search"
	"kici/internal/server/report"
)

// maxWait is the longest that a follower may wait for a line. Connections that are silent for longer are cut by proxies.
const maxWait = 30 * time.Second

// maxLines is the most that one page holds.
const maxLines = 2000

// lookAgain is how often a waiting follower looks whether the step has ended: a step may end without another line.
const lookAgain = time.Second

// lastLines is how long a follower waits for lines of a step that has ended, while its job goes on: some agents send the last
// ones behind the end, a tenth of a second later as a rule.
const lastLines = 2 * time.Second

// Logs reads the log of a step.
type Logs interface {
	Lines(ctx context.Context, path string, from int64, limit int) (lines []string, total, next int64, err error)
	Tail(ctx context.Context, path string, n int) (lines []string, total int64, err error)
	Wait(ctx context.Context, path string, line int64) (more bool, err error)
	Search(ctx context.Context, path string, q search.Query) (search.Found, error)
	Open(ctx context.Context, path string) (logs.Content, error)
}

// readLog gives a page of a step's log. With wait=<duration> it is a follower's: an empty page comes only after that
// time or when the step has ended, and nextCursor is null only when nothing will ever follow.
func (a *API) readLog(r *http.Request) (answer, error) {
	in, err := logQuery(r)
	if err != nil {
		return answer{}, err
	}
	log, place, err := a.theLog(r, in)
	if err != nil {
		return answer{}, err
	}
	page := adminwire.LogPage{RunID: in.run, JobID: in.job, StepIndex: in.step, Lines: []adminwire.Untrusted{}}
	lines, total, next, done, err := a.logLines(r.Context(), log, in, place)
	if page.Expired = errors.Is(err, logs.ErrExpired); page.Expired {
		return ok(page)
	}
	if err != nil {
		return answer{}, err
	}
	for _, line := range lines {
		page.Lines = append(page.Lines, adminwire.Untrusted{Untrusted: true, Value: line})
	}
	page.TotalLines = total
	following := in.wait > 0 && !done
	if following && next == 0 {
		next = in.from + int64(len(lines)) // more may come from here on
		if in.tail > 0 {
			next = total
		}
	}
	page.NextCursor = cursorOf(next, next > 0 || following)
	return ok(page)
}

// cursorOf is a cursor, or null where nothing follows.
func cursorOf(line int64, follows bool) *string {
	if !follows {
		return nil
	}
	cursor := strconv.FormatInt(line, 10)
	return &cursor
}

// theLog finds the log of a step of the path, for a caller that may read its run.
func (a *API) theLog(r *http.Request, in logRequest) (log Logs, place report.LogPlace, err error) {
	if _, err := a.theRun(r); err != nil {
		return nil, place, err
	}
	if place, err = a.logPlace(r.Context(), in); err != nil {
		return nil, place, err
	}
	if a.Logs == nil {
		return nil, place, refuse(http.StatusServiceUnavailable, "Log storage not configured on this orchestrator")
	}
	log, err = a.Logs(r)
	return log, place, err
}

// logRequest is which part of which log is asked for.
type logRequest struct {
	run, job string
	step     int
	from     int64 // line
	tail     int   // lines at the end, 0 to begin at from
	limit    int
	wait     time.Duration
}

// logQuery reads which lines are wanted. A limit that is nonsense is the default; a cursor or a time that is nonsense is
// refused, since a guess would show other lines than were asked for.
func logQuery(r *http.Request) (in logRequest, err error) {
	if in, err = stepQuery(r); err != nil {
		return in, err
	}
	in.limit = limitOf(r, 500, maxLines)
	q := r.URL.Query()
	if text := q.Get("tail"); text != "" {
		if in.tail, err = strconv.Atoi(text); err != nil || in.tail <= 0 || in.from > 0 {
			return in, refuse(http.StatusBadRequest, "Invalid tail: use a number of lines from 1 on, without a cursor")
		}
		in.tail = min(in.tail, maxLines)
	}
	if text := q.Get("wait"); text != "" {
		if in.wait, err = time.ParseDuration(text); err != nil || in.wait < 0 {
			return in, refuse(http.StatusBadRequest, "Invalid wait: use a duration such as 25s")
		}
		in.wait = min(in.wait, maxWait)
	}
	return in, nil
}

// stepQuery reads of which step the log is wanted, and from which line on.
func stepQuery(r *http.Request) (in logRequest, err error) {
	in = logRequest{run: r.PathValue("run"), job: r.PathValue("job")}
	if in.step, err = strconv.Atoi(r.PathValue("step")); err != nil || in.step < -1 {
		return in, refuse(http.StatusBadRequest, "Invalid stepIndex")
	}
	if text := r.URL.Query().Get("cursor"); text != "" {
		if in.from, err = strconv.ParseInt(text, 10, 64); err != nil || in.from < 0 {
			return in, refuse(http.StatusBadRequest, "Invalid cursor")
		}
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

// logLines reads the lines, and waits for the first of them when the caller wants that. done tells that nothing will follow.
// Whether the job has ended is always known from before the lines were read: an ended job has them all.
func (a *API) logLines(ctx context.Context, log Logs, in logRequest, place report.LogPlace) (lines []string, total, next int64, done bool, err error) {
	deadline := time.Now().Add(in.wait)
	if place.Ended {
		deadline = time.Now().Add(min(in.wait, lastLines))
	}
	for {
		if in.tail > 0 {
			lines, total, err = log.Tail(ctx, place.Path, in.tail)
		} else {
			lines, total, next, err = log.Lines(ctx, place.Path, in.from, in.limit)
		}
		left := time.Until(deadline)
		switch {
		case err != nil || len(lines) > 0 || place.Final || a.live.Err() != nil:
			return lines, total, next, place.Final, err
		case left <= 0:
			return lines, total, next, place.Ended, nil
		}
		if err := a.awaitLine(ctx, log, place.Path, in.from, min(left, lookAgain)); err != nil {
			return nil, 0, 0, false, err
		}
		was := place.Ended
		if place, err = a.logPlace(ctx, in); err != nil {
			return nil, 0, 0, false, err
		}
		if !was && place.Ended {
			deadline = time.Now().Add(lastLines)
		}
	}
}

// awaitLine waits until the log has the line, or for a moment. Another node may answer without the line before the time is
// up, because it has seen the end of the step or is stopping: the pause is waited for either way.
func (a *API) awaitLine(ctx context.Context, log Logs, path string, line int64, pause time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	defer context.AfterFunc(a.live, cancel)()
	more, err := log.Wait(limited, path, line)
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
