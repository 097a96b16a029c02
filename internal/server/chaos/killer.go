package chaos

import (
	"context"
	"errors"
	"sync"
	"time"

	"kici/internal/kit/service"
	"kici/internal/proc"
)

// torment carries out a plan and returns when the last fault has ended, or ctx has. say is told of each fault.
func (s *system) torment(ctx context.Context, faults []Fault, say func(Fault)) error {
	began := time.Now()
	var mu sync.Mutex
	var failed error
	var pending sync.WaitGroup
	for _, f := range faults {
		if !service.Sleep(ctx, time.Until(began.Add(f.At))) {
			break
		}
		say(f)
		pending.Go(func() {
			if err := s.inflict(ctx, f); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	pending.Wait()
	return failed
}

// inflict is one fault from its beginning to its end.
func (s *system) inflict(ctx context.Context, f Fault) error {
	switch f.Action {
	case KillServer, PauseServer, RestartServer:
		return s.nodes[f.Target].suffer(ctx, f)
	case KillAgent, PauseAgent, RestartAgent:
		return s.agents[f.Target].suffer(ctx, f)
	}
	s.lines[f.Target].suffer(ctx, f)
	return nil
}

// suffer is a fault of a process. It is up again at its end.
func (u *unit) suffer(ctx context.Context, f Fault) error {
	switch f.Action {
	case KillServer, KillAgent:
		u.down((*proc.Process).Kill)
	case RestartServer, RestartAgent:
		u.down((*proc.Process).Stop)
	default:
		_ = u.with((*proc.Process).Pause) // it may have ended just now, which its crash tells
	}
	service.Sleep(ctx, f.For) // what ctx cuts short, heal ends
	if f.Action == PauseServer || f.Action == PauseAgent {
		_ = u.with((*proc.Process).Resume)
		return nil
	}
	return u.up(context.WithoutCancel(ctx))
}

// suffer is a fault of a line.
func (l *link) suffer(ctx context.Context, f Fault) {
	switch f.Action {
	case CutLine:
		l.cut()
		return
	case DeafenLine:
		l.halfClose(f.For%2 == 0)
		return
	case HoldLine:
		l.hold()
	case LoseLine:
		l.lose()
	}
	service.Sleep(ctx, f.For)
	l.calm()
	if f.Action == LoseLine {
		l.cut() // nothing that follows a gap would make sense
	}
}
