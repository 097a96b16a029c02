// Package rig is a whole system on this machine: a server process with a data folder, a git repository with a compiled
// workflow, a source that watches over it, and agents. The demo, the measures and the killing tests stand on it.
package rig

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"kici/internal/author/compile"
	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/proc"
)

// Options say what to set up.
type Options struct {
	Name     string // of the source and of the temporary folder
	Repo     string // identifier of the repository: its path below the source's folder
	Workflow []byte // TypeScript
	// Files are further files of the repository, by their paths in it.
	Files   map[string][]byte
	Environ []string // of the server, on top of the least
	// AdminToken is valid from the start; servers that share a database need one that all of them know. "" lets the
	// server make one.
	AdminToken string
	// Logs is a folder for all that the processes write. "" keeps the end of it only.
	Logs string
	// RateLimit is how many deliveries the source takes a minute, 0 for its default.
	RateLimit int
}

// Rig is the system. Close ends all of it.
type Rig struct {
	Options
	Base   string // temporary folder of everything
	Server *proc.Server
	API    *client.Client
	Source adminwire.Source
	SHA    string // of the commit with the workflow
	Agents []*proc.Process
	secret string // of the source
	token  string // of agents
}

// awaitTime bounds every wait for something that takes milliseconds.
const awaitTime = time.Minute

// New sets the system up, without agents.
func New(ctx context.Context, o Options) (r *Rig, err error) {
	r = &Rig{Options: o, secret: rand.Text()}
	if r.Base, err = os.MkdirTemp("", "kici-"+o.Name+"-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	made := r // what is returned besides an error is nothing
	defer func() {
		if err != nil {
			made.Close()
		}
	}()
	if o.Logs != "" {
		if err := os.MkdirAll(o.Logs, 0o700); err != nil {
			return nil, fmt.Errorf("make the folder for logs: %w", err)
		}
	}
	if err := r.makeRepository(ctx); err != nil {
		return nil, err
	}
	if err := r.StartServer(ctx, "0"); err != nil {
		return nil, err
	}
	if err := r.makeSource(ctx); err != nil {
		return nil, err
	}
	token, err := r.API.CreateAgentToken(ctx, adminwire.NewAgentToken{CreatedBy: o.Name})
	r.token = token.Token
	return r, err
}

// Close ends agents and server and removes the folder.
func (r *Rig) Close() {
	for _, a := range r.Agents {
		a.Stop()
	}
	if r.Server != nil {
		r.Server.Stop()
	}
	_ = os.RemoveAll(r.Base) // a leftover in the temporary folder harms nobody
}

// StartServer starts the server on its data folder, "0" being any free port. It is also how a server that was killed
// comes back.
func (r *Rig) StartServer(ctx context.Context, port string) (err error) {
	if r.Server, err = r.startNode(ctx, "server", port); err != nil {
		return err
	}
	r.API, err = r.Connect(r.Server)
	return err
}

// StartNode starts a further server with a data folder of its own, of that name. What it shares with the first is what
// Environ says. The caller stops it.
func (r *Rig) StartNode(ctx context.Context, name string) (*proc.Server, error) {
	return r.startNode(ctx, name, "0")
}

func (r *Rig) startNode(ctx context.Context, name, port string) (*proc.Server, error) {
	environ := r.Environ
	if r.AdminToken != "" {
		environ = append([]string{"KICI_BOOTSTRAP_ADMIN_TOKEN=" + r.AdminToken}, environ...)
	}
	return proc.StartServer(ctx, proc.ServerOptions{Data: filepath.Join(r.Base, name), Port: port, Environ: environ, Log: r.logOf(name)})
}

// logOf is the file for the output of a process, "" for none.
func (r *Rig) logOf(name string) string {
	if r.Logs == "" {
		return ""
	}
	return filepath.Join(r.Logs, name+".log")
}

// Connect makes a client of a server's administration.
func (r *Rig) Connect(s *proc.Server) (*client.Client, error) {
	return client.Connect(client.Where{URL: s.URL, Token: r.AdminToken, DataDir: s.Data, Env: func(string) string { return "" }})
}

func (r *Rig) repositories() string { return filepath.Join(r.Base, "repositories") }

func (r *Rig) makeRepository(ctx context.Context) error {
	dir := filepath.Join(r.repositories(), filepath.FromSlash(r.Repo))
	files := map[string][]byte{compile.DefaultDir + "/workflows/" + r.Name + ".ts": r.Workflow}
	maps.Copy(files, r.Files)
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o644)); err != nil {
			return fmt.Errorf("make repository: %w", err)
		}
	}
	if _, err := compile.Compile(ctx, compile.Options{Dir: dir, KiciDir: compile.DefaultDir}); err != nil {
		return fmt.Errorf("compile the workflow:\n%w", err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "Add a workflow"}, {"rev-parse", "HEAD"}} {
		out, err := git(ctx, dir, args...)
		if err != nil {
			return err
		}
		r.SHA = out
	}
	return nil
}

