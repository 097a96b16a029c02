package servertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kici/internal/server"
	"kici/internal/server/store/storetest"
)

// settingsVariable tells the test binary to be a server with the settings that it holds.
const settingsVariable = "KICI_SERVERTEST_SETTINGS"

// Main is the TestMain of a package that starts server processes: they are its own test binary, executed again.
func Main(m *testing.M) {
	if raw := os.Getenv(settingsVariable); raw != "" {
		if err := serve(raw); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	storetest.Main(m)
}

// serve is the server process: it prints its address and works until it is told to end, or its parent is gone.
func serve(raw string) error {
	var settings server.Settings
	if err := json.Unmarshal([]byte(raw), &settings); err != nil {
		return fmt.Errorf("decode settings: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := server.Open(ctx, settings, log, io.Discard)
	if err != nil {
		return err
	}
	if err := s.Start(context.Background()); err != nil {
		return err
	}
	fmt.Println(s.URL())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the parent
		stop()
	}()
	<-ctx.Done()
	return s.Stop()
}

// Process is a server in a process of its own.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  *lines
	once sync.Once
}

// Launch starts a server process in this home and returns when it serves. It is killed when the test ends; its log is
// shown when the test fails.
func (h *Home) Launch(t testing.TB) *Process {
	t.Helper()
	p, line, err := h.launch(t)
	must(t, err)
	if line == "" {
		p.Kill()
		t.Fatalf("the server ended before it served:\n%s", p.log)
	}
	h.setURL(line)
	return p
}

// LaunchRefused starts a server process that is expected to refuse, and gives what it said.
func (h *Home) LaunchRefused(t testing.TB) string {
	t.Helper()
	p, line, err := h.launch(t)
	must(t, err)
	p.Kill()
	if line != "" {
		t.Fatalf("a server was expected to refuse and serves at %s", line)
	}
	return p.log.String()
}

func (h *Home) launch(t testing.TB) (p *Process, line string, err error) {
	settings, err := json.Marshal(h.Settings)
	if err != nil {
		return nil, "", err
	}
	p = &Process{t: t, cmd: exec.Command(os.Args[0]), log: &lines{}}
	p.cmd.Env = append(os.Environ(), settingsVariable+"="+string(settings))
	p.cmd.Stderr = p.log
	if _, err := p.cmd.StdinPipe(); err != nil { // kept open: its end is the end of this process
		return nil, "", err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, "", err
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of server process %d:\n%s", p.cmd.Process.Pid, p.log)
		}
	})
	line, err = bufio.NewReader(out).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return p, strings.TrimSpace(line), err
}

// Kill ends the process as a crash of the machine's kernel would, with no chance to say goodbye, and returns when it is
// gone. Calls after the first do nothing.
func (p *Process) Kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()         // the error says that it was killed
	})
}

// Terminate asks the process to end, waits for it, and gives how it ended.
func (p *Process) Terminate() (err error) {
	p.once.Do(func() {
		err = errors.Join(p.cmd.Process.Signal(syscall.SIGTERM), p.cmd.Wait())
	})
	return err
}

// keptLog bounds what is kept of a process's log; the oldest goes first.
const keptLog = 256 << 10

// lines keeps the end of a log.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 2*keptLog {
		l.text = append([]byte(nil), l.text[len(l.text)-keptLog:]...)
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
