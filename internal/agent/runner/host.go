package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"kici/internal/core/label"
)

// boot is what the host tells the runner script beside the request.
type boot struct {
	Host  string            `json:"host"`  // "embedded" or the version of node
	Why   string            `json:"why"`   // why node, "" for embedded
	Cwd   string            `json:"cwd"`   // where steps run
	Env   map[string]string `json:"env"`   // the runner's own environment, without marks of the sandbox
	Nonce string            `json:"nonce"` // makes request ids unique beyond this job
}

// newBoot describes this process to the script.
func newBoot(host, why string, job Job, nonce string) boot {
	b := boot{Host: host, Why: why, Cwd: job.stepDir(), Env: map[string]string{}, Nonce: nonce}
	for _, pair := range os.Environ() {
		if k, v, _ := strings.Cut(pair, "="); !strings.HasPrefix(k, sandboxMark) {
			b.Env[k] = v
		}
	}
	return b
}

// emit takes one message of the runner script: those for the host are acted on, the others go to the agent.
func (c *child) emit(raw json.RawMessage) error {
	m, ok := parseMessage(raw)
	if !ok {
		return fmt.Errorf("no message: %.80s", raw)
	}
	switch m.Type {
	case "kici.mask":
		var v struct{ Values []string }
		if err := m.Decode(&v); err != nil {
			return err
		}
		c.out.mask.Add(v.Values...)
	case "kici.guard":
		var v stuck
		if err := m.Decode(&v); err != nil {
			return err
		}
		c.guard.set(v)
	case "kici.trace":
		var v struct {
			StepIndex   int
			Text, Stack string
		}
		if err := m.Decode(&v); err != nil {
			return err
		}
		c.out.log(v.StepIndex, strings.Split(v.Text+c.trace(v.Stack), "\n")...)
	case "kici.crash":
		var v struct {
			Rejection   bool
			Text, Stack string
		}
		if err := m.Decode(&v); err != nil {
			return err
		}
		code := exitException
		if v.Rejection {
			code = exitRejection
		}
		c.end(&crash{code: code, text: v.Text, stack: v.Stack})
	default:
		return c.out.send(m)
	}
	return nil
}

// receive gives the script the next message of the agent.
func (c *child) receive(ctx context.Context) (json.RawMessage, error) {
	select {
	case m := <-c.inbound:
		return m.Raw, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call does for the script what takes time or touches the machine. It serves both hosts.
func (c *child) call(ctx context.Context, fn string, args json.RawMessage) (any, error) {
	switch fn {
	case "spawn":
		return with(args, func(s spawnSpec) (any, error) { return c.shells.run(ctx, s) })
	case "signal":
		return with(args, func(s signalSpec) (any, error) { return nil, c.shells.signal(s) })
	case "tee":
		return with(args, func(s teeSpec) (any, error) { return c.shells.tee(s) })
	case "write":
		return with(args, func(s writeSpec) (any, error) { return c.shells.pipes.write(s) })
	case "lines":
		return with(args, func(s lineSpec) (any, error) { return c.shells.pipes.lines(s) })
	case "files":
		return with(args, func(s filesSpec) (any, error) { return files(ctx, s) })
	case "fetch":
		return with(args, func(s fetchSpec) (any, error) { return c.fetch(ctx, s) })
	case "sleep":
		return with(args, func(s sleepSpec) (any, error) { return c.sleep(ctx, s), nil })
	case "wake":
		return with(args, func(s sleepSpec) (any, error) { c.wake(s.ID); return nil, nil })
	case "locate":
		return with(args, func(s locateSpec) (any, error) { return c.locate(s) })
	case "labels":
		return with(args, func(s labelsSpec) (any, error) { return label.Read(s.Texts), nil })
	case "stepFiles":
		return c.dirs.stepFiles()
	case "readStepFiles":
		return with(args, func(s dirSpec) (any, error) { return c.dirs.readStepFiles(s.Dir) })
	case "writeSecret":
		return with(args, func(s secretSpec) (any, error) {
			c.out.mask.Add(s.Content)
			return c.dirs.writeSecret(s)
		})
	case "remove":
		return with(args, func(s dirSpec) (any, error) { return nil, c.dirs.remove(s.Dir) })
	case "pack":
		return with(args, func(s packSpec) (any, error) { return c.dirs.pack(ctx, s) })
	case "unpack":
		return with(args, func(s unpackSpec) (any, error) { return c.dirs.unpack(ctx, s) })
	case "digest":
		return with(args, func(s digestSpec) (any, error) { return digestFile(ctx, s) })
	case "attest":
		return with(args, func(s attestSpec) (any, error) { return c.dirs.attest(s) })
	case "upload":
		return with(args, func(s uploadSpec) (any, error) { return nil, upload(ctx, s) })
	case "findArtifact":
		return with(args, func(s artifactSpec) (any, error) { return findArtifact(ctx, s) })
	case "putArtifact":
		return with(args, func(s artifactSpec) (any, error) { return c.dirs.putArtifact(ctx, s) })
	}
	return nil, fmt.Errorf("the host has no function %q", fn)
}

// with decodes the one argument that a host function takes.
func with[T any](args json.RawMessage, fn func(T) (any, error)) (any, error) {
	var v T
	if err := json.Unmarshal(args, &v); err != nil {
		return nil, fmt.Errorf("decode arguments: %w", err)
	}
	return fn(v)
}

// labelsSpec asks what labels of a generated job are.
type labelsSpec struct {
	Texts []string `json:"texts"`
}

// sleepSpec is a timer of the script: its id is the script's own, and used once.
type sleepSpec struct {
	ID string  `json:"id"`
	Ms float64 `json:"ms"`
}

// maxWoken bounds the wakes that came before their sleep; more can only be leftovers of sleeps that had just ended.
const maxWoken = 1000

// sleep waits that long, or until the script wakes it; it says whether the time passed.
func (c *child) sleep(ctx context.Context, s sleepSpec) bool {
	ctx, done, woken := c.endable(ctx, s.ID)
	defer done()
	if woken {
		return false
	}
	t := time.NewTimer(milliseconds(s.Ms))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// milliseconds is a time of the script's. One beyond what Go can say, which is as good as for ever, is the longest there is.
func milliseconds(ms float64) time.Duration {
	if d := ms * float64(time.Millisecond); d < math.MaxInt64/2 {
		return time.Duration(d)
	}
	return math.MaxInt64 / 2 // a later sum with it does not overflow
}

// endable gives a context that ends when the script wakes its id; woken says that it has done so already.
func (c *child) endable(ctx context.Context, id string) (_ context.Context, done func(), woken bool) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.woken[id] {
		delete(c.woken, id)
		return ctx, cancel, true
	}
	c.sleeping[id] = cancel
	return ctx, func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.sleeping, id)
	}, false
}

// wake ends a sleep or a request. Calls of the script run side by side, so it may come before what it is meant for.
func (c *child) wake(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.sleeping[id]; cancel != nil {
		cancel()
		return
	}
	if len(c.woken) >= maxWoken {
		clear(c.woken)
	}
	c.woken[id] = true
}
