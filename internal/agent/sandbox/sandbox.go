// Package sandbox starts a process together with everything it will ever start, and ends all of it.
//
// A step may leave daemons behind, leave its process group with setsid, or ignore every polite signal. A Group knows
// its descendants all the same, so that a cancelled job leaves nothing running on the machine.
package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// killBound is how long Kill waits for the members to be gone. A killed process lingers only while the kernel has it
// in an uninterruptible wait (a dead network file system); such a one is named in the error instead of waited for.
const killBound = 5 * time.Second

// Group is a started process and all its descendants. The caller must call Wait, as with exec.Cmd, and Kill when it has
// no more use for the group, also after a clean exit, since a process may leave others behind. All methods are safe for
// concurrent use.
type Group struct {
	cmd   *exec.Cmd
	track tracker

	wait   sync.Once
	waited atomic.Bool // the pid is no longer ours
	err    error       // result of the wait; read only after it
}

// tracker finds and ends the members of one group; each platform has its own.
type tracker interface {
	// prepare sets up cmd so that its descendants can be found later.
	prepare(cmd *exec.Cmd) error
	// started tells the tracker the pid, or 0 when the start failed.
	started(pid int)
	// exited tells it that the first process has been waited for; others may live on.
	exited()
	// kill sends SIGKILL to every member but spare, 0 for none, and waits until none other is left or the bound has
	// passed.
	kill(bound time.Duration, spare int) error
}

// Start starts cmd as the leader of its own session and process group. When this process dies, the leader is killed by
// the kernel where that is possible. Start changes cmd.SysProcAttr and may add a variable to cmd.Env. Pipes made by
// cmd.StdoutPipe and the like work as usual: read them to their end, then call Wait.
func Start(cmd *exec.Cmd) (*Group, error) {
	return start(cmd, newTracker())
}

func start(cmd *exec.Cmd, track tracker) (*Group, error) {
	if err := track.prepare(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	started := make(chan error, 1)
	go own(cmd, track, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return &Group{cmd: cmd, track: track}, nil
}

// own starts the process and stays on its locked thread until it has ended: the parent-death signal is bound to the
// thread that forked, so that thread has to live as long as the child, or the child is killed when the runtime drops
// the thread. It ends with the child, which Kill brings about.
func own(cmd *exec.Cmd, track tracker, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		track.started(0)
		started <- err
		return
	}
	pid := cmd.Process.Pid
	track.started(pid)
	started <- nil
	awaitExit(pid)
}

// Pid is the process id of the leader, which is also the id of its process group and session.
func (g *Group) Pid() int { return g.cmd.Process.Pid }

// Signal sends sig to every process that is still in the leader's process group. A group that has ended is no error. On
// Windows there is no polite signal: SIGTERM ends the leader at once.
func (g *Group) Signal(sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal group: unsupported signal %v", sig)
	}
	if g.waited.Load() {
		return nil // the pid may belong to a stranger by now
	}
	if err := signalGroup(g.Pid(), s); err != nil {
		return fmt.Errorf("signal group %d: %w", g.Pid(), err)
	}
	return nil
}

// Kill sends SIGKILL to every member and every descendant, also to those that left the process group, and returns when
// none is left. It gives up after five seconds with an error that names the pids. It may be called more than once.
func (g *Group) Kill() error {
	if err := g.track.kill(killBound, 0); err != nil {
		return fmt.Errorf("kill group %d: %w", g.Pid(), err)
	}
	return nil
}

// KillOthers is Kill for all but the leader, which lives on and may go on starting processes. Where members cannot be
// told apart, it is an error.
func (g *Group) KillOthers() error {
	if err := g.track.kill(killBound, g.Pid()); err != nil {
		return fmt.Errorf("kill descendants of %d: %w", g.Pid(), err)
	}
	return nil
}

// Wait waits for the leader and returns what exec.Cmd.Wait returned, each time it is called. Descendants may still run:
// see Kill.
func (g *Group) Wait() error {
	g.wait.Do(func() {
		g.err = g.cmd.Wait()
		g.waited.Store(true)
		g.track.exited()
	})
	return g.err
}
