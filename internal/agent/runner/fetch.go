package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const (
	maxFetch     = 64 << 20 // of an answer's body; it is held in memory as a whole
	maxRedirects = 20
)

// fetchSpec is a request that a script makes with fetch.
type fetchSpec struct {
	ID       string      `json:"id"` // chosen by the script, for wake
	URL      string      `json:"url"`
	Method   string      `json:"method"`
	Headers  [][2]string `json:"headers"`
	Body     []byte      `json:"body"`
	Redirect string      `json:"redirect"` // "follow", "manual" or "error"
}

// fetched is the answer.
type fetched struct {
	Status     int         `json:"status"`
	StatusText string      `json:"statusText"`
	URL        string      `json:"url"`
	Redirected bool        `json:"redirected"`
	Headers    [][2]string `json:"headers"`
	Body       []byte      `json:"body"`
}

// fetch does the request; wake ends it.
func (c *child) fetch(ctx context.Context, spec fetchSpec) (fetched, error) {
	ctx, done, woken := c.endable(ctx, spec.ID)
	defer done()
	if woken {
		return fetched{}, context.Canceled
	}
	req, err := http.NewRequestWithContext(ctx, spec.Method, spec.URL, bytes.NewReader(spec.Body))
	if err != nil {
		return fetched{}, err
	}
	req.Header.Set("User-Agent", "kici")
	for _, h := range spec.Headers {
		if len(req.Header.Values(h[0])) > 0 && http.CanonicalHeaderKey(h[0]) == "User-Agent" {
			req.Header.Del(h[0])
		}
		req.Header.Add(h[0], h[1])
	}
	resp, err := (&http.Client{CheckRedirect: redirects(spec.Redirect)}).Do(req)
	if err != nil {
		return fetched{}, err
	}
	defer resp.Body.Close()
	return read(resp, spec.URL)
}

// redirects is how redirects are dealt with in a mode of fetch.
func redirects(mode string) func(*http.Request, []*http.Request) error {
	return func(_ *http.Request, via []*http.Request) error {
		switch {
		case mode == "manual":
			return http.ErrUseLastResponse
		case mode == "error":
			return errors.New("unexpected redirect")
		case len(via) > maxRedirects:
			return errors.New("redirect count exceeded")
		}
		return nil
	}
}

func read(resp *http.Response, asked string) (fetched, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFetch+1))
	if err != nil {
		return fetched{}, fmt.Errorf("read answer: %w", err)
	}
	if len(body) > maxFetch {
		return fetched{}, fmt.Errorf("the answer is over the limit of %d MiB for fetch; use a command such as curl", maxFetch>>20)
	}
	got := fetched{
		Status: resp.StatusCode, StatusText: http.StatusText(resp.StatusCode), URL: resp.Request.URL.String(), Body: body,
		Redirected: resp.Request.URL.String() != asked,
	}
	for name, values := range resp.Header {
		for _, value := range values {
			got.Headers = append(got.Headers, [2]string{name, value})
		}
	}
	return got, nil
}
