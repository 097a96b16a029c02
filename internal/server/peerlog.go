package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/server/logs"
	"kici/internal/server/logs/joined"
	"kici/internal/server/logs/search"
)

// The times that another node has to take a connection and to begin its answer, and how long it is asked to wait at most.
const (
	peerDial   = 3 * time.Second
	peerAnswer = 20 * time.Second
	peerWait   = 10 * time.Second
)

// maxPeerAnswer bounds what is read of another node's page. A page holds 8 MiB of lines, or one line, and quotes them.
const maxPeerAnswer = 64 << 20

// newPeers makes the client by which nodes ask each other.
func newPeers() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: peerDial}).DialContext, ResponseHeaderTimeout: peerAnswer,
			MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// peerLog reads what another node holds of a log, in the name of whoever asked this one. The path of a log is the node's
// own matter: the step says which it is.
type peerLog struct {
	client *http.Client
	log    *slog.Logger
	node   string
	from   string // this node
	caller string // what its Authorization said
	base   *url.URL
}

// Lines gives lines of the part.
func (p *peerLog) Lines(ctx context.Context, _ string, from int64, limit int) (lines []string, total, next int64, err error) {
	page, err := p.page(ctx, url.Values{"cursor": {strconv.FormatInt(from, 10)}, "limit": {strconv.Itoa(max(limit, 1))}})
	if err != nil {
		return nil, 0, 0, err
	}
	lines = textsOf(page, limit)
	if next = from + int64(len(lines)); next >= page.TotalLines || len(lines) == 0 {
		next = 0
	}
	return lines, page.TotalLines, next, nil
}

func textsOf(page adminwire.LogPage, limit int) (lines []string) {
	for _, line := range page.Lines[:min(len(page.Lines), limit)] {
		lines = append(lines, line.Value)
	}
	return lines
}

// Tail gives the last lines of the part.
func (p *peerLog) Tail(ctx context.Context, _ string, n int) (lines []string, total int64, err error) {
	page, err := p.page(ctx, url.Values{"tail": {strconv.Itoa(n)}})
	return textsOf(page, n), page.TotalLines, err
}

// Wait waits for a line of the part.
func (p *peerLog) Wait(ctx context.Context, _ string, line int64) (more bool, err error) {
	wait := peerWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	page, err := p.page(ctx, url.Values{"cursor": {strconv.FormatInt(line, 10)}, "limit": {"1"}, "wait": {max(wait, 0).String()}})
	return err == nil && len(page.Lines) > 0, err
}

func (p *peerLog) page(ctx context.Context, query url.Values) (page adminwire.LogPage, err error) {
	if err = p.get(ctx, p.base, query, &page); err == nil && page.Expired {
		err = logs.ErrExpired
	}
	return page, err
}

// Search looks through the part. The node bounds the time itself.
func (p *peerLog) Search(ctx context.Context, _ string, q search.Query) (search.Found, error) {
	query := url.Values{"cursor": {strconv.FormatInt(q.From, 10)}, "limit": {strconv.Itoa(q.Limit)}, "ignoreCase": {strconv.FormatBool(q.Fold)}}
	if q.Text != "" {
		query.Set("q", q.Text)
	} else {
		query.Set("re", q.Pattern)
	}
	var got adminwire.LogSearch
	err := p.get(ctx, p.base.JoinPath("search"), query, &got)
	if err == nil && got.Expired {
		err = logs.ErrExpired
	}
	if err != nil {
		return search.Found{}, err
	}
	found := search.Found{Total: got.TotalLines, Next: got.TotalLines}
	if got.NextCursor != nil {
		if found.Next, err = strconv.ParseInt(*got.NextCursor, 10, 64); err != nil {
			return found, fmt.Errorf("read the search of node %s: %w", p.node, err)
		}
	}
	for _, m := range got.Matches {
		found.Hits = append(found.Hits, search.Hit{Line: m.Line, TS: m.TS, Text: m.Text.Value})
	}
	return found, nil
}

// Open gives the part as bytes, which are fetched as they are read.
func (p *peerLog) Open(ctx context.Context, _ string) (logs.Content, error) {
	resp, err := p.ask(ctx, http.MethodHead, p.base.JoinPath("raw"), nil, "")
	if err != nil {
		return logs.Content{}, err
	}
	if err := resp.Body.Close(); err != nil {
		return logs.Content{}, p.away(ctx, err)
	}
	bytes := &peerBytes{ctx: ctx, peer: p, size: resp.ContentLength}
	return logs.NewContent(bytes, max(resp.ContentLength, 0), bytes.Close), nil
}

// peerBytes reads the bytes of a part. Readers go on where they were: one answer is read for as long as they do.
type peerBytes struct {
	ctx  context.Context // of the reading, which may have to ask again
	peer *peerLog
	size int64
	body io.ReadCloser // nil while nothing is being read
	at   int64         // of the body
}

// ReadAt implements io.ReaderAt. It is not for concurrent use.
func (b *peerBytes) ReadAt(into []byte, off int64) (int, error) {
	if off >= b.size {
		return 0, io.EOF
	}
	if b.body == nil || b.at != off {
		if err := b.Close(); err != nil {
			return 0, err
		}
		resp, err := b.peer.ask(b.ctx, http.MethodGet, b.peer.base.JoinPath("raw"), nil, fmt.Sprintf("bytes=%d-%d", off, b.size-1))
		if err != nil {
			return 0, err
		}
		b.body, b.at = resp.Body, off
	}
	n, err := io.ReadFull(b.body, into[:min(int64(len(into)), b.size-off)])
	b.at += int64(n)
	if err == nil && n < len(into) {
		err = io.EOF
	}
	return n, err
}

// Close ends the answer that is being read.
func (b *peerBytes) Close() error {
	body := b.body
	b.body = nil
	if body == nil {
		return nil
	}
	return body.Close()
}

// get asks for a JSON answer.
func (p *peerLog) get(ctx context.Context, to *url.URL, query url.Values, into any) error {
	resp, err := p.ask(ctx, http.MethodGet, to, query, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxPeerAnswer)).Decode(into); err != nil {
		return p.away(ctx, err)
	}
	return nil
}

// ask makes a request. Only a good answer is none; the body is the caller's to close.
func (p *peerLog) ask(ctx context.Context, method string, to *url.URL, query url.Values, byteRange string) (*http.Response, error) {
	u := *to
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", p.caller)
	req.Header.Set(forwarded, p.from)
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, p.away(ctx, err)
	}
	want := http.StatusOK
	if byteRange != "" {
		want = http.StatusPartialContent
	}
	switch {
	case resp.StatusCode == want:
		return resp, nil
	case resp.StatusCode == http.StatusGone:
		err = logs.ErrExpired
	default:
		err = p.away(ctx, fmt.Errorf("it answered %s", resp.Status))
	}
	_ = resp.Body.Close() // the answer is not used
	return nil, err
}

// away tells that the node did not answer, unless nobody waits for it any more.
func (p *peerLog) away(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.log.Warn("node does not answer for a log", "node", p.node, "err", err)
	return &joined.AwayError{Node: p.node, Why: "does not answer"}
}
