package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"kici/internal/agent/sandbox"
)

// stderrWait is how long the end of stderr is awaited after the runner's end.
const stderrWait = 500 * time.Millisecond

// Options say how to start a runner.
type Options struct {
	Dir     string   // working directory; the job's own is in its request
	Env     []string // the whole environment: nothing is inherited
	Command []string // default: this executable with the argument "__runner"
}

// Process is the agent's handle of one job's runner. The owner reads Messages until it is closed, and calls Kill in the
// end in any case: what the job left running is ended by nothing else.
type Process struct {
	body     Body
	messages chan Message
	killed   chan struct{} // closed by the first Kill: messages that nobody takes are dropped from then on
	killOnce sync.Once
	stopCtx  func() bool
	readers  sync.WaitGroup

	sendMu sync.Mutex
	stdin  io.WriteCloser

	stderr    tail
	stderrEnd chan struct{} // closed at the end of stderr
}

// Body is where a runner lives: a group of processes of this machine, or something that a caller of Adopt has started.
type Body interface {
	// Wait waits for the end of the runner, but not of what it has started.
	Wait() (code int, signal string)
	Terminate() error
	// Kill ends the runner and everything it started, and returns when nothing is left. KillOthers spares the runner.
	Kill() error
	KillOthers() error
}

// Exit is how a runner ended.
type Exit struct {
	Code   int      // -1 when a signal ended it
	Signal string   // "killed", "terminated", …; "" when it exited by itself
	Stderr []string // its last 20 lines
}

// String says, for the error of a job, how a runner ended that gave no result. It may quote what the job has printed.
func (e Exit) String() string {
	if len(e.Stderr) > 0 {
		return "Workflow runner crashed:\n" + strings.Join(e.Stderr, "\n")
	}
	signal := e.Signal
	if signal == "" {
		signal = "null"
	}
	return fmt.Sprintf("Workflow runner exited unexpectedly (code=%d, signal=%s)", e.Code, signal)
}

// Start starts a runner in a process group of its own; it dies with this process. It waits for its execute message and
// may be started before its workspace exists. The end of ctx kills it and all it started.
func Start(ctx context.Context, o Options) (*Process, error) {
	command := o.Command
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start runner: %w", err)
		}
		command = []string{self, "__runner"}
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = o.Dir
	cmd.Env = append([]string{}, o.Env...)
	stdin, stdout, stderr, group, err := launch(cmd)
	if err != nil {
		return nil, fmt.Errorf("start runner: %w", err)
	}
	return Adopt(ctx, &processes{group, cmd}, stdin, stdout, stderr), nil
}

// Adopt makes a Process of a runner that has been started. The end of ctx kills it, as that of Start's. The streams end
// with the runner and all it started, and are closed.
func Adopt(ctx context.Context, body Body, stdin io.WriteCloser, stdout, stderr io.ReadCloser) *Process {
	p := &Process{body: body, stdin: stdin, messages: make(chan Message), killed: make(chan struct{}), stderrEnd: make(chan struct{})}
	p.readers.Go(func() { p.readMessages(stdout) })
	p.readers.Go(func() { p.readStderr(stderr) })
	p.Bind(ctx)
	return p
}

// Bind makes the end of ctx kill the runner and all it started, as that of Start's. It is for a runner that was started
// before there was a job for it, and is called once, before any Kill.
func (p *Process) Bind(ctx context.Context) {
	made := make(chan struct{})
	p.stopCtx = context.AfterFunc(ctx, func() {
		<-made
		_ = p.Kill()
	})
	close(made)
}

// Clear ends everything that the job has left running, but not the runner. It returns when nothing of it is left.
func (p *Process) Clear() error {
	if err := p.body.KillOthers(); err != nil {
		return fmt.Errorf("clear runner: %w", err)
	}
	return nil
}

// launch makes the pipes by hand: those of exec.Cmd are closed when the process ends, read or not.
func launch(cmd *exec.Cmd) (stdin, stdout, stderr *os.File, group *sandbox.Group, err error) {
	var ends []*os.File
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
			ends = append(ends, r, w)
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
		group, err = sandbox.Start(cmd)
	}
	if err != nil {
		for _, f := range ends {
			f.Close()
		}
		return nil, nil, nil, nil, err
	}
	inR.Close()
	outW.Close()
	errW.Close()
	return inW, outR, errR, group, nil
}

// processes is a runner that is a process of this machine.
type processes struct {
	*sandbox.Group
	cmd *exec.Cmd
}

// Wait implements Body.
func (b *processes) Wait() (code int, signal string) {
	_ = b.Group.Wait() // the state below says more than the error
	if status, ok := b.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		signal = status.Signal().String()
	}
	return b.cmd.ProcessState.ExitCode(), signal
}

// Terminate implements Body.
func (b *processes) Terminate() error { return b.Signal(syscall.SIGTERM) }

// Messages gives what the runner says. The channel holds nothing: while nobody takes a message the pipe is not read,
// and a runner that writes much waits. It is closed at the end of the runner's output.
func (p *Process) Messages() <-chan Message { return p.messages }

// readMessages hands the runner's lines over, one by one, until its output or the interest in it ends.
func (p *Process) readMessages(stdout io.ReadCloser) {
	defer stdout.Close()
	defer close(p.messages)
	readLines(stdout, maxLine, false, func(line []byte) bool {
		m, ok := parseMessage(line)
		if !ok {
			return true
		}
		select {
		case p.messages <- m:
			return true
		case <-p.killed:
			return false
		}
	})
}

// readStderr keeps the tail of what the runner says when it dies.
func (p *Process) readStderr(stderr io.ReadCloser) {
	defer stderr.Close()
	defer close(p.stderrEnd)
	readLines(stderr, stderrLine, true, func(line []byte) bool {
		p.stderr.add(string(line))
		return true
	})
}

// Send writes one message to the runner. It fails when the runner has gone.
func (p *Process) Send(m any) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode message to runner: %w", err)
	}
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	if _, err := p.stdin.Write(append(raw, '\n')); err != nil {
		return fmt.Errorf("send to runner: %w", err)
	}
	return nil
}

// Wait waits for the end of the runner itself. Processes that it left behind may still run, see Kill.
func (p *Process) Wait() Exit {
	var e Exit
	e.Code, e.Signal = p.body.Wait()
	// What the runner left behind may hold its stderr open, so its end is not waited for without bound.
	select {
	case <-p.stderrEnd:
	case <-time.After(stderrWait):
	}
	e.Stderr = p.stderr.all()
	return e
}

// Terminate asks the runner to end its job as Abort does. It is for a runner that no longer reads its messages.
func (p *Process) Terminate() error {
	return p.body.Terminate()
}

// Kill ends the runner and everything it started, and returns when nothing of it is left. Messages not yet taken may be
// lost. It may be called again, also after the runner has ended by itself.
func (p *Process) Kill() error {
	p.killOnce.Do(func() {
		p.stopCtx()
		close(p.killed)
	})
	if err := p.body.Kill(); err != nil {
		return fmt.Errorf("kill runner: %w", err)
	}
	p.stdin.Close()
	p.readers.Wait() // every writer of the pipes is gone
	return nil
}
