package bench

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// repoName is the identifier of the measured repository.
const repoName = "bench/app"

// sourceSecret signs the measured webhooks. It is worth nothing: the server lives as long as the measure.
const sourceSecret = "kici-bench-source-secret"

// trivial is the measured workflow: one job of one step that does next to nothing.
const trivial = `import { job, push, step, workflow } from '@kici-dev/sdk';

export default workflow('bench', {
  on: push({ branches: 'main' }),
  jobs: [job('one', { runsOn: 'linux', steps: [step('go', async ({ log }) => { log.info('done'); })] })],
});
`

// rig is a server process with a source, a repository, and agents.
type rig struct {
	base   string
	server *proc.Server
	api    *client.Client
	hook   string // URL of the webhook route
	sha    string
	agents []*proc.Process
	stubs  []*Stub
	stop   context.CancelFunc // of the stubs
	ended  chan error         // one for each stub
	sender *http.Client
}

// newRig starts a server on an empty data folder and makes the repository and the source.
func newRig(ctx context.Context, o Options) (r *rig, err error) {
	r = &rig{sender: &http.Client{}, ended: make(chan error, max(o.Agents, 1))}
	if r.base, err = os.MkdirTemp("", "kici-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for the measure: %w", err)
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.server, err = startServer(ctx, r.base, o); err != nil {
		return nil, err
	}
	r.api, err = client.Connect(client.Where{URL: r.server.URL, DataDir: r.server.Data, Env: func(string) string { return "" }})
	if err != nil {
		return nil, err
	}
	if err := r.makeRepository(ctx); err != nil {
		return nil, err
	}
	return r, r.makeSource(ctx)
}

func startServer(ctx context.Context, base string, o Options) (*proc.Server, error) {
	environ := []string{"KICI_LOG_LEVEL=warn"}
	if o.Postgres != "" {
		environ = append(environ, "KICI_DATABASE_URL="+o.Postgres)
	}
	return proc.StartServer(ctx, filepath.Join(base, "server"), environ...)
}

// close ends everything and removes the folder.
func (r *rig) close() {
	r.endStubs()
	for _, a := range r.agents {
		a.Stop()
	}
	if r.server != nil {
		r.server.Stop()
	}
	_ = os.RemoveAll(r.base) // a leftover in the temporary folder spoils no figure
}

// endStubs disconnects the stub agents.
func (r *rig) endStubs() {
	if r.stop != nil {
		r.stop()
	}
	for range r.stubs {
		<-r.ended
	}
	r.stubs = nil
}

func (r *rig) makeRepository(ctx context.Context) error {
	dir := filepath.Join(r.base, "repositories", filepath.FromSlash(repoName))
	folder := filepath.Join(dir, compile.DefaultDir, "workflows")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "bench.ts"), []byte(trivial), 0o644); err != nil {
		return err
	}
	if _, err := compile.Compile(ctx, compile.Options{Dir: dir, KiciDir: compile.DefaultDir}); err != nil {
		return fmt.Errorf("compile the measured workflow: %w", err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "Measure"}, {"rev-parse", "HEAD"}} {
		out, err := git(ctx, dir, args...)
		if err != nil {
			return err
		}
		r.sha = out
	}
	return nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@localhost", "GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@localhost")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func (r *rig) makeSource(ctx context.Context) error {
	name, method, rpm := "bench", "hmac_sha256", 100_000
	verification, err := json.Marshal(map[string]string{"secret": sourceSecret})
	if err != nil {
		return err
	}
	source, err := r.api.CreateSource(ctx, adminwire.SourceSettings{OrgID: client.Org, Name: &name, VerificationMethod: &method,
		VerificationConfig: verification, RateLimitRPM: &rpm,
		LocalConfig: &adminwire.LocalConfig{RepoBasePath: filepath.Join(r.base, "repositories")}})
	r.hook = r.server.URL + source.WebhookPath
	return err
}

