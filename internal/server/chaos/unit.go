package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"kici/internal/kit/service"
	"kici/internal/proc"
)

// unit is a server or an agent that is killed and started again.
type unit struct {
	name  string
	start func(ctx context.Context) (*proc.Process, error)
	crash func(words string) // told when the process ends by itself
	tries int                // to start it, at least one is made

	mu      sync.Mutex
	process *proc.Process // nil while it is down
	ends    []int64       // when it was ended, milliseconds since 1970
	watch   sync.WaitGroup
}

// up starts the unit, unless it is up already.
func (u *unit) up(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.process != nil {
		return nil
	}
	p, err := u.start(ctx)
	for again := 1; err != nil && again < u.tries && service.Sleep(ctx, time.Second); again++ {
		p, err = u.start(ctx)
	}
	if err != nil {
		return fmt.Errorf("start %s again: %w", u.name, err)
	}
	u.adoptLocked(p)
	return nil
}

// adopt takes a process that runs already.
func (u *unit) adopt(p *proc.Process) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.adoptLocked(p)
}

func (u *unit) adoptLocked(p *proc.Process) {
	u.process = p
	u.watch.Go(func() {
		<-p.Ended()
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.process == p { // nobody has ended it
			u.process = nil
			u.crash(fmt.Sprintf("%s ended by itself: %s", u.name, p.Output()))
		}
	})
}

// down ends the unit with how, Kill or Stop of the process. It is no crash.
func (u *unit) down(how func(*proc.Process)) {
	u.mu.Lock()
	p := u.process
	u.process = nil
	u.mu.Unlock()
	if p == nil {
		return
	}
	how(p)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ends = append(u.ends, time.Now().UnixMilli())
}

// with does something to the process, if the unit is up.
func (u *unit) with(do func(*proc.Process) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.process == nil {
		return nil
	}
	return do(u.process)
}

// end stops the unit for good, after a last resume: a paused process does not hear that it should stop.
func (u *unit) end() {
	_ = u.with((*proc.Process).Resume) // it may have ended
	u.down((*proc.Process).Stop)
	u.watch.Wait()
}
