package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"kici/internal/author/bundle"
	"kici/internal/kit/script"
)

// Exit codes of the runner. They count only when job.complete is missing.
const (
	exitSuccess   = 0
	exitFailed    = 1
	exitRejection = 98 // a promise was rejected and nobody looked
	exitException = 99 // an exception that nobody caught
)

// maxInbound bounds the messages from the agent that the script has not taken; the pipe is not read beyond it.
const maxInbound = 256

// child is the runner's side: it receives one job, bundles its workflow and runs it on a host of JavaScript.
type child struct {
	out     *outgoing
	stderr  io.Writer
	inbound chan Message
	end     context.CancelCauseFunc // ends the script now; the cause says why
	shells  *shells
	guard   *guard
	dirs    privateDirs

	mu       sync.Mutex
	smap     []byte                        // of the bundle; nil until it is made
	sleeping map[string]context.CancelFunc // timers of the script, by its id
	woken    map[string]bool               // timers whose wake came before their sleep
}

// crash is an error of the author's that no step could catch.
type crash struct {
	code  int
	text  string
	stack string
}

func (c *crash) Error() string { return c.text }

var errAgentGone = errors.New("the agent has gone")

// Main is the runner: it says ready, waits for one execute message on stdin, runs the job and gives the exit code. SIGTERM
// and SIGINT abort the job as an abort message does. It is to be the last thing its process does: the reader of stdin
// ends with the process only.
func Main(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) int {
	// One job's worth of garbage: collecting it late costs some megabytes and saves a good part of the start.
	debug.SetGCPercent(400)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c := &child{
		stderr:   stderr,
		inbound:  make(chan Message, maxInbound),
		end:      end,
		sleeping: map[string]context.CancelFunc{},
		woken:    map[string]bool{},
	}
	c.out = newOutgoing(stdout, func(err error) { end(fmt.Errorf("%w: %w", errAgentGone, err)) })
	c.out.last = c.dirs.removeAll
	c.shells = newShells(c.out)
	defer c.shells.close()
	defer c.dirs.removeAll()
	c.guard = &guard{fire: func(t *stuck) {
		c.out.silence()
		end(t)
	}}
	defer c.guard.disarm()

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	c.out.say(map[string]string{"type": TypeReady})
	go c.readInput(stdin)
	vm, err := c.newVM(ctx)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitException
	}
	// The engine is not closed: freeing its memory piece by piece takes longer than the end of the process, which follows.
	select {
	case m := <-c.inbound:
		if m.Type != TypeExecute {
			return exitSuccess // the agent has no use for this runner
		}
		go c.abortOn(ctx, signals)
		return c.execute(ctx, vm, m)
	case <-signals:
		return exitFailed
	case <-ctx.Done():
		return exitFailed
	}
}

// readInput passes the agent's messages on. When the script does not take them the queue fills and the pipe is not read.
func (c *child) readInput(stdin io.Reader) {
	readLines(stdin, maxLine, false, func(line []byte) bool {
		if m, ok := parseMessage(line); ok {
			c.inbound <- m
		}
		return true
	})
	// The agent's end is an abort without hooks: nobody would see what they do.
	c.inbound <- Message{Type: TypeAbort, Raw: json.RawMessage(`{"type":"abort","force":true}`)}
}

// abortOn makes a signal what an abort message is. The queue is full only when the script no longer looks at it; then a
// signal more or less changes nothing.
func (c *child) abortOn(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-signals:
			select {
			case c.inbound <- Message{Type: TypeAbort, Raw: json.RawMessage(`{"type":"abort"}`)}:
			default:
			}
		case <-ctx.Done():
			return
		}
	}
}

// execute runs the job. Secrets are known to the masker before anything of the workflow is looked at, since even an
// error of the bundler could quote one.
func (c *child) execute(ctx context.Context, vm *script.VM, m Message) int {
	var e Execute
	var job Job
	if err := errors.Join(m.Decode(&e), json.Unmarshal(e.Request, &job)); err != nil {
		c.out.fail(fmt.Sprintf("The job's request cannot be read: %v", err))
		return exitFailed
	}
	if e.Env != nil {
		replaceEnviron(e.Env)
	}
	if err := os.Chdir(job.WorkDir); err != nil { // the runner may have been started before there was a job
		c.out.fail(fmt.Sprintf("The job's folder cannot be entered: %v", err))
		return exitFailed
	}
	for _, v := range job.Secrets {
		c.out.mask.Add(v)
	}
	for _, context := range job.NamespacedSecrets {
		for _, v := range context.Secrets {
			c.out.mask.Add(v)
		}
	}
	built, err := c.bundled(e, job)
	if err != nil {
		c.out.log(JobLog, strings.Split(err.Error(), "\n")...)
		c.out.fail("Workflow cannot be loaded: " + firstLine(err.Error()))
		return exitFailed
	}
	c.mu.Lock()
	c.smap = built.Map
	c.mu.Unlock()
	if built.NeedsNode != "" {
		err = c.runNode(ctx, built, e.Request, job)
	} else {
		err = c.runEmbedded(ctx, vm, built, e.Request, job)
	}
	return c.finish(ctx, err)
}

// replaceEnviron makes the variables those of the process, but for the marks of the sandbox, which it keeps. It comes
// before anything has asked for one.
func replaceEnviron(env []string) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); !strings.HasPrefix(name, sandboxMark) {
			_ = os.Unsetenv(name)
		}
	}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		_ = os.Setenv(name, value) // the agent has left out what the kernel does not take
	}
}

