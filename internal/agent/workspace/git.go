package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"kici/internal/agent/sandbox"
)

// Bounds of one git process. What it prints beyond them is dropped: the end of stderr is what explains a failure.
const (
	maxStdout = 1 << 20
	maxStderr = 8 << 10
)

// git runs git processes with one set of credentials.
type git struct {
	environ func() ([]string, error) // made for the first process
	redact  *strings.Replacer
}

// gitError is a failed git command: what was done, and what git said, without secrets.
type gitError struct {
	op     string
	stderr string
	cause  error
}

func (e *gitError) Error() string {
	text := "git " + e.op + ": " + e.cause.Error()
	if e.stderr != "" {
		text += ": " + e.stderr
	}
	return text
}

func (e *gitError) Unwrap() error { return e.cause }

// run runs git in dir and returns its stdout. The whole process tree ends with ctx or the time limit.
func (g *git) run(ctx context.Context, limit time.Duration, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("timed out after %v", limit))
	defer cancel()
	op := args[0]
	env, err := g.environ()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", op, err)
	}
	var stdout, stderr tail
	stdout.max, stderr.max = maxStdout, maxStderr
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A helper that git left behind may hold the pipes open; the answer is complete all the same.
	cmd.WaitDelay = time.Second
	group, err := sandbox.Start(cmd)
	if err != nil {
		return "", fmt.Errorf("git %s: %w", op, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = group.Kill() })
	err = group.Wait()
	if !stop() {
		return "", &gitError{op: op, stderr: g.clean(stderr.String()), cause: context.Cause(ctx)}
	}
	if killErr := group.Kill(); err == nil && killErr != nil {
		err = killErr
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", &gitError{op: op, stderr: g.clean(stderr.String()), cause: err}
	}
	return stdout.String(), nil
}

// clean masks the credentials and trims what git said.
func (g *git) clean(text string) string {
	return strings.TrimSpace(g.redact.Replace(strings.ToValidUTF8(text, "?")))
}

// refMissing tells that the remote answered and does not have the wanted ref. Messages are in English since the
// environment asks for the C locale.
func refMissing(err error) bool {
	var ge *gitError
	return errors.As(err, &ge) && strings.Contains(ge.stderr, "couldn't find remote ref")
}

// errMismatch is wrapped by the error of a commit that the remote does not have.
var errMismatch = errors.New("SHA mismatch")

// fromRemote tells that the remote, or the way to it, is what failed: a repository of our own cannot be the cause, and
// trying again with an empty one would only ask the same question twice.
func fromRemote(err error) bool {
	if errors.Is(err, errMismatch) || refMissing(err) {
		return true
	}
	var ge *gitError
	if !errors.As(err, &ge) {
		return false
	}
	for _, text := range []string{"unable to access", "Authentication failed", "could not read Username",
		"Could not read from remote repository", "does not appear to be a git repository", "Permission denied",
		"Host key verification failed", "not our ref", "does not exist"} {
		if strings.Contains(ge.stderr, text) {
			return true
		}
	}
	return false
}

// tail keeps the last bytes written to it.
type tail struct {
	buf bytes.Buffer
	max int
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.max {
		p = p[len(p)-t.max:]
	}
	if over := t.buf.Len() + len(p) - t.max; over > 0 {
		t.buf.Next(over)
	}
	t.buf.Write(p)
	return n, nil
}

func (t *tail) String() string { return t.buf.String() }
