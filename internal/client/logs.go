package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"kici/internal/core/adminwire"
)

// maxRefusal bounds the body of an answer that is no log.
const maxRefusal = 64 << 10

// logPath is the route of a step's log; step −1 is the job's own.
func logPath(runID, jobID string, step int, rest string) string {
	return at(runsPath+"/", runID, "/jobs/", jobID, "/steps/", strconv.Itoa(step), "/logs") + rest
}

// LogQuery is a part of a step's log: from a line on, Limit lines at most, or the last Tail lines. With Wait the server
// holds the answer until there is more, or the step has ended, or the time is up.
type LogQuery struct {
	From  int64
	Tail  int
	Limit int
	Wait  time.Duration
}

// Logs reads a part of a step's log. NextCursor is nil when nothing follows at present; with Wait, when nothing ever will.
func (c *Client) Logs(ctx context.Context, runID, jobID string, step int, q LogQuery) (adminwire.LogPage, error) {
	v := url.Values{}
	if q.Tail > 0 {
		v.Set("tail", strconv.Itoa(q.Tail))
	} else {
		v.Set("cursor", strconv.FormatInt(q.From, 10))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Wait > 0 {
		v.Set("wait", q.Wait.String())
	}
	var out adminwire.LogPage
	return out, c.callWithin(ctx, requestTimeout+q.Wait, "GET", logPath(runID, jobID, step, ""), v, nil, &out)
}

// LogSearch is a search of a step's log: for a text or, with Expression, for what an RE2 expression matches.
type LogSearch struct {
	Wanted     string
	Expression bool
	IgnoreCase bool
	From       int64 // line to begin with
	Limit      int   // matches at most, 0 for the server's choice
}

// SearchLog searches a step's log. NextCursor is nil when nothing is left to search.
func (c *Client) SearchLog(ctx context.Context, runID, jobID string, step int, q LogSearch) (adminwire.LogSearch, error) {
	v := url.Values{"cursor": {strconv.FormatInt(q.From, 10)}}
	if q.Expression {
		v.Set("re", q.Wanted)
	} else {
		v.Set("q", q.Wanted)
	}
	if q.IgnoreCase {
		v.Set("ignoreCase", "true")
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var out adminwire.LogSearch
	return out, c.call(ctx, "GET", logPath(runID, jobID, step, "/search"), v, nil, &out)
}

// RawLog copies a step's log as it is stored, one JSON object a line, from a byte on. It takes as long as it takes, and
// tells how many bytes came; a download that broke goes on from there.
func (c *Client) RawLog(ctx context.Context, runID, jobID string, step int, from int64, w io.Writer) (int64, error) {
	path := logPath(runID, jobID, step, "/raw")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return 0, fmt.Errorf("GET %s: %w", path, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("the server at %s does not answer: %w", c.base, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return 0, nil // nothing is behind the end
	case resp.StatusCode >= 300:
		raw, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		return 0, errors.Join(refusal(resp.StatusCode, raw), err)
	case from > 0 && resp.StatusCode != http.StatusPartialContent:
		return 0, fmt.Errorf("the answer of %s is the whole log, not what follows byte %d", c.base, from)
	}
	n, err := io.Copy(w, resp.Body)
	if err != nil {
		return n, fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	return n, nil
}
