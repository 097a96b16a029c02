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

// Start runs this executable with the arguments and the least environment: what a shell needs, and extra on top. The
// program ends with this process, even when this one is killed.
func Start(name string, args []string, extra ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's file: %w", err)
	}
	p := &Process{Name: name, cmd: exec.Command(self, args...), tail: &tail{}, ended: make(chan struct{})}
	p.cmd.Env = append(least(os.Environ()), extra...)
	p.cmd.Stdout, p.cmd.Stderr = p.tail, p.tail
	if err := startBound(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
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

// StartServer runs kici server on a free loopback port with the given data folder, and waits until it answers.
func StartServer(ctx context.Context, data string, extra ...string) (*Server, error) {
	return StartServerOn(ctx, data, "0", extra...)
}

// StartServerOn is StartServer on a port of choice, for one that must be found again where it was. What a server that
// was killed left behind of its address is removed first: it would be taken for the answer.
func StartServerOn(ctx context.Context, data, port string, extra ...string) (*Server, error) {
	if err := os.Remove(filepath.Join(data, "server.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	p, err := Start("kici server", []string{"server", "--data", data, "--port", port}, extra...)
	if err != nil {
		return nil, err
	}
	s := &Server{Process: p, Data: data}
	err = p.await(ctx, func() (bool, error) {
		s.URL, err = address(data)
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

// StartAgent runs kici agent against a server.
func StartAgent(s *Server, id, token, tempDir string, labels ...string) (*Process, error) {
	return Start("kici agent "+id, []string{"agent"},
		"KICI_ORCHESTRATOR_URL="+s.AgentURL(), "KICI_AGENT_TOKEN="+token, "KICI_AGENT_ID="+id, "KICI_PORT=0",
		"KICI_LABELS="+strings.Join(labels, ","), "TMPDIR="+tempDir, "XDG_CACHE_HOME="+filepath.Join(tempDir, "cache"))
}

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write keeps the end.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
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
