package runner

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evanw/esbuild/pkg/api"

	"kici/internal/author/bundle"
	"kici/internal/author/sdk"
)

const (
	minNode     = 20 // the oldest major version that runs a workflow
	adapterName = "kici-host.mjs"
	scriptName  = "kici-script.mjs"
)

// nodeHost runs the script on node. The adapter there passes everything on to this process, so that what a step can do
// is written once: commands, timers, files and masking are the same on both hosts.
type nodeHost struct {
	c       *child
	cmd     *exec.Cmd
	in      *os.File        // to node
	out     *os.File        // from node
	ctx     context.Context // of the calls; it ends with node
	cancel  context.CancelCauseFunc
	calls   sync.WaitGroup
	about   func(version string) boot
	request json.RawMessage

	mu     sync.Mutex // guards in, and below
	passed bool       // what the script said of the job's end
	ended  bool
}

// runNode runs the script with the node of PATH.
func (c *child) runNode(ctx context.Context, built bundle.Result, request json.RawMessage, job Job) error {
	node, err := exec.LookPath("node")
	if err != nil {
		text := "The workflow needs Node (" + built.NeedsNode + "), and this agent has no node on its PATH"
		c.out.log(JobLog, text)
		c.out.fail(text)
		return errJobFailed
	}
	dir, err := c.writeNodeFiles(built)
	if err != nil {
		return fmt.Errorf("prepare node: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h := &nodeHost{c: c, ctx: ctx, cancel: cancel, request: request}
	nonce := rand.Text()
	h.about = func(version string) boot { return newBoot(version, built.NeedsNode, job, nonce) }
	h.cmd = exec.Command(node, filepath.Join(dir, adapterName), filepath.Join(dir, scriptName))
	h.cmd.Dir = job.stepDir()
	return h.run()
}

// writeNodeFiles puts the adapter and the bundle where node can load them. The adapter is TypeScript like all of the
// script, and node of that age reads none, so it is transformed here.
func (c *child) writeNodeFiles(built bundle.Result) (string, error) {
	source, ok := sdk.Module("ts/runner/node-host.ts")
	if !ok {
		return "", errors.New("no adapter for node in this binary")
	}
	adapter := api.Transform(source, api.TransformOptions{Loader: api.LoaderTS, Format: api.FormatESModule, Target: api.ES2022})
	if len(adapter.Errors) > 0 {
		return "", errors.New(adapter.Errors[0].Text)
	}
	dir, err := c.dirs.make()
	if err != nil {
		return "", err
	}
	return dir, errors.Join(
		os.WriteFile(filepath.Join(dir, adapterName), adapter.Code, 0o600),
		os.WriteFile(filepath.Join(dir, scriptName), built.Script, 0o600),
	)
}

// run starts node and serves it until it has ended.
func (h *nodeHost) run() error {
	theirIn, in, err1 := os.Pipe()
	out, theirOut, err2 := os.Pipe()
	stdout, theirStdout, err3 := os.Pipe()
	stderr, theirStderr, err4 := os.Pipe()
	theirs := []*os.File{theirIn, theirOut, theirStdout, theirStderr}
	ours := []*os.File{in, out, stdout, stderr}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	h.in, h.out = in, out
	h.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4: the author's code owns the standard streams
	h.cmd.Stdout, h.cmd.Stderr = theirStdout, theirStderr
	ended, err := h.c.shells.start("node", h.cmd, nil)
	for _, f := range theirs {
		f.Close()
	}
	defer func() {
		for _, f := range ours {
			f.Close()
		}
	}()
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	var last tail
	var readers sync.WaitGroup
	readers.Go(func() { readLines(stdout, maxOutLine, true, h.print) })
	readers.Go(func() {
		readLines(stderr, maxOutLine, true, func(line []byte) bool { last.add(string(line)); return h.print(line) })
	})
	stop := context.AfterFunc(h.ctx, func() { _ = h.c.shells.signal(signalSpec{ID: "node", Signal: "SIGKILL"}) })
	defer stop()
	// Something that node left behind may hold its end of the pipe open.
	go func() {
		<-ended
		time.AfterFunc(lingering, func() { out.Close() })
	}()
	h.serve()
	<-ended
	h.cancel(nil)
	h.calls.Wait()
	return h.result(&last)
}

// print shows what was written past the adapter, such as by a native module, in the log of the step at work.
func (h *nodeHost) print(line []byte) bool {
	h.c.out.logHere(string(line))
	return true
}

// serve acts on node's messages until it closes its end.
func (h *nodeHost) serve() {
	readLines(h.out, maxLine, false, func(line []byte) bool {
		m, ok := parseMessage(line)
		if !ok {
			return true
		}
		switch m.Type {
		case "kici.node":
			h.begin(m)
		case "kici.call":
			h.calls.Go(func() { h.answer(m) })
		case "kici.loadFailed":
			var v struct{ Message, Stack string }
			if m.Decode(&v) == nil {
				h.c.reportLoadFailure(v.Message, v.Stack)
			}
		case "kici.end":
			var v struct{ Passed bool }
			_ = m.Decode(&v) // the runner script wrote it
			h.mu.Lock()
			h.passed, h.ended = v.Passed, true
			h.mu.Unlock()
		default:
			if err := h.c.emit(m.Raw); err != nil {
				h.c.out.log(JobLog, "[kici] a message of the workflow was dropped: "+err.Error())
			}
		}
		return true
	})
}

// begin answers node's first message with the job, or ends a node that is too old. From then on it gets the agent's
// messages.
func (h *nodeHost) begin(m Message) {
	var v struct{ Version string }
	_ = m.Decode(&v) // an empty version is refused below
	major, _, _ := strings.Cut(strings.TrimPrefix(v.Version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < minNode {
		about := h.about(v.Version)
		h.c.out.fail(fmt.Sprintf("The workflow needs Node %d or later (%s), and this agent has %s", minNode, about.Why, v.Version))
		_ = h.c.shells.signal(signalSpec{ID: "node", Signal: "SIGKILL"})
		return
	}
	h.write(map[string]any{"type": "kici.start", "request": h.request, "boot": h.about(v.Version)})
	h.calls.Go(func() {
		for {
			raw, err := h.c.receive(h.ctx)
			if err != nil {
				return
			}
			h.write(raw)
		}
	})
}

// answer does one call of the script and sends its result. Calls run side by side, as on the embedded host.
func (h *nodeHost) answer(m Message) {
	var v struct {
		ID  int
		Fn  string
		Arg json.RawMessage
	}
	reply := map[string]any{"type": "kici.result"}
	err := m.Decode(&v)
	if err == nil {
		reply["value"], err = h.c.call(h.ctx, v.Fn, v.Arg)
	}
	if reply["id"] = v.ID; err != nil {
		reply["error"] = err.Error()
	}
	h.write(reply)
}

// write sends one message to node. The pipe is drained by node's event loop, so a step in an endless loop holds the
// writer; the guard ends such a step and with it the wait.
func (h *nodeHost) write(m any) {
	raw, err := json.Marshal(m)
	if err != nil {
		raw = []byte(`{"type":"abort","force":true}`)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w := bufio.NewWriter(h.in)
	w.Write(raw)
	w.WriteByte('\n')
	_ = w.Flush() // fails when node has ended, which serve sees, too
}

// result tells how the script ended. Without its own word for it the author's code has ended node, and what node wrote
// last says why.
func (h *nodeHost) result(last *tail) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended && h.passed:
		return nil
	case h.ended, h.c.out.completed():
		return errJobFailed
	}
	for _, line := range last.all() {
		fmt.Fprintln(h.c.stderr, h.c.out.mask.String(line))
	}
	if status, ok := h.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Errorf("node was ended by %s", status.Signal())
	}
	return exitCode(h.cmd.ProcessState.ExitCode())
}

// exitCode is the code with which the author's own code ended node.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("node exited with code %d", int(e)) }
