package agent

import (
	"context"
	"runtime/debug"
	"time"

	"kici/internal/agent/runner"
)

// spareLife is how long a spare runner is kept: an agent that is in use saves time by it, a forgotten one memory without
// it.
const spareLife = 5 * time.Minute

// spare is a runner that was started before there is a job for it, since starting one takes longer than a small job.
// No job has used it: every job has a process of its own. Its environment comes with the order to run a job.
type spare struct {
	life  time.Duration // how long it waits for a job
	taken chan struct{} // closed when it is no longer the agent's spare
	left  chan struct{} // closed when it is no longer watched

	// To be read when left is closed.
	proc  *runner.Process // nil when it could not be started
	ready bool            // it waits for an order
	dead  bool            // it has ended by itself
}

// reserveSpareLocked makes room for the runner of the next job, which may come before that runner has been started: it
// waits for it then, and none is started in vain. There is none in a sandbox, where the process lives in its job's, nor
// where no job is likely to come.
func (a *Agent) reserveSpareLocked() *spare {
	if a.spare != nil || a.spareLife <= 0 || a.draining || a.cfg.ScalerManaged || a.cfg.sandboxed() {
		return nil
	}
	a.spare = &spare{life: a.spareLife, taken: make(chan struct{}), left: make(chan struct{})}
	return a.spare
}

// runSpare starts the spare runner and watches it until it is taken, has died, or no job has wanted it for a while.
func (a *Agent) runSpare(s *spare) {
	defer close(s.left)
	proc, err := runner.Start(context.Background(), runner.Options{Dir: "/", Env: runner.Inherited(a.cfg.Environ), Command: a.cfg.RunnerCommand})
	if err != nil {
		a.log.Debug("no spare runner", "err", err) // the next job tries again, and says so
		a.takeSpare(s)
		return
	}
	s.proc = proc
	timer := time.NewTimer(s.life)
	defer timer.Stop()
	for wanted := true; wanted; {
		select {
		case <-s.taken:
			return
		case _, ok := <-proc.Messages():
			s.ready, s.dead = ok, !ok // it says nothing else before it has a job
			wanted = ok
		case <-timer.C:
			wanted = false
		}
	}
	if a.takeSpare(s) != nil {
		s.kill()
		debug.FreeOSMemory() // there is time now to give back what the jobs have used
	}
}

// spareRunner gives the spare runner to a job, with whether it waits for an order already; nil when there is none alive.
func (a *Agent) spareRunner() (proc *runner.Process, ready bool) {
	s := a.takeSpare(nil)
	if s == nil {
		return nil, false
	}
	proc = s.use()
	return proc, s.ready // which is known now
}

// takeSpare gives the spare runner, if there is one, or only if it is that one. Who takes it uses it or ends it.
func (a *Agent) takeSpare(only *spare) *spare {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.spare
	if s == nil || only != nil && s != only {
		return nil
	}
	a.spare = nil
	close(s.taken)
	return s
}

// use gives the runner to who has taken it, nil when there is none alive.
func (s *spare) use() *runner.Process {
	<-s.left
	if s.dead {
		s.kill() // what is left to do is little: it has ended
		return nil
	}
	return s.proc
}

// end ends a runner that has been taken and is not used.
func (s *spare) end() {
	<-s.left
	if s.proc != nil {
		s.kill()
	}
}

// kill ends the runner. Nothing was started in it that could refuse to go.
func (s *spare) kill() {
	_ = s.proc.Kill()
	s.proc.Wait()
}

// dropSpare ends the spare runner with the agent.
func (a *Agent) dropSpare() {
	if s := a.takeSpare(nil); s != nil {
		s.end()
	}
}
