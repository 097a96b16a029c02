package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"time"

	"kici/internal/agent/runner"
)

// How long a used runner is kept.
const (
	spareLife  = 5 * time.Second // without a job; then it only costs memory
	restLimit  = 2 * time.Second // for it to get ready again
	spareTurns = 50              // jobs, so that nothing can pile up in it
)

// spare is a runner that has served a job and may serve another: starting one takes longer than a small job. It goes on
// with jobs of the same code only, see spareKey.
type spare struct {
	key   string
	turns int // jobs so far
	proc  *runner.Process
	taken chan struct{} // closed when it is no longer the agent's spare

	done   chan struct{} // closed when it has got ready, or has failed to
	usable bool          // written before done is closed
}

// spareKey names what jobs must have in common to share a runner: the commit, so that no code ever meets a process that
// other code has used, and the environment, which a process has once. A job with secrets has a process of its own, and
// so has one in a sandbox, which is the process's; "" says so.
func (j *job) spareKey(env []string) string {
	d := j.d
	if j.a.sandboxed() || d.SHA == "" || len(d.Secrets)+len(d.NamespacedSecrets)+len(d.InstallEnvSecrets) > 0 {
		return ""
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q\n", []string{d.RepoURL, d.Ref, d.SHA, j.conf.WorkflowRepoURL, j.conf.WorkflowRef, j.conf.WorkflowSHA})
	fmt.Fprintf(hash, "%q\n", env)
	return hex.EncodeToString(hash.Sum(nil))
}

// startRunner gives the job a runner: the spare one, or a new one, which gets ready while the source is fetched.
func (j *job) startRunner(o runner.Options) error {
	j.spareID = j.spareKey(o.Env)
	s := j.a.takeSpare(nil)
	if s != nil && (s.key != j.spareID || !s.use(j.ctx)) {
		j.a.closing.Go(s.end)
		s = nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s != nil {
		j.proc, j.ready, j.turns = s.proc, true, s.turns
		return nil
	}
	proc, err := runner.Start(j.ctx, o)
	j.proc = proc
	return err
}

// clear ends what the job has left running, so that nothing of it runs when its end is reported. The runner itself stays
// after its result: it has no more to say, and ending it need not hold up the report, or another job may use it.
func (j *job) clear(res outcome) *spare {
	j.mu.Lock()
	proc, polite := j.proc, !j.cancelling && j.ctx.Err() == nil
	j.mu.Unlock()
	if proc == nil || !polite || res.result == nil || proc.Clear() != nil {
		j.tearDown()
		return nil
	}
	if !j.again() {
		return nil
	}
	return &spare{key: j.spareID, turns: j.turns + 1, proc: proc, taken: make(chan struct{}), done: make(chan struct{})}
}

// again tells whether the runner should stay for another job.
func (j *job) again() bool { return j.spareID != "" && j.turns+1 < spareTurns }

// rest waits until the runner of the ended job is ready for the next. It must be called before the job's context ends.
func (j *job) rest(s *spare) {
	defer close(s.done)
	ctx, cancel := context.WithTimeout(j.ctx, restLimit)
	defer cancel()
	close(j.silence) // no message of this job may reach the next
	select {
	case <-j.fed:
	case <-ctx.Done():
	}
	if err := s.proc.Rest(ctx); err != nil {
		j.log.Debug("the runner is not used again", "err", err)
		return
	}
	s.usable = true
}

// keepSpare ends a spare runner that no job has wanted for a while.
func (a *Agent) keepSpare(s *spare) {
	timer := time.NewTimer(a.spareLife)
	defer timer.Stop()
	if s.usable {
		select {
		case <-timer.C:
		case <-s.taken:
			return
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

// use waits until the runner has got ready and binds it to its next job. It is false when it cannot be used.
func (s *spare) use(ctx context.Context) bool {
	<-s.done
	if !s.usable || !s.proc.Alive() {
		return false
	}
	s.proc.Begin(ctx)
	return true
}

// end ends the runner once it is known what has become of it. What cannot be ended was named when its job was cleared.
func (s *spare) end() {
	<-s.done
	_ = s.proc.Kill()
	s.proc.Wait()
}

// dropSpare ends the spare runner with the agent.
func (a *Agent) dropSpare() {
	if s := a.takeSpare(nil); s != nil {
		s.end()
	}
}
