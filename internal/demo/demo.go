// Package demo shows the whole way: a repository with a workflow, a server and an agent as processes of their own, a
// push that arrives as a webhook, and the run to its end.
package demo

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
	"path/filepath"
	"strings"
	"time"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/proc"
)

// Screen shows a run while it goes on.
type Screen interface {
	// Show is called whenever something of the run may have changed.
	Show(run adminwire.RunDetail, jobs []adminwire.Job)
	// Line is a new line of a step's log.
	Line(job, step, text string)
	// Close leaves the last state on the screen.
	Close()
}

// Options say how the demo runs.
type Options struct {
	Out    io.Writer
	Screen Screen
	// Keep leaves server, agent and folder as they are until ctx ends.
	Keep bool
}

// Result is what the demo measured, in milliseconds since the webhook was sent.
type Result struct {
	Status     string   `json:"status"` // success, else how the run ended
	RunID      string   `json:"runId"`
	Dispatch   float64  `json:"webhookToDispatchMs"`
	FirstLog   float64  `json:"webhookToFirstLogMs"`
	Success    float64  `json:"webhookToSuccessMs"`
	Jobs       []JobEnd `json:"jobs"`
	FailedWhy  string   `json:"reason,omitempty"`
	DataFolder string   `json:"dataFolder,omitempty"` // with Keep
	URL        string   `json:"url,omitempty"`        // with Keep
}

// JobEnd is how one job ended.
type JobEnd struct {
	Name       string       `json:"name"`
	Status     ci.JobStatus `json:"status"`
	DurationMs int64        `json:"durationMs"`
}

// The secret that must appear masked wherever it is printed.
const (
	secretKey   = "SIGNING_KEY"
	secretValue = "hunter2-is-not-a-good-key"
)

// longest bounds the run: it takes well under a second on any machine.
const longest = 60 * time.Second

// Run runs the demo. A run that does not succeed, or a secret that shows, is an error.
func Run(ctx context.Context, o Options) (Result, error) {
	base, err := os.MkdirTemp("", "kici-demo-")
	if err != nil {
		return Result{}, fmt.Errorf("make a folder for the demo: %w", err)
	}
	d := &demo{Options: o, base: base}
	defer d.end()
	result, err := d.run(ctx)
	if err != nil || !o.Keep {
		return result, err
	}
	d.explainKeep(result)
	<-ctx.Done()
	return result, nil
}

// demo is one run of it.
type demo struct {
	Options
	base   string
	server *proc.Server
	agent  *proc.Process
	api    *client.Client
	source adminwire.Source
	hmac   string
	seen   strings.Builder // all log lines, to look for the secret
}

func (d *demo) end() {
	if d.agent != nil {
		d.agent.Stop()
	}
	if d.server != nil {
		d.server.Stop()
	}
	_ = os.RemoveAll(d.base) // a leftover in the temporary folder is no failure of the demo
}

func (d *demo) run(ctx context.Context) (Result, error) {
	d.say("A repository with a workflow: compiled, committed")
	_, sha, err := makeRepository(ctx, filepath.Join(d.base, "repositories"))
	if err != nil {
		return Result{}, err
	}
	if err := d.start(ctx); err != nil {
		return Result{}, err
	}
	d.say("A push of %.8s arrives as a webhook\n", sha)
	sent := time.Now()
	deliveryID, err := d.push(ctx, sha)
	if err != nil {
		return Result{}, err
	}
	run, jobs, firstLog, err := d.watch(ctx, deliveryID)
	d.Screen.Close()
	if err != nil {
		return Result{}, err
	}
	return d.judge(run, jobs, sent, firstLog)
}

// say prints a line of what is being done.
func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

// start runs the server and the agent and tells the server what it must know.
func (d *demo) start(ctx context.Context) (err error) {
	if d.server, err = proc.StartServer(ctx, filepath.Join(d.base, "server")); err != nil {
		return err
	}
	d.api, err = client.Connect(client.Where{URL: d.server.URL, DataDir: d.server.Data, Env: func(string) string { return "" }})
	if err != nil {
		return err
	}
	d.say("A server on %s", d.server.URL)
	if err := d.configure(ctx); err != nil {
		return err
	}
	token, err := d.api.CreateAgentToken(ctx, adminwire.NewAgentToken{CreatedBy: "demo"})
	if err != nil {
		return err
	}
	work := filepath.Join(d.base, "agent")
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	if d.agent, err = proc.StartAgent(d.server, "demo-agent", token.Token, work, "linux"); err != nil {
		return err
	}
	if err := d.awaitAgent(ctx); err != nil {
		return err
	}
	d.say("An agent, registered")
	return nil
}