// git runs git in a repository, as nobody in particular and without the settings of this machine's user.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=kici", "GIT_AUTHOR_EMAIL=kici@localhost", "GIT_COMMITTER_NAME=kici", "GIT_COMMITTER_EMAIL=kici@localhost")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func (r *Rig) makeSource(ctx context.Context) error {
	method := "hmac_sha256"
	verification, err := json.Marshal(map[string]string{"secret": r.secret})
	if err != nil {
		return err
	}
	settings := adminwire.SourceSettings{OrgID: client.Org, Name: &r.Name, VerificationMethod: &method, VerificationConfig: verification,
		LocalConfig: &adminwire.LocalConfig{RepoBasePath: r.repositories()}}
	if r.RateLimit > 0 {
		settings.RateLimitRPM = &r.RateLimit
	}
	r.Source, err = r.API.CreateSource(ctx, settings)
	return err
}

// AgentToken is a token that any agent of the rig may use.
func (r *Rig) AgentToken() string { return r.token }

// StartAgent starts an agent process with the label linux. AwaitAgents waits for it.
func (r *Rig) StartAgent(id string) error {
	a, err := r.LaunchAgent(id, r.Server.AgentURL())
	if err != nil {
		return err
	}
	r.Agents = append(r.Agents, a)
	return nil
}

// LaunchAgent is StartAgent for an agent that connects to another address. The caller stops it.
func (r *Rig) LaunchAgent(id, url string) (*proc.Process, error) {
	work := filepath.Join(r.Base, id)
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, err
	}
	return proc.StartAgent(proc.AgentOptions{URL: url, ID: id, Token: r.token, TempDir: work, Labels: []string{"linux"}, Log: r.logOf(id)})
}

// AwaitAgents waits until n agents are connected, and no more.
func (r *Rig) AwaitAgents(ctx context.Context, n int) error {
	return r.Await(ctx, "the agents to register", func() (bool, error) {
		hosts, err := r.API.Hosts(ctx)
		ready := 0
		for _, h := range hosts {
			if h.Status == "ready" {
				ready++
			}
		}
		return ready == n, err
	})
}

// Await asks until the answer is yes. It says what it waited for when that takes a minute, and why when a process of the
// rig has ended meanwhile.
func (r *Rig) Await(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTime)
	defer cancel()
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waited in vain for %s: %w", what, ctx.Err()), r.Words())
		case <-r.Server.Ended():
			return errors.Join(errors.New("the server has ended"), r.Words())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Words are what the processes wrote last, for an error that nothing else explains.
func (r *Rig) Words() error {
	words := []error{fmt.Errorf("server: %s", r.Server.Output())}
	for _, a := range r.Agents {
		words = append(words, fmt.Errorf("%s: %s", a.Name, a.Output()))
	}
	return errors.Join(words...)
}
