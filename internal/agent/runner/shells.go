package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sandboxMark begins the variables by which the sandbox knows its processes again. Steps do not see them, commands
	// inherit them.
	sandboxMark = "_KICI_"

	maxCapture = 16 << 20  // of one stream of one command; the log gets all of it all the same
	maxOutLine = 1 << 20   // a longer line of output becomes several
	maxScript  = 100 << 10 // a longer script does not fit into an argument and goes through a file

	// lingering is how long a stream must stay silent after its command's end to be given up, when something that the
	// command left in the background holds it open.
	lingering = 300 * time.Millisecond
)

// spawnSpec is a command that a step runs.
type spawnSpec struct {
	ID        string            `json:"id"`     // chosen by the script, for signal
	Script    string            `json:"script"` // text for the shell
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env"`
	Stdin     *string           `json:"stdin"`
	StepIndex int               `json:"stepIndex"` // whose log gets the output
	Quiet     bool              `json:"quiet"`     // the log gets nothing
}

// spawned is how a command ended. ExitCode is nil when a signal ended it.
type spawned struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  *int   `json:"exitCode"`
	Signal    string `json:"signal,omitempty"`
	Truncated bool   `json:"truncated,omitempty"` // a stream was longer than maxCapture
}

// signalSpec ends a command: the signal goes to its process group, and SIGKILL after GraceMs.
type signalSpec struct {
	ID      string `json:"id"`
	Signal  string `json:"signal"` // "SIGTERM", …
	GraceMs int64  `json:"graceMs"`
}

// shells runs the commands of steps.
type shells struct {
	out   *outgoing
	shell func() (shell, error)

	mu      sync.Mutex
	closed  bool
	running map[string]*command
	readers sync.WaitGroup
}

// command is a running one.
type command struct {
	cmd   *exec.Cmd
	kill  *time.Timer
	ended bool // its pid may belong to another
}

// newShells looks for the shell only when the first command needs it.
func newShells(out *outgoing) *shells {
	return &shells{out: out, running: map[string]*command{}, shell: sync.OnceValues(findShell)}
}

// shell is the program that runs the scripts, and what makes it strict.
type shell struct{ path, prefix string }

// findShell takes bash. A machine without it (a small container) has sh, which knows no pipefail.
func findShell() (shell, error) {
	if path, err := exec.LookPath("bash"); err == nil {
		return shell{path, "set -euo pipefail;"}, nil
	}
	if path, err := exec.LookPath("sh"); err == nil {
		return shell{path, "set -eu;"}, nil
	}
	return shell{}, errors.New("neither bash nor sh is on PATH")
}

// run starts the command and gives its end. The end of ctx kills it.
func (s *shells) run(ctx context.Context, spec spawnSpec) (spawned, error) {
	cmd, cleanup, err := s.prepare(spec)
	if err != nil {
		return spawned{}, fmt.Errorf("start command: %w", err)
	}
	defer cleanup()
	stdout := &capture{out: s.out, step: spec.StepIndex, quiet: spec.Quiet}
	stderr := &capture{out: s.out, step: spec.StepIndex, quiet: spec.Quiet}
	outR, outW, err1 := os.Pipe()
	errR, errW, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		closeAll(outR, outW, errR, errW)
		return spawned{}, fmt.Errorf("start command: %w", err)
	}
	cmd.Stdout, cmd.Stderr = outW, errW
	ended, err := s.start(spec.ID, cmd)
	closeAll(outW, errW)
	if err != nil {
		closeAll(outR, errR)
		return spawned{}, fmt.Errorf("start command: %w", err)
	}
	read := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() { stdout.read(outR) })
	both.Go(func() { stderr.read(errR) })
	s.readers.Go(func() { both.Wait(); close(read) })
	select {
	case <-ended:
	case <-ctx.Done():
		_ = s.signal(signalSpec{ID: spec.ID, Signal: "SIGKILL"})
		<-ended
	}
	s.forget(spec.ID)
	awaitOutput(read, stdout, stderr)
	return result(cmd.ProcessState, stdout, stderr), nil
}

// awaitOutput waits for the end of an ended command's streams, or until they are silent.
func awaitOutput(read <-chan struct{}, stdout, stderr *capture) {
	for before := int64(-1); ; {
		select {
		case <-read:
			return
		case <-time.After(lingering):
		}
		// A reader that is at work, or was, may have more to come: the log may be what holds it up.
		reads := stdout.reads.Load() + stderr.reads.Load()
		if reads == before && !stdout.busy.Load() && !stderr.busy.Load() {
			return
		}
		before = reads
	}
}

// prepare makes the shell command of a spec; cleanup removes the file of a long script.
func (s *shells) prepare(spec spawnSpec) (*exec.Cmd, func(), error) {
	shell, err := s.shell()
	if err != nil {
		return nil, nil, err
	}
	script, cleanup := shell.prefix+spec.Script, func() {}
	args := []string{"-c", script}
	if len(script) > maxScript {
		file, err := os.CreateTemp("", "kici-script-*")
		if err != nil {
			return nil, nil, err
		}
		cleanup = func() { os.Remove(file.Name()) }
		_, err = file.WriteString(script)
		if err := errors.Join(err, file.Close()); err != nil {
			cleanup()
			return nil, nil, err
		}
		args = []string{file.Name()}
	}
	cmd := exec.Command(shell.path, args...)
	cmd.Dir = spec.Cwd
	cmd.WaitDelay = lingering // for a background process that neither reads nor closes its stdin
	cmd.Env = environment(spec.Env)
	if spec.Stdin != nil {
		cmd.Stdin = strings.NewReader(*spec.Stdin)
	}
	return cmd, cleanup, nil
}

