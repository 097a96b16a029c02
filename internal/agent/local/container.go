//go:build unix

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kici/internal/agent/runner"
	"kici/internal/kit/docker"
)

// DefaultImage is that of jobs which name none, for runs in containers.
const DefaultImage = "node:24-slim"

// Where a container has what it needs.
const (
	containerDir  = "/workspace"
	containerKici = "/opt/kici/kici"
)

// containerGrace is how long a job in a container may take to end politely.
const containerGrace = 10 * time.Second

// container is what a job says of the one to run it in.
type container struct {
	Image string            `json:"image"`
	Env   map[string]string `json:"env"`
}

// containerOf reads an image alone, or one with variables.
func containerOf(raw json.RawMessage) (c container, err error) {
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
	case raw[0] == '"':
		err = json.Unmarshal(raw, &c.Image)
	default:
		err = json.Unmarshal(raw, &c)
	}
	return c, err
}

// fromHere are the variables of this machine that mean the same in a container. Its paths and its user do not.
var fromHere = []string{"LANG", "LC_ALL", "TERM", "TZ"}

func (r *run) containerEnviron(own map[string]string, jobEnv map[string]any) []string {
	here, env := variables(r.o.Environ), map[string]string{}
	for _, name := range fromHere {
		if value, ok := here[name]; ok {
			env[name] = value
		}
	}
	if r.o.Engine.OwnUser() != "0:0" {
		env["HOME"] = "/tmp" // the image knows nothing of this user
	}
	return r.layers(env, own, jobEnv)
}

// contain starts the runner in a container of its own, on the folder of the job. The runner is this program, which needs
// nothing of the image but a shell for the steps.
func (w *worker) contain(dir string) (*runner.Process, error) {
	engine, image := w.r.o.Engine, w.order.image
	switch has, err := engine.HasImage(w.ctx, image); {
	case err != nil:
		return nil, err
	case !has:
		w.say("Pulling image " + image)
		if err := engine.Pull(w.ctx, image); err != nil {
			return nil, fmt.Errorf("%w (an image of a registry with a login must be there already)", err)
		}
	}
	command := w.r.o.Runner
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program's file: %w", err)
		}
		command = []string{self, "__runner"}
	}
	binds := []string{dir + ":" + containerDir, command[0] + ":" + containerKici + ":ro"}
	if w.r.o.Artifacts != "" {
		// The runner writes artifacts where they are kept. That folder is made anew, so the one around it is shared.
		around := filepath.Dir(w.r.o.Artifacts)
		if err := os.MkdirAll(around, 0o755); err != nil {
			return nil, fmt.Errorf("make the folder for artifacts: %w", err)
		}
		binds = append(binds, around+":"+around)
	}
	made, err := engine.Run(w.ctx, docker.Spec{
		Name: fmt.Sprintf("kici-sandbox-%s-%d", w.j.state.ID, time.Now().UnixMilli()), Image: image, Dir: containerDir, Env: w.order.env, User: engine.OwnUser(),
		Command: append([]string{containerKici}, command[1:]...), Binds: binds,
		Labels: map[string]string{"kici-sandbox": "true", "kici-job-id": w.j.state.ID},
	})
	if err != nil {
		return nil, err
	}
	w.say("Running in a container of " + image)
	return runner.Adopt(w.ctx, containedRunner{made}, made.Stdin, made.Stdout, made.Stderr), nil
}

// containedRunner is a runner in a container.
type containedRunner struct{ *docker.Container }

// Wait implements runner.Body.
func (c containedRunner) Wait() (code int, signal string) { return c.Container.Wait(), "" }

// Terminate implements runner.Body.
func (c containedRunner) Terminate() error { return c.Signal(context.Background(), "SIGTERM") }

// Kill implements runner.Body.
func (c containedRunner) Kill() error { return c.Remove() }

// KillOthers implements runner.Body. A container serves one job only, so nobody asks for it.
func (containedRunner) KillOthers() error {
	return errors.New("the processes of a container end together")
}