// startAgents starts real or stub agents and waits until the server knows them.
func (r *rig) startAgents(ctx context.Context, o Options, dispatched func(jobID string, at time.Time)) error {
	token, err := r.api.CreateAgentToken(ctx, adminwire.NewAgentToken{CreatedBy: "bench"})
	if err != nil {
		return err
	}
	if o.Stub {
		err = r.startStubs(ctx, o, token.Token, dispatched)
	} else {
		err = r.startReal(o, token.Token)
	}
	if err != nil {
		return err
	}
	return r.await(ctx, "the agents to register", func() (bool, error) {
		hosts, err := r.api.Hosts(ctx)
		ready := 0
		for _, h := range hosts {
			if h.Status == "ready" {
				ready++
			}
		}
		return ready == o.Agents, err
	})
}

func (r *rig) startReal(o Options, token string) error {
	for i := range o.Agents {
		work := filepath.Join(r.base, fmt.Sprint("agent-", i))
		if err := os.Mkdir(work, 0o700); err != nil {
			return err
		}
		a, err := proc.StartAgent(r.server, fmt.Sprint("agent-", i), token, work, "linux")
		if err != nil {
			return err
		}
		r.agents = append(r.agents, a)
	}
	return nil
}

func (r *rig) startStubs(ctx context.Context, o Options, token string, dispatched func(string, time.Time)) error {
	ctx, r.stop = context.WithCancel(ctx)
	for i := range o.Agents {
		s := &Stub{ID: fmt.Sprint("stub-", i), URL: r.server.AgentURL(), Token: token, Labels: []string{"linux"}, Slots: 1, Delay: o.Delay, Dispatched: dispatched}
		if err := s.Connect(ctx); err != nil {
			return err
		}
		r.stubs = append(r.stubs, s)
		go func() { r.ended <- s.Serve(ctx) }()
	}
	return nil
}

// await asks until the answer is yes, and says what it waited for when that takes too long or a process has ended.
func (r *rig) await(ctx context.Context, what string, ask func() (bool, error)) error {
	deadline := time.Now().Add(time.Minute)
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited a minute for %s", what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.server.Ended():
			return fmt.Errorf("the server has ended:\n%s", r.server.Output())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// push sends a webhook and gives how long the 202 took, with the delivery's id.
func (r *rig) push(ctx context.Context) (time.Duration, string, error) {
	body := fmt.Appendf(nil, `{"ref":"refs/heads/main","after":%q,"repository":{"full_name":%q,"default_branch":"main"}}`, r.sha, repoName)
	mac := hmac.New(sha256.New, []byte(sourceSecret))
	mac.Write(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.hook, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Event-Type", "push")
	req.Header.Set("X-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	sent := time.Now()
	resp, err := r.sender.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	took := time.Since(sent)
	if err != nil {
		return 0, "", err
	}
	if resp.StatusCode != http.StatusAccepted {
		return 0, "", fmt.Errorf("the webhook was answered %s: %s", resp.Status, answer)
	}
	var accepted struct{ DeliveryID string }
	if err := json.Unmarshal(answer, &accepted); err != nil || accepted.DeliveryID == "" {
		return 0, "", errors.Join(errors.New("the webhook's answer names no delivery"), err)
	}
	return took, accepted.DeliveryID, nil
}

// runs lists all runs of the measure, newest first.
func (r *rig) runs(ctx context.Context) ([]adminwire.Run, error) {
	const page = 100
	var all []adminwire.Run
	for {
		list, err := r.api.Runs(ctx, client.RunQuery{Limit: page, Offset: len(all)})
		if err != nil {
			return nil, err
		}
		all = append(all, list.Runs...)
		if len(list.Runs) < page {
			return all, nil
		}
	}
}

// count asks how many runs are in one of the states.
func (r *rig) count(ctx context.Context, statuses string) (int, error) {
	list, err := r.api.Runs(ctx, client.RunQuery{Status: statuses, Limit: 1})
	return list.Total, err
}
