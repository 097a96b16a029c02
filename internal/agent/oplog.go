package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"kici/internal/agent/ledger"
	"kici/internal/agent/link"
	"kici/internal/core/wire"
	"kici/internal/kit/redact"
)

// Bounds of the agent's own log on its way to the server. What exceeds the first is dropped, oldest first, and counted.
const (
	maxLogLines   = 10_000
	maxLogBytes   = 4 << 20
	forwardLines  = 50
	forwardDelay  = 100 * time.Millisecond
	maxLogLineLen = 8 << 10
)

// oplog is a slog handler that also keeps the lines for the server.
type oplog struct {
	next slog.Handler
	json slog.Handler // writes into the store
	*oplogStore
}

// oplogStore holds the lines; the handlers with attributes of one logger share it.
type oplogStore struct {
	mask *redact.Redactor

	mu      sync.Mutex
	line    bytes.Buffer
	lines   []string
	size    int
	dropped int
	changed chan struct{} // a wake-up of size one
}

func newOplog(next slog.Handler, mask *redact.Redactor) *oplog {
	s := &oplogStore{mask: mask, changed: make(chan struct{}, 1)}
	return &oplog{next: next, json: slog.NewJSONHandler(&s.line, nil), oplogStore: s}
}

// Enabled follows the handler below.
func (o *oplog) Enabled(ctx context.Context, l slog.Level) bool { return o.next.Enabled(ctx, l) }

// Handle writes the record below and keeps it.
func (o *oplog) Handle(ctx context.Context, r slog.Record) error {
	o.keep(ctx, r)
	return o.next.Handle(ctx, r)
}

func (o *oplog) keep(ctx context.Context, r slog.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line.Reset()
	if o.json.Handle(ctx, r) != nil {
		return // the handler below has the record
	}
	line := o.mask.String(strings.TrimSpace(o.line.String()))
	if len(line) > maxLogLineLen {
		line = strings.ToValidUTF8(line[:maxLogLineLen], "")
	}
	o.lines = append(o.lines, line)
	o.size += len(line)
	for len(o.lines) > maxLogLines || o.size > maxLogBytes {
		o.size -= len(o.lines[0])
		o.lines = o.lines[1:]
		o.dropped++
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// WithAttrs adds attributes to both.
func (o *oplog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &oplog{next: o.next.WithAttrs(attrs), json: o.json.WithAttrs(attrs), oplogStore: o.oplogStore}
}

// WithGroup opens a group in both.
func (o *oplog) WithGroup(name string) slog.Handler {
	return &oplog{next: o.next.WithGroup(name), json: o.json.WithGroup(name), oplogStore: o.oplogStore}
}

// replay puts a marker before the lines that wait, so that a reader of the server's log sees the gap.
func (s *oplogStore) replay(offline time.Duration, frames int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	marker := fmt.Sprintf("--- Orchestrator offline for %ds. Replaying %d buffered events and %d buffered log lines.",
		int(offline.Seconds()), frames, len(s.lines))
	if s.dropped > 0 {
		marker += fmt.Sprintf(" %d log lines dropped due to buffer overflow.", s.dropped)
		s.dropped = 0
	}
	s.lines = append([]string{marker + " ---"}, s.lines...)
	s.size += len(s.lines[0])
}

// take gives up to n lines.
func (s *oplogStore) take(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.lines))
	lines := append([]string{}, s.lines[:n]...)
	s.lines = s.lines[n:]
	for _, l := range lines {
		s.size -= len(l)
	}
	if len(s.lines) == 0 {
		s.lines = nil // lets the array go
	}
	return lines
}

// forwardLoop sends the agent's log while it is connected, a little delayed, so that lines travel together.
func (a *Agent) forwardLoop(ctx context.Context, _ *link.Session) error {
	for {
		for lines := a.oplog.take(forwardLines); len(lines) > 0; lines = a.oplog.take(forwardLines) {
			a.ledger.Send(ledger.KeepNot, wire.AgentLog{MessageID: uuid.NewString(), AgentID: a.cfg.AgentID, Lines: lines, Timestamp: time.Now().UnixMilli()})
		}
		select {
		case <-a.oplog.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-time.After(forwardDelay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
