package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"kici/internal/core/adminwire"
)

// silence is how long a stream may say nothing. Servers break their silence every 15 s.
const silence = 60 * time.Second

// errSilent says that a stream's server is gone without a word.
var errSilent = errors.New("the stream fell silent")

// Watch looks at a run while it goes on: each is called with every message until the run has ended. lastID is the id of
// the last message of an earlier stream, "" for none; last is the id to go on from after an error. A stream that breaks
// before the run has ended is an error, too; the caller may come back. An error of each ends the watching.
func (c *Client) Watch(ctx context.Context, runID, lastID string, each func(adminwire.Observed) error) (last string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+at(runsPath+"/", runID, "/events/stream"), nil)
	if err != nil {
		return lastID, fmt.Errorf("watch run %s: %w", runID, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	resp, err := c.http.Do(req)
	if err != nil {
		return lastID, fmt.Errorf("the server at %s does not answer: %w", c.base, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return lastID, c.answer(resp, nil)
	}
	s := &events{lines: bufio.NewReader(resp.Body), heard: func() { watchdog.Reset(silence) }}
	last, err = s.each(lastID, each)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return last, err
}

// events reads a stream of server-sent events.
type events struct {
	lines *bufio.Reader
	heard func()
}

// each passes messages on until the one that ends the stream.
func (s *events) each(lastID string, each func(adminwire.Observed) error) (last string, err error) {
	for {
		id, data, err := s.next()
		if err != nil {
			return lastID, err
		}
		var m adminwire.Observed
		if err := json.Unmarshal(data, &m); err != nil {
			return lastID, fmt.Errorf("the stream is not what this release expects: %w", err)
		}
		if err := each(m); err != nil {
			return lastID, err
		}
		if id != "" {
			lastID = id
		}
		if m.Type == adminwire.ObserveComplete {
			return lastID, nil
		}
	}
}

// next is the next event that has data.
func (s *events) next() (id string, data []byte, err error) {
	for {
		line, err := s.line()
		if err != nil {
			return "", nil, err
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && len(data) > 0:
			return id, data, nil
		case string(name) == "id":
			id = string(value)
		case string(name) == "data":
			data = append(data, value...)
		}
	}
}

// line is a line without its end.
func (s *events) line() ([]byte, error) {
	var line []byte
	for {
		part, err := s.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxBody:
			return nil, fmt.Errorf("a message of the stream is larger than %d bytes", maxBody)
		case err == nil:
			s.heard()
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF // a stream ends with the message that says so
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
