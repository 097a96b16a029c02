package chaos

import (
	"context"
	"errors"
	"strings"
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
	case DrainServer:
		s.drain(ctx, s.nodes[f.Target], true) // one that is down has nothing to drain
		service.Sleep(ctx, f.For)
		s.drain(context.WithoutCancel(ctx), s.nodes[f.Target], false)
		return nil
	case KillAgent, PauseAgent, RestartAgent:
		return s.agents[f.Target].suffer(ctx, f)
	case Ambush:
		return s.ambush(ctx, f)
	}
	s.lines[f.Target].suffer(ctx, f)
	return nil
}

// drain lets a server take no work, or take it again, and tells whether it has heard. One that starts anew takes work.
func (s *system) drain(ctx context.Context, n *node, on bool) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	api, err := s.Connect(n.current())
	if err != nil {
		return false
	}
	_, err = api.SetDrain(ctx, on)
	return err == nil
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

// deadFor is how long what an ambush has killed stays down.
const deadFor = 700 * time.Millisecond

// ambush waits at the line of an agent for a frame, which springs the trap, or for the end of the fault.
func (s *system) ambush(ctx context.Context, f Fault) error {
	l := s.lines[f.Target]
	sprung := l.lay(f.Frame, f.Lost)
	patience := time.NewTimer(f.For)
	defer patience.Stop()
	var server string
	select {
	case server = <-sprung:
	case <-patience.C:
		l.calm()
		return nil
	case <-ctx.Done():
		return nil
	}
	service.Sleep(ctx, f.After)
	switch f.Then {
	case KillAgent:
		return s.agents[f.Target].suffer(ctx, Fault{Action: KillAgent, For: deadFor})
	case KillServer:
		for _, n := range s.nodes {
			if strings.HasSuffix(n.current().URL, server) {
				return n.suffer(ctx, Fault{Action: KillServer, For: deadFor})
			}
		}
	}
	return nil
}
