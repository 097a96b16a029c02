// Package demo shows the whole way: a repository with a workflow, a server and an agent as processes of their own, a
// push that arrives as a webhook, and the run to its end.
package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/rig"
)

// workflow is what the demo runs: three jobs with needs, a matrix, outputs passed on, and a secret.
//
//go:embed workflow.ts
var workflow []byte

// Screen shows a run while it goes on.
type Screen interface {
	// Show is called whenever something of the run may have changed.
	Show(run adminwire.RunDetail, jobs []adminwire.Job)
	// Line is a new line of a log.
	Line(log adminwire.LogName, text string)
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

// repoName is the repository's identifier: its path below the base folder of the source.
const repoName = "demo/hello"

// Run runs the demo. A run that does not succeed, or a secret that shows, is an error.
func Run(ctx context.Context, o Options) (Result, error) {
	d := &demo{Options: o}
	result, err := d.run(ctx)
	if d.rig != nil {
		defer d.rig.Close()
	}
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
	rig  *rig.Rig
	seen strings.Builder // all log lines, to look for the secret
}

// say prints a line of what is being done.
func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

func (d *demo) run(ctx context.Context) (Result, error) {
	if err := d.start(ctx); err != nil {
		return Result{}, err
	}
	d.say("A push of %.8s arrives as a webhook\n", d.rig.SHA)
	delivery, err := d.rig.Push(ctx)
	if err != nil {
		return Result{}, err
	}
	run, jobs, firstLog, err := d.watch(ctx, delivery)
	d.Screen.Close()
	if err != nil {
		return Result{}, err
	}
	return d.judge(run, jobs, delivery.Sent, firstLog)
}

// start sets the system up, so that the times measured afterwards are those of a run and not of a start.
func (d *demo) start(ctx context.Context) (err error) {
	if d.rig, err = rig.New(ctx, rig.Options{Name: "demo", Repo: repoName, Workflow: workflow}); err != nil {
		return err
	}
	d.say("A repository with a workflow: compiled, committed\nA server on %s", d.rig.Server.URL)
	if err := d.rig.API.SetSecret(ctx, client.Org, "default", secretKey, secretValue); err != nil {
		return err
	}
	if err := d.rig.StartAgent("demo-agent"); err != nil {
		return err
	}
	if err := d.rig.AwaitAgents(ctx, 1); err != nil {
		return err
	}
	d.say("An agent, registered")
	return nil
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
		r.URL, r.DataFolder = d.rig.Server.URL, d.rig.Server.Data
	}
	switch {
	case run.Status != ci.RunSuccess:
		if run.FailureReason != nil {
			r.FailedWhy = *run.FailureReason
		}
		return r, fmt.Errorf("the run ended as %s: %s\n%w", run.Status, r.FailedWhy, d.rig.Words())
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
		d.say("  kici admin --data %s %s", d.rig.Server.Data, verb)
	}
}
