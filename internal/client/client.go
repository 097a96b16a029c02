// Package client speaks the admin API.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"kici/internal/core/adminwire"
)

// requestTimeout bounds a request that does not wait for something to happen.
const requestTimeout = 30 * time.Second

// maxBody bounds an answer. A page of logs or runs is far smaller.
const maxBody = 64 << 20

// Client is a server's administration. Its errors never hold the token.
type Client struct {
	base  string // without a slash at the end
	token string
	http  *http.Client
	// patience is how long a question may wait for a server that is away.
	patience time.Duration
}

// New makes a client of the server at base, such as http://127.0.0.1:4000.
func New(base, token string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("server URL %q: it must look like http://127.0.0.1:4000", base)
	}
	return &Client{base: strings.TrimRight(base, "/"), token: token, http: &http.Client{}}, nil
}

// Base is the server's URL.
func (c *Client) Base() string { return c.base }

// Error is a server's refusal or failure.
type Error struct {
	Status int // HTTP status
	Body   adminwire.Error
}

// Error is the status and the server's own words, a line for each detail.
func (e *Error) Error() string {
	text := fmt.Sprintf("HTTP %d: %s", e.Status, e.Body.Error)
	for _, d := range e.Body.Details {
		text += fmt.Sprintf("\n  %s: %s", d.Path, d.Message)
	}
	return text
}

// NotFound tells whether an error says that there is no such thing.
func NotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound
}

// call sends one request and decodes the answer into out, unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	return c.callWithin(ctx, requestTimeout, method, path, query, in, out)
}

func (c *Client) callWithin(ctx context.Context, limit time.Duration, method, path string, query url.Values, in, out any) error {
	ask := func() error { return c.callOnce(ctx, limit, method, path, query, in, out) }
	if c.patience == 0 || method != http.MethodGet {
		return ask()
	}
	return c.asking(ctx, ask)
}

func (c *Client) callOnce(ctx context.Context, limit time.Duration, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.exchange(req, out)
}

func (c *Client) exchange(req *http.Request, out any) error {
	resp, err := c.http.Do(req)
	if err != nil {
		return &silentError{fmt.Sprintf("the server at %s does not answer", c.base), errors.Unwrap(err)}
	}
	defer resp.Body.Close()
	return c.answer(resp, out)
}

// answer reads what a server answered, and decodes it into out unless that is nil.
func (c *Client) answer(resp *http.Response, out any) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return &silentError{"read the answer of " + c.base, err}
	}
	if len(raw) > maxBody {
		return fmt.Errorf("the answer of %s is larger than %d bytes", c.base, maxBody)
	}
	if resp.StatusCode >= 300 {
		return refusal(resp.StatusCode, raw)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("the answer of %s is not what this release expects: %w", c.base, err)
	}
	return nil
}

// refusal reads the body of an answer that is none.
func refusal(status int, raw []byte) *Error {
	e := &Error{Status: status}
	if json.Unmarshal(raw, &e.Body) != nil || e.Body.Error == "" {
		e.Body.Error = http.StatusText(status) // something before the server answered
	}
	return e
}

// at builds a path from literal and variable parts: every second part is escaped.
func at(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		if i%2 == 1 {
			p = url.PathEscape(p)
		}
		b.WriteString(p)
	}
	return b.String()
}