// environment is the step's, and the marks of the sandbox, without which it would not find the command again.
func environment(env map[string]string) []string {
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	for _, pair := range os.Environ() {
		if strings.HasPrefix(pair, sandboxMark) {
			list = append(list, pair)
		}
	}
	slices.Sort(list)
	return list
}

// start starts cmd in a process group of its own; the channel is closed when it has ended. The thread that starts it
// stays with it, since a command is killed with the thread of its parent (see leader).
func (s *shells) start(id string, cmd *exec.Cmd) (<-chan struct{}, error) {
	leader(cmd)
	started, ended := make(chan error, 1), make(chan struct{})
	s.readers.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			started <- errors.New("the job has ended")
			return
		}
		err := cmd.Start()
		c := &command{cmd: cmd}
		if err == nil {
			s.running[id] = c
		}
		s.mu.Unlock()
		started <- err
		if err != nil {
			return
		}
		if waitExit(cmd.Process.Pid) { // its pid is not given away until it is reaped below
			s.ended(c)
		}
		_ = cmd.Wait() // the state says what the error says
		s.ended(c)
		close(ended)
	})
	return ended, <-started
}

// ended notes that the pid is no longer the command's.
func (s *shells) ended(c *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ended = true
}

// forget drops a command whose end has been seen, and the threat that hung over it.
func (s *shells) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.running[id]; c != nil {
		if c.kill != nil {
			c.kill.Stop()
		}
		delete(s.running, id)
	}
}

// signal sends the signal to a command's group. One that has ended is no error.
func (s *shells) signal(spec signalSpec) error {
	sig := unix.SignalNum(spec.Signal)
	if sig == 0 {
		return fmt.Errorf("unknown signal %q", spec.Signal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.running[spec.ID]
	if c == nil || c.ended {
		return nil
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, sig) // ESRCH: the group has ended this moment
	if spec.GraceMs > 0 && c.kill == nil {
		c.kill = time.AfterFunc(time.Duration(spec.GraceMs)*time.Millisecond, func() {
			_ = s.signal(signalSpec{ID: spec.ID, Signal: "SIGKILL"})
		})
	}
	return nil
}

// close kills what still runs and waits for it, but not for output that something out of reach holds open.
func (s *shells) close() {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.running {
		if !c.ended {
			_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		}
	}
	s.mu.Unlock()
	gone := make(chan struct{})
	go func() { s.readers.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(lingering):
	}
}

// result reads the end of a command in the shell's terms.
func result(state *os.ProcessState, stdout, stderr *capture) spawned {
	var r spawned
	var cutOut, cutErr bool
	r.Stdout, cutOut = stdout.text()
	r.Stderr, cutErr = stderr.text()
	r.Truncated = cutOut || cutErr
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Signal = unix.SignalName(status.Signal())
		return r
	}
	code := state.ExitCode()
	r.ExitCode = &code
	return r
}

// capture reads one stream of a command: it keeps the text and streams its lines to the step's log.
type capture struct {
	out   *outgoing
	step  int
	quiet bool

	reads atomic.Int64 // how often something came
	busy  atomic.Bool  // something came and is not yet taken

	mu   sync.Mutex
	kept []byte
	cut  bool
	line []byte // begun and not ended; only the reader uses it
}

// read takes the stream to its end. While the agent does not read the log, the stream is not read either and the
// command waits: output is never dropped here.
func (c *capture) read(r *os.File) {
	defer r.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		c.busy.Store(true)
		c.reads.Add(1)
		c.take(buf[:n])
		c.busy.Store(false)
		if err != nil { // io.EOF, or the pipe is no more
			if len(c.line) > 0 && !c.quiet {
				c.out.log(c.step, string(c.line))
			}
			return
		}
	}
}

// take keeps a chunk and logs the lines that it completes.
func (c *capture) take(chunk []byte) {
	c.mu.Lock()
	room := maxCapture - len(c.kept)
	c.kept = append(c.kept, chunk[:min(room, len(chunk))]...)
	c.cut = c.cut || len(chunk) > room
	c.mu.Unlock()
	if c.quiet {
		return
	}
	var lines []string
	for {
		at := bytes.IndexByte(chunk, '\n')
		if at < 0 {
			break
		}
		c.line = append(c.line, chunk[:at]...)
		lines = append(lines, string(bytes.TrimSuffix(c.line, []byte("\r"))))
		c.line, chunk = c.line[:0], chunk[at+1:]
	}
	if c.line = append(c.line, chunk...); len(c.line) > maxOutLine {
		lines = append(lines, string(c.line))
		c.line = c.line[:0]
	}
	if len(lines) > 0 {
		c.out.log(c.step, lines...)
	}
}

// text gives what was kept so far, also while something in the background still writes.
func (c *capture) text() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ToValidUTF8(string(c.kept), "\ufffd"), c.cut
}

func closeAll(files ...io.Closer) {
	for _, f := range files {
		if f != nil && f != (*os.File)(nil) {
			f.Close()
		}
	}
}