// bundled gives the workflow's script: the one that came with the job, or one that is made now.
func (c *child) bundled(e Execute, job Job) (bundle.Result, error) {
	if e.Bundle != nil {
		return bundle.Result{Part: []byte(e.Bundle.Part), Map: []byte(e.Bundle.Map)}, nil
	}
	built, err := bundle.Build(bundle.Options{Root: job.workflowRoot(), Workflow: job.workflowFile(), Program: "run"})
	if err == nil && e.KeepBundle {
		b := Bundle{Type: TypeBundle}
		outside := func(file string) bool { return !strings.HasPrefix(file, ".kici/") }
		if built.NeedsNode == "" && !slices.ContainsFunc(built.Sources, outside) {
			b.Part, b.Map = string(built.Part), string(built.Map)
		}
		c.out.say(b)
	}
	return built, err
}

// workflowRoot is the repository that holds the workflow: the workspace, or a part of it for a global workflow.
func (j Job) workflowRoot() string {
	if j.IsGlobalWorkflow {
		return filepath.Join(j.WorkDir, "workflow")
	}
	return j.WorkDir
}

// stepDir is where steps run.
func (j Job) stepDir() string {
	if j.IsGlobalWorkflow {
		return filepath.Join(j.WorkDir, "source")
	}
	return j.WorkDir
}

// workflowFile is the path below workflowRoot. A dispatch may leave the folder .kici out; where that file is not there, the
// name stands for one of another folder of workflows.
func (j Job) workflowFile() string {
	file := path.Clean(j.SourceFile)
	switch {
	case j.SourceFile == "":
		return ".kici/workflows/ci.ts"
	case strings.HasPrefix(file, ".kici/"):
		return file
	}
	if _, err := os.Stat(filepath.Join(j.workflowRoot(), ".kici", file)); err != nil && filepath.IsLocal(file) {
		if _, err := os.Stat(filepath.Join(j.workflowRoot(), file)); err == nil {
			return file
		}
	}
	return ".kici/" + file
}

// finish gives the exit code. err is how the script's host ended, nil when the script ended by itself.
func (c *child) finish(ctx context.Context, err error) int {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var crashed *crash
	var late *stuck
	var code exitCode
	switch {
	case err == nil && c.out.completed():
		return exitSuccess
	case errors.Is(err, errJobFailed):
		return exitFailed
	case errors.As(err, &late) && late.Failure != "":
		c.out.fail(late.Failure)
		return exitFailed
	case errors.As(err, &late):
		c.out.say(StepComplete{Type: TypeStepComplete, StepIndex: late.StepIndex, StepName: late.StepName, Status: "failed",
			DurationMs: int64(late.Ms), Error: &StepError{Message: late.Error()}, SecretsAccessed: []string{}})
		c.out.fail("Step '"+late.StepName+"' failed", StepResult{Name: late.StepName, StepIndex: late.StepIndex,
			Status: "failed", DurationMs: int64(late.Ms), Error: late.Error()})
		return exitFailed
	case errors.As(err, &crashed):
		fmt.Fprintln(c.stderr, c.out.mask.String(crashed.text+c.trace(crashed.stack)))
		return crashed.code
	case errors.As(err, &code):
		return max(int(code), exitFailed) // node can exit with 0 and no result, too
	}
	fmt.Fprintln(c.stderr, c.out.mask.String(fmt.Sprint("Uncaught ", err)))
	return exitException
}

// errJobFailed says that the script has reported a failed job.
var errJobFailed = errors.New("the job failed")

// trace gives the author's part of a stack as lines of their own, innermost first; empty when there is none.
func (c *child) trace(stack string) string {
	m, err := c.sourceMap()
	if err != nil {
		return "" // without places a trace says less, which is bearable
	}
	var b strings.Builder
	for _, p := range m.Frames(ownFrames(stack)) {
		if !p.Embedded() {
			fmt.Fprintf(&b, "\n    at %s:%d:%d", p.File, p.Line, p.Column)
		}
	}
	return b.String()
}

// sourceMap reads the map of the bundle, which most jobs do not need.
func (c *child) sourceMap() (*bundle.Map, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bundle.ParseMap(c.smap)
}

// locateSpec asks where things were made, by the stacks of that moment.
type locateSpec struct {
	Stacks []string `json:"stacks"`
}

// place is a place in the author's files, as lock files have it.
type place struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// locate gives the author's place of each stack, nil for one that has none.
func (c *child) locate(s locateSpec) ([]*place, error) {
	m, err := c.sourceMap()
	if err != nil {
		return nil, err
	}
	found := make([]*place, len(s.Stacks))
	for i, stack := range s.Stacks {
		if at, ok := m.Author(ownFrames(stack)); ok {
			found[i] = &place{at.File, at.Line, at.Column}
		}
	}
	return found, nil
}

// ownFrames keeps the frames of the bundle: a host's own frames would map to anything. That of the embedded engine has
// one at the bottom, by which it calls the script, in a text of the same name.
func ownFrames(stack string) string {
	var keep []string
	lines := strings.Split(strings.TrimRight(stack, "\n"), "\n")
	if n := len(lines); n > 1 && strings.Contains(lines[n-1], "at call (<eval>:") && strings.HasSuffix(lines[n-2], "at apply (native)") {
		lines = lines[:n-1]
	}
	for _, line := range lines {
		if strings.Contains(line, "<eval>:") || strings.Contains(line, scriptName+":") {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "\n")
}

// firstLine is what of a text fits into a sentence.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
