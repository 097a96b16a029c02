package agent

import (
	"context"
	"runtime/debug"
	"slices"
	"time"

	"kici/internal/agent/runner"
)

// spareLife is how long a spare runner is kept: an agent at work saves time by it, an idle one memory without it.
const spareLife = 10 * time.Second

// spare is a runner that was started before there is a job for it, since starting one takes longer than a small job.
// No job has used it: every job has a process of its own.
type spare struct {
	env   []string // which a process has once
	proc  *runner.Process
	taken chan struct{} // closed when it is no longer the agent's spare
	left  chan struct{} // closed when it is no longer watched
	ready bool          // it waits for an order; to be read when left is closed
}

// startRunner gives the job a runner: the spare one when it fits, else a new one, which gets ready while the source is
// fetched.
func (j *job) startRunner(o runner.Options) (*runner.Process, error) {
	if s := j.a.takeSpare(nil); s != nil {
		<-s.left
		if slices.Equal(s.env, o.Env) {
			s.proc.Bind(j.ctx)
			j.setRunner(s.proc, s.ready)
			return s.proc, nil
		}
		j.a.closing.Go(s.end)
	}
	proc, err := runner.Start(j.ctx, o)
	if err == nil {
		j.setRunner(proc, false)
	}
	return proc, err
}

func (j *job) setRunner(proc *runner.Process, ready bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.proc, j.ready = proc, ready
}

// clear ends what the job has left running, so that nothing of it runs when its end is reported. A runner that has given
// its result has no more to say, and its end need not hold up the report.
func (j *job) clear(res outcome) {
	j.mu.Lock()
	proc, polite := j.proc, !j.cancelling && j.ctx.Err() == nil
	j.mu.Unlock()
	if proc == nil || !polite || res.result == nil || proc.Clear() != nil {
		j.tearDown()
	}
}

// prepareSpare starts a runner for the next job, which is likely to want the same environment. In a sandbox there is
// none: the process lives in its job's.
func (a *Agent) prepareSpare(env []string) {
	if env == nil || a.sandboxed() || !a.wantsSpare() {
		return
	}
	proc, err := runner.Start(context.Background(), runner.Options{Dir: "/", Env: env, Command: a.cfg.RunnerCommand})
	if err != nil {
		a.log.Debug("no spare runner", "err", err) // the next job tries again, and says so
		return
	}
	s := &spare{env: env, proc: proc, taken: make(chan struct{}), left: make(chan struct{})}
	a.mu.Lock()
	wanted := a.wantsSpareLocked()
	if wanted {
		a.spare = s
	}
	a.mu.Unlock()
	if !wanted {
		s.end()
		return
	}
	a.closing.Go(func() { a.keepSpare(s) })
}

func (a *Agent) wantsSpare() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wantsSpareLocked()
}

// wantsSpareLocked is false while a job runs, which has a runner, and when no job will come.
func (a *Agent) wantsSpareLocked() bool { return a.job == nil && a.spare == nil && !a.draining }

// keepSpare watches the spare runner until it is taken, has died, or no job has wanted it for a while.
func (a *Agent) keepSpare(s *spare) {
	defer close(s.left)
	timer := time.NewTimer(a.spareLife)
	defer timer.Stop()
	for alive := true; alive; {
		select {
		case <-s.taken:
			return
		case _, alive = <-s.proc.Messages():
			s.ready = alive // it says nothing else before it has a job
		case <-timer.C:
			alive = false
		}
	}
	if a.takeSpare(s) != nil {
		s.end()
		debug.FreeOSMemory() // there is time now to give back what the jobs have used
	}
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

// end ends the runner. Nothing was started in it that could refuse to go.
func (s *spare) end() {
	_ = s.proc.Kill()
	s.proc.Wait()
}

// dropSpare ends the spare runner with the agent.
func (a *Agent) dropSpare() {
	if s := a.takeSpare(nil); s != nil {
		s.end()
	}
}
