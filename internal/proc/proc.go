// Package proc runs kici's own programs as processes of this machine, for the demo, the measures and tests that need a
// process which can be killed.
package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// startTime bounds how long a program may take until it answers.
const startTime = 20 * time.Second

// tailBytes is how much of a program's output is kept for the error that says why it ended.
const tailBytes = 16 << 10

// Process is a running program.
type Process struct {
	Name  string
	cmd   *exec.Cmd
	tail  *tail
	ended chan struct{} // closed once it has ended
	err   error         // how; read after ended
}

// Command says what to start.
type Command struct {
	Name    string // for people
	Args    []string
	Environ []string // on top of the least that a program needs
	// Log is a file to which all output is appended. "" keeps the end of it only, as is kept in any case.
	Log string
}

// Start runs this executable with the arguments and the least environment: what a shell needs, and Environ on top. The
// program ends with this process, even when this one is killed.
func Start(c Command) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's file: %w", err)
	}
	p := &Process{Name: c.Name, cmd: exec.Command(self, c.Args...), tail: &tail{}, ended: make(chan struct{})}
	if c.Log != "" {
		if p.tail.file, err = os.OpenFile(c.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return nil, fmt.Errorf("open the log of %s: %w", c.Name, err)
		}
	}
	p.cmd.Env = append(least(os.Environ()), c.Environ...)
	p.cmd.Stdout, p.cmd.Stderr = p.tail, p.tail
	if err := startBound(p.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", c.Name, err), p.tail.close())
	}
	go func() {
		p.err = p.cmd.Wait()
		p.err = errors.Join(p.err, p.tail.close())
		close(p.ended)
	}()
	return p, nil
}

// inherited are the variables that programs need to run other programs.
var inherited = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "SHELL", "SystemRoot", "TEMP", "TMP"}

func least(environ []string) []string {
	var out []string
	for _, entry := range environ {
		for _, name := range inherited {
			if strings.HasPrefix(entry, name+"=") {
				out = append(out, entry)
			}
		}
	}
	return out
}

// PID is the process' number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed once the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends the program without asking, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// Stop asks the program to end and waits, for ten seconds before it is killed.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// Output is the end of what the program wrote.
func (p *Process) Output() string { return p.tail.String() }

// died is the error of a program that ended by itself.
func (p *Process) died() error {
	return fmt.Errorf("%s ended by itself (%v):\n%s", p.Name, p.err, p.Output())
}

// Server is a server process with its data folder.
type Server struct {
	*Process
	Data string
	URL  string
}

// ServerOptions say how to run a server.
type ServerOptions struct {
	Data    string // its folder
	Port    string // "0" is any free one
	Environ []string
	Log     string // see Command
}

// StartServer runs kici server on a loopback port, and waits until it answers. What a server that was killed left behind
// of its address is removed first: it would be taken for the answer.
func StartServer(ctx context.Context, o ServerOptions) (*Server, error) {
	if err := os.Remove(filepath.Join(o.Data, "server.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	p, err := Start(Command{Name: "kici server", Args: []string{"server", "--data", o.Data, "--port", o.Port}, Environ: o.Environ, Log: o.Log})
	if err != nil {
		return nil, err
	}
	s := &Server{Process: p, Data: o.Data}
	err = p.await(ctx, func() (bool, error) {
		s.URL, err = address(o.Data)
		return s.URL != "", err
	})
	if err != nil {
		p.Kill()
		return nil, err
	}
	return s, nil
}

// address reads where the server of a data folder listens, "" while it does not.
func address(data string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(data, "server.json"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var body struct{ URL string }
	return body.URL, json.Unmarshal(raw, &body)
}

// await asks until the answer is yes, the program ends, or startTime has passed.
func (p *Process) await(ctx context.Context, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		select {
		case <-p.ended:
			return p.died()
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w\n%s", p.Name, ctx.Err(), p.Output())
		case <-tick.C:
		}
	}
}

// AgentURL is where agents of the server connect to.
func (s *Server) AgentURL() string { return "ws" + strings.TrimPrefix(s.URL, "http") + "/ws" }

// AgentOptions say how to run an agent.
type AgentOptions struct {
	URL     string // of the server's endpoint for agents, ws://…/ws
	ID      string
	Token   string
	TempDir string // also of its cache
	Labels  []string
	Log     string // see Command
}

// StartAgent runs kici agent. It does not wait for its registration.
func StartAgent(o AgentOptions) (*Process, error) {
	return Start(Command{Name: "kici agent " + o.ID, Args: []string{"agent"}, Log: o.Log, Environ: []string{
		"KICI_ORCHESTRATOR_URL=" + o.URL, "KICI_AGENT_TOKEN=" + o.Token, "KICI_AGENT_ID=" + o.ID, "KICI_PORT=0",
		"KICI_LABELS=" + strings.Join(o.Labels, ","), "TMPDIR=" + o.TempDir, "XDG_CACHE_HOME=" + filepath.Join(o.TempDir, "cache")}})
}

// tail keeps the last bytes written to it.
type tail struct {
	file *os.File // takes everything; nil when nobody wants that

	mu  sync.Mutex
	buf bytes.Buffer
}

// Write keeps the end.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		_, _ = t.file.Write(p) // a full disk must not end the program
	}
	t.buf.Write(p)
	if over := t.buf.Len() - tailBytes; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

// String is what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.buf.String())
}

// close is called once nobody writes any more.
func (t *tail) close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}
