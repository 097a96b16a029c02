package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// sandboxMark begins the variables by which the sandbox knows its processes again. Steps do not see them, commands
	// inherit them.
	sandboxMark = "_KICI_"

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
	Input     []byte            `json:"input"`     // instead of Stdin
	StepIndex int               `json:"stepIndex"` // whose log gets the output
	Quiet     bool              `json:"quiet"`     // the log gets nothing

	StdinPipe string   `json:"stdinPipe"` // a pipe from which it reads, see pipes
	Tees      []string `json:"tees"`      // pipes that get its stdout, too
	Files     []string `json:"files"`     // files that get its stdout, too
	Piped     bool     `json:"piped"`     // its stdout is for those alone and not for the log
	Stdout    string   `json:"stdout"`    // "ignore", "inherit" (for the log alone); "" is for the log and the script
	Stderr    string   `json:"stderr"`
}

// spawned is how a command ended. ExitCode is nil when a signal ended it.
type spawned struct {
	Stdout    string `json:"stdout"`
	Bytes     []byte `json:"bytes,omitempty"` // of stdout, where it is no text
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
	pipes *pipes

	mu      sync.Mutex
	closed  bool
	running map[string]*command
	early   map[string]signalSpec // of commands that are not running yet: calls of the script run side by side
	readers sync.WaitGroup
}

// maxEarly bounds the signals that wait for their command; more can only be leftovers for commands that had just ended.
const maxEarly = 1000

// command is a running one.
type command struct {
	cmd    *exec.Cmd
	stdout *capture // nil for what is no command of a step
	kill   *time.Timer
	ended  bool // its pid may belong to another
}

// newShells looks for the shell only when the first command needs it.
func newShells(out *outgoing) *shells {
	return &shells{out: out, running: map[string]*command{}, early: map[string]signalSpec{}, pipes: newPipes(), shell: sync.OnceValues(findShell)}
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
		s.dropTees(spec)
		return spawned{}, fmt.Errorf("start command: %w", err)
	}
	defer cleanup()
	stdout := newCapture(s.out, spec, spec.Stdout)
	stdout.quiet = stdout.quiet || spec.Piped
	stderr := newCapture(s.out, spec, spec.Stderr)
	outR, outW, err1 := os.Pipe()
	errR, errW, err2 := os.Pipe()
	err = errors.Join(err1, err2, s.connect(spec, stdout))
	if err != nil {
		closeAll(outR, outW, errR, errW)
		stdout.closeSinks()
		return spawned{}, fmt.Errorf("start command: %w", err)
	}
	cmd.Stdout, cmd.Stderr = outW, errW
	ended, err := s.start(spec.ID, cmd, stdout)
	closeAll(outW, errW)
	if err != nil {
		closeAll(outR, errR)
		stdout.closeSinks()
		return spawned{}, fmt.Errorf("start command: %w", startError(spec.Cwd, err))
	}
	if f, ok := cmd.Stdin.(*os.File); ok {
		f.Close() // the command has it now, and must be the only one: its end is what the writer waits for
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
	awaitOutput(read, stdout, stderr)
	s.forget(spec.ID)
	return result(cmd.ProcessState, stdout, stderr), nil
}

// startError tells a folder that is not there from a shell that is not: the system's error names the shell in both cases.
func startError(cwd string, err error) error {
	info, missing := os.Stat(cwd)
	switch {
	case missing != nil:
		return fmt.Errorf("cwd: %w", missing)
	case !info.IsDir():
		return fmt.Errorf("cwd: %s is not a folder", cwd)
	}
	return err
}

// connect opens what the command's stdout goes to beside the log.
func (s *shells) connect(spec spawnSpec, stdout *capture) error {
	for _, name := range spec.Tees {
		w, err := s.pipes.writer(name)
		if err != nil {
			return err
		}
		stdout.sinks = append(stdout.sinks, w)
	}
	for _, name := range spec.Files {
		if !filepath.IsAbs(name) {
			name = filepath.Join(spec.Cwd, name)
		}
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		stdout.sinks = append(stdout.sinks, f)
	}
	stdout.piped = spec.Piped
	return nil
}

// dropTees ends the pipes of a command that cannot be started, or their readers would wait for ever.
func (s *shells) dropTees(spec spawnSpec) {
	for _, name := range spec.Tees {
		if w, err := s.pipes.writer(name); err == nil {
			w.Close()
		}
	}
}

// teeSpec gives the stdout of a command that is at work to one more pipe, from its beginning.
type teeSpec struct {
	ID   string `json:"id"`
	Pipe string `json:"pipe"`
}

// tee reports whether the command is still at work.
func (s *shells) tee(spec teeSpec) (bool, error) {
	s.mu.Lock()
	c := s.running[spec.ID]
	s.mu.Unlock()
	if c == nil || c.stdout == nil {
		return false, nil
	}
	w, err := s.pipes.writer(spec.Pipe)
	if err == nil {
		c.stdout.attach(w)
	}
	return err == nil, err
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
	switch {
	case spec.StdinPipe != "":
		r, err := s.pipes.reader(spec.StdinPipe)
		if err != nil {
			cleanup()
			return nil, nil, err
		}
		cmd.Stdin = r
		cleanup = func(remove func()) func() { return func() { remove(); r.Close() } }(cleanup)
	case spec.Input != nil:
		cmd.Stdin = bytes.NewReader(spec.Input)
	case spec.Stdin != nil:
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
func (s *shells) start(id string, cmd *exec.Cmd, stdout *capture) (<-chan struct{}, error) {
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
		c := &command{cmd: cmd, stdout: stdout}
		if err == nil {
			s.running[id] = c
			if early, ok := s.early[id]; ok {
				s.signalLocked(c, early)
			}
		}
		delete(s.early, id)
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

// signal sends the signal to a command's group, at its start if it has not been started yet. One that has ended is no
// error.
func (s *shells) signal(spec signalSpec) error {
	if _, ok := signalNamed(spec.Signal); !ok {
		return fmt.Errorf("unknown signal %q", spec.Signal)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.running[spec.ID]; c != nil {
		s.signalLocked(c, spec)
		return nil
	}
	if len(s.early) >= maxEarly {
		clear(s.early)
	}
	s.early[spec.ID] = spec
	return nil
}

func (s *shells) signalLocked(c *command, spec signalSpec) {
	if c.ended {
		return
	}
	sig, _ := signalNamed(spec.Signal) // it is known: signal has looked
	signalGroup(c.cmd.Process, sig)
	if spec.GraceMs > 0 && c.kill == nil {
		c.kill = time.AfterFunc(time.Duration(spec.GraceMs)*time.Millisecond, func() {
			_ = s.signal(signalSpec{ID: spec.ID, Signal: "SIGKILL"})
		})
	}
}

// close kills what still runs and waits for it, but not for output that something out of reach holds open.
func (s *shells) close() {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.running {
		if !c.ended {
			signalGroup(c.cmd.Process, syscall.SIGKILL)
		}
	}
	s.mu.Unlock()
	s.pipes.close()
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
	r.Stdout, r.Bytes, cutOut = stdout.text()
	r.Stderr, _, cutErr = stderr.text()
	r.Truncated = cutOut || cutErr
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Signal = signalName(status.Signal())
		return r
	}
	code := state.ExitCode()
	r.ExitCode = &code
	return r
}

func closeAll(files ...io.Closer) {
	for _, f := range files {
		if f != nil && f != (*os.File)(nil) {
			f.Close()
		}
	}
}
