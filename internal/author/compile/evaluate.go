package compile

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"kici/internal/author/bundle"
	"kici/internal/kit/script"
)

// loadTimeout bounds the evaluation of one workflow file: one that loops for ever must not hang a terminal. Tests take less.
var loadTimeout = 20 * time.Second

const (
	// loadMemory bounds the engine's heap for one file.
	loadMemory = 512 << 20
	// answerBytes bounds what the program says about one file. A server takes lock files of 5 MiB.
	answerBytes = 32 << 20
)

// evaluator runs the compile program of one bundle. call gives the JSON that the program's function returns.
type evaluator interface {
	call(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error)
	close()
}

// failure is why the script did not come to its end. stack is the engine's trace. thrown tells what the author's code
// threw from what the host says.
type failure struct {
	message, stack string
	thrown         bool
}

// Error implements error.
func (f *failure) Error() string { return f.message }

// newEvaluator starts the host that the bundle was made for.
func newEvaluator(ctx context.Context, root string, b bundle.Result) (evaluator, error) {
	if b.NeedsNode != "" {
		return startNode(ctx, root, b)
	}
	vm, err := script.New(script.Limits{Timeout: loadTimeout, MemoryBytes: loadMemory, ResultBytes: answerBytes})
	if err != nil {
		return nil, fmt.Errorf("start script engine: %w", err)
	}
	e := &embedded{vm: vm}
	if err := errors.Join(bundle.Offer(vm), bundle.LoadLibrary(ctx, vm, "compile")); err != nil {
		e.close()
		return nil, fmt.Errorf("start script engine: %w", err)
	}
	if err := vm.Run(ctx, "workflow", string(b.Part)); err != nil {
		e.close()
		return nil, asFailure(err)
	}
	return e, nil
}

type embedded struct{ vm *script.VM }

func (e *embedded) call(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error) {
	result, err := e.vm.Call(ctx, "__kiciCompile."+function, argument)
	return result, asFailure(err)
}

func (e *embedded) close() { _ = e.vm.Close() } // nothing of the engine outlives it, whatever it says

func asFailure(err error) error {
	var s *script.Error
	if !errors.As(err, &s) {
		return err
	}
	if s.Kind == script.KindTimeout {
		return tooSlow(s.Stack)
	}
	return &failure{message: s.Message, stack: s.Stack, thrown: true}
}

func tooSlow(stack string) *failure {
	return &failure{message: fmt.Sprintf("the file takes longer than %s to load", loadTimeout), stack: stack}
}

// node is the compile program in a process of node: one request and one answer a line.
type node struct {
	cmd    *exec.Cmd
	ctx    context.Context // of the process; its deadline is loadTimeout
	cancel context.CancelFunc
	stdin  io.WriteCloser
	lines  *bufio.Scanner
	stderr *tail
	folder string
}

func startNode(ctx context.Context, root string, b bundle.Result) (*node, error) {
	path, err := exec.LookPath("node")
	if err != nil {
		return nil, &failure{message: "the workflow needs Node.js, which is not on PATH: " + b.NeedsNode}
	}
	folder, err := os.MkdirTemp("", "kici-compile-")
	if err != nil {
		return nil, fmt.Errorf("make folder for the script: %w", err)
	}
	file := filepath.Join(folder, "workflow.mjs")
	if err := os.WriteFile(file, b.Script, 0o600); err != nil {
		_ = os.RemoveAll(folder)
		return nil, fmt.Errorf("write script: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	n := &node{ctx: ctx, cancel: cancel, folder: folder, stderr: &tail{}}
	n.cmd = exec.CommandContext(ctx, path, file)
	n.cmd.Dir, n.cmd.Stderr, n.cmd.WaitDelay = root, n.stderr, time.Second
	if err := n.start(); err != nil {
		n.close()
		return nil, fmt.Errorf("start node: %w", err)
	}
	return n, nil
}

func (n *node) start() error {
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		return err
	}
	n.lines = bufio.NewScanner(stdout)
	n.lines.Buffer(nil, answerBytes)
	return n.cmd.Start()
}

// answerMark begins a line of the program's own; other lines are what something printed past the console.
const answerMark = "\x01kici "

func (n *node) call(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error) {
	request, err := json.Marshal(map[string]any{"call": function, "argument": argument})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	// A process that has ended fails the write, too; its stderr says more than that error.
	_, _ = n.stdin.Write(append(request, '\n'))
	for n.lines.Scan() {
		line, ok := strings.CutPrefix(n.lines.Text(), answerMark)
		if !ok {
			continue
		}
		var answer struct {
			Result json.RawMessage                  `json:"result"`
			Error  *struct{ Message, Stack string } `json:"error"`
		}
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			return nil, fmt.Errorf("read answer of node: %w", err)
		}
		if answer.Error != nil {
			return nil, &failure{message: answer.Error.Message, stack: answer.Error.Stack, thrown: true}
		}
		return answer.Result, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(n.ctx.Err(), context.DeadlineExceeded) {
		return nil, tooSlow("")
	}
	return nil, n.ended()
}

// ended tells why node gave no answer: by the last error that it printed.
func (n *node) ended() error {
	_ = n.stdin.Close()
	err := n.cmd.Wait()
	text := n.stderr.String()
	for line := range strings.Lines(text) {
		if name, message, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.HasSuffix(name, "Error") {
			return &failure{message: message, stack: text}
		}
	}
	return &failure{message: fmt.Sprintf("node ended before the workflow was described (%v) %s", err, text), stack: text}
}

func (n *node) close() {
	n.cancel()
	if n.stdin != nil {
		_ = n.stdin.Close()
	}
	if n.cmd.Process != nil {
		_ = n.cmd.Wait() // killed by cancel at the latest
	}
	_ = os.RemoveAll(n.folder)
}

// tail keeps the first 16 KiB of what is written to it: node prints the error that ended it there and little else.
type tail struct{ strings.Builder }

// Write implements io.Writer. What is beyond the bound is dropped.
func (t *tail) Write(p []byte) (int, error) {
	const bound = 16 << 10
	t.Builder.Write(p[:min(len(p), max(0, bound-t.Len()))])
	return len(p), nil
}
