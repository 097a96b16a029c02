package bench

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

// window is how many frames a flooding stub has sent at most without an acknowledgement.
const window = 64

// flood is a stub with one job that sends frames about it as fast as the server acknowledges them.
type flood struct {
	*Stub
	job    chan wire.JobDispatch // its job, once
	acked  chan wire.Ack
	sent   []string // frames that are not acknowledged, oldest first
	served chan error
}

// startFlood connects a stub and waits until it has started a job.
func (b *bed) startFlood(ctx context.Context, i int) (*flood, wire.JobDispatch, error) {
	f := &flood{Stub: b.stub(i), job: make(chan wire.JobDispatch, 1), acked: make(chan wire.Ack, 2*window), served: make(chan error, 1)}
	f.Features = []string{wire.FeatureFrameAck}
	f.Handle = f.take
	if err := f.Connect(ctx); err != nil {
		return nil, wire.JobDispatch{}, err
	}
	go func() { f.served <- f.Serve(ctx) }()
	if _, err := b.Push(ctx); err != nil {
		return nil, wire.JobDispatch{}, err
	}
	select {
	case d := <-f.job:
		err := f.post(ctx, wire.JobAck{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, Timestamp: time.Now().UnixMilli()})
		return f, d, errors.Join(err, f.status(ctx, d, ci.JobRunning))
	case err := <-f.served:
		return nil, wire.JobDispatch{}, errors.Join(errors.New("the stub agent lost its connection"), err)
	case <-ctx.Done():
		return nil, wire.JobDispatch{}, ctx.Err()
	}
}

// take passes on what matters of what the server sends.
func (f *flood) take(ctx context.Context, m wire.Message) error {
	switch m := m.(type) {
	case wire.JobDispatch:
		select {
		case f.job <- m:
		default:
			return errors.New("a second job came")
		}
	case wire.Ack:
		select {
		case f.acked <- m:
		case <-ctx.Done():
		}
	}
	return nil
}

func (f *flood) status(ctx context.Context, d wire.JobDispatch, state ci.JobStatus) error {
	return f.post(ctx, wire.JobStatus{MessageID: uuid.NewString(), RunID: d.RunID, JobID: d.JobID, State: state, Timestamp: time.Now().UnixMilli()})
}

// post sends a frame that is acknowledged, and waits for room first.
func (f *flood) post(ctx context.Context, m wire.Message) error {
	if err := f.await(ctx, window-1); err != nil {
		return err
	}
	f.sent = append(f.sent, wire.ID(m))
	return f.send(ctx, m)
}

// await waits until at most so many frames are not acknowledged. An acknowledgement stands for all frames before it: the
// server applies them in their order.
func (f *flood) await(ctx context.Context, most int) error {
	for len(f.sent) > most {
		select {
		case ack := <-f.acked:
			for i, id := range f.sent {
				if id == ack.MessageID {
					f.sent = f.sent[i+1:]
					break
				}
			}
		case err := <-f.served:
			return errors.Join(errors.New("the stub agent lost its connection"), err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