func (d *demo) configure(ctx context.Context) (err error) {
	d.hmac = hex.EncodeToString(sha256.New().Sum([]byte(d.base)))[:32] // only this server knows it, and it dies with the demo
	name, method := "demo", "hmac_sha256"
	verification, err := json.Marshal(map[string]string{"secret": d.hmac})
	if err != nil {
		return err
	}
	d.source, err = d.api.CreateSource(ctx, adminwire.SourceSettings{OrgID: client.Org, Name: &name, VerificationMethod: &method,
		VerificationConfig: verification, LocalConfig: &adminwire.LocalConfig{RepoBasePath: filepath.Join(d.base, "repositories")}})
	if err != nil {
		return err
	}
	return d.api.SetSecret(ctx, client.Org, "default", secretKey, secretValue)
}

// awaitAgent waits until the agent has registered, so that the times are those of a run and not of a start.
func (d *demo) awaitAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for {
		hosts, err := d.api.Hosts(ctx)
		if err != nil {
			return err
		}
		if len(hosts) > 0 && hosts[0].Status == "ready" {
			return nil
		}
		if err := d.pause(ctx); err != nil {
			return fmt.Errorf("the agent does not register: %w", err)
		}
	}
}

// pause waits for a moment, or tells why there is no use in waiting.
func (d *demo) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return errors.Join(ctx.Err(), fmt.Errorf("server: %s\nagent: %s", d.server.Output(), d.agent.Output()))
	case <-d.server.Ended():
		return fmt.Errorf("the server has ended:\n%s", d.server.Output())
	case <-d.agent.Ended():
		return fmt.Errorf("the agent has ended:\n%s", d.agent.Output())
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}

// push sends what a post-receive hook would send, and gives the delivery's id.
func (d *demo) push(ctx context.Context, sha string) (string, error) {
	body, err := json.Marshal(map[string]any{"ref": "refs/heads/main", "after": sha,
		"repository":  map[string]string{"full_name": repoName, "default_branch": "main"},
		"head_commit": map[string]string{"message": "Say hello in four jobs"}})
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, []byte(d.hmac))
	mac.Write(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.server.URL+d.source.WebhookPath, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Event-Type", "push")
	req.Header.Set("X-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusAccepted {
		return "", fmt.Errorf("the webhook was answered %s: %s", resp.Status, answer)
	}
	var accepted struct{ DeliveryID string }
	return accepted.DeliveryID, json.Unmarshal(answer, &accepted)
}

// judge turns the end of the run into the demo's own.
func (d *demo) judge(run adminwire.RunDetail, jobs []adminwire.Job, sent, firstLog time.Time) (Result, error) {
	since := func(t time.Time) float64 {
		return float64(t.Sub(sent).Round(100*time.Microsecond).Microseconds()) / 1000
	}
	r := Result{Status: string(run.Status), RunID: run.RunID, FirstLog: since(firstLog), Success: since(run.CompletedAt.Time)}
	for i, j := range jobs {
		if i == 0 {
			r.Dispatch = since(j.DispatchedAt.Time)
		}
		end := JobEnd{Name: j.JobName, Status: j.Status}
		if j.DurationMs != nil {
			end.DurationMs = *j.DurationMs
		}
		r.Jobs = append(r.Jobs, end)
	}
	if d.Keep {
		r.URL, r.DataFolder = d.server.URL, d.server.Data
	}
	switch {
	case run.Status != ci.RunSuccess:
		if run.FailureReason != nil {
			r.FailedWhy = *run.FailureReason
		}
		return r, fmt.Errorf("the run ended as %s: %s\nserver: %s\nagent: %s", run.Status, r.FailedWhy, d.server.Output(), d.agent.Output())
	case strings.Contains(d.seen.String(), secretValue):
		r.Status = "failed"
		return r, errors.New("the secret shows in a log")
	case !strings.Contains(d.seen.String(), "signed with ***"):
		r.Status = "failed"
		return r, errors.New("the line with the masked secret is missing from the log")
	}
	return r, nil
}

func (d *demo) explainKeep(r Result) {
	d.say("\nServer and agent go on until you press ctrl-c. Meanwhile, in another terminal:")
	for _, verb := range []string{"runs show " + r.RunID, "runs logs " + r.RunID, "runs explain " + r.RunID, "trigger demo main --repo " + repoName} {
		d.say("  kici admin --data %s %s", d.server.Data, verb)
	}
}
