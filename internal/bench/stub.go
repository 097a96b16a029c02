// Package bench measures the whole system from outside: a server process of its own, real or stub agents, webhooks over
// HTTP.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

// stubReadLimit is the largest frame an agent accepts.
const stubReadLimit = 25 << 20

// Stub is an agent that runs nothing: it answers every dispatch as a job of one step that succeeds after a delay.
type Stub struct {
	ID     string
	URL    string // ws://…/ws
	Token  string
	Labels []string
	Slots  int           // jobs at a time
	Delay  time.Duration // from the dispatch to its success
	// Dispatched is told of every dispatch as it is read. It must not block. Nil is nobody.
	Dispatched func(jobID string, at time.Time)
	// Features are named in the registration, as are the jobs in InFlight.
	Features []string
	InFlight []wire.InFlightJob
	// Handle takes what the server sends, instead of the stub's own way with dispatches.
	Handle func(ctx context.Context, m wire.Message) error

	conn *websocket.Conn
	jobs sync.WaitGroup
}

// Connect registers the agent. Serve must follow.
func (s *Stub) Connect(ctx context.Context) error {
	conn, _, err := websocket.Dial(ctx, s.URL, &websocket.DialOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return fmt.Errorf("connect stub agent %s: %w", s.ID, err)
	}
	conn.SetReadLimit(stubReadLimit)
	s.conn = conn
	hello := []wire.Message{
		wire.AuthRequest{Token: s.Token, ProtocolVersion: 1},
		wire.AgentRegister{MessageID: uuid.NewString(), AgentID: s.ID, Labels: s.Labels, Platform: "linux", Arch: "x64", MaxConcurrency: s.Slots,
			Features: s.Features, InFlightJobs: s.InFlight},
	}
	for _, m := range hello {
		if err := s.send(ctx, m); err != nil {
			return err
		}
		if err := s.expect(ctx); err != nil {
			return err
		}
	}
	return nil
}

// expect reads the answer to a frame of the handshake.
func (s *Stub) expect(ctx context.Context) error {
	m, err := s.read(ctx)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case wire.AuthSuccess, wire.RegisterAck:
		return nil
	case wire.AuthFailure:
		return fmt.Errorf("stub agent %s: refused: %s", s.ID, m.Reason)
	}
	return fmt.Errorf("stub agent %s: unexpected %s in the handshake", s.ID, m.MessageType())
}

// Serve answers dispatches until ctx ends or the connection does.
func (s *Stub) Serve(ctx context.Context) error {
	defer s.jobs.Wait()
	defer func() { _ = s.conn.Close(websocket.StatusNormalClosure, "Agent disconnect") }() // the server may be gone already
	beat := time.NewTicker(30 * time.Second)
	defer beat.Stop()
	failed := make(chan error, 1)
	go func() { failed <- s.answer(ctx) }()
	for {
		select {
		case err := <-failed:
			return err
		case <-beat.C:
			if err := s.send(ctx, wire.Heartbeat{Timestamp: time.Now().UnixMilli()}); err != nil {
				return err
			}
		}
	}
}

// answer reads frames until the connection ends; a stopped context is no error.
func (s *Stub) answer(ctx context.Context) error {
	for {
		m, err := s.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if s.Handle != nil {
			if err := s.Handle(ctx, m); err != nil {
				return err
			}
			continue
		}
		d, ok := m.(wire.JobDispatch)
		if !ok {
			continue
		}
		if s.Dispatched != nil {
			s.Dispatched(d.JobID, time.Now())
		}
		if s.Delay == 0 {
			if err := s.work(ctx, d); err != nil {
				return err
			}
			continue
		}
		s.jobs.Go(func() { _ = s.work(ctx, d) }) // an error ends the connection, and the reader tells of it
	}
}

// work is the whole life of a job on this agent.
func (s *Stub) work(ctx context.Context, d wire.JobDispatch) error {
	started := time.Now()
	at := func() int64 { return time.Now().UnixMilli() }
	before := []wire.Message{
		wire.JobAck{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, Timestamp: at()},
		wire.JobStatus{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: at()},
		wire.StepStatus{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, StepName: "stub", State: ci.StepRunning, Timestamp: at()},
		wire.LogChunk{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, Lines: []string{"stub agent " + s.ID}, Timestamp: at()},
	}
	if err := s.sendAll(ctx, before); err != nil {
		return err
	}
	if s.Delay > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.Delay):
		}
	}
	ms := time.Since(started).Milliseconds()
	step := json.RawMessage(fmt.Sprintf(`{"durationMs":%d}`, ms))
	job := json.RawMessage(fmt.Sprintf(`{"durationMs":%d,"stepResults":[{"name":"stub","status":"success","durationMs":%d}]}`, ms, ms))
	return s.sendAll(ctx, []wire.Message{
		wire.StepStatus{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, StepName: "stub", State: ci.StepSuccess, Timestamp: at(), Data: step},
		wire.JobStatus{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, State: ci.JobSuccess, Timestamp: at(), Data: job},
	})
}

func (s *Stub) sendAll(ctx context.Context, messages []wire.Message) error {
	for _, m := range messages {
		if err := s.send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stub) send(ctx context.Context, m wire.Message) error {
	raw, err := wire.Encode(m)
	if err != nil {
		return err
	}
	return s.conn.Write(ctx, websocket.MessageText, raw)
}

func (s *Stub) read(ctx context.Context) (wire.Message, error) {
	_, raw, err := s.conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	return wire.DecodeFromServer(raw)
}
