//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/bench"
	"kici/internal/cli/console"
)

func benchCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the whole system on this machine",
		Long: "Starts a server of its own, with SQLite or on the empty PostgreSQL database that --postgres names, and agents, and measures\n" +
			"from outside. Run it on a machine that does nothing else.",
		Example: "  kici bench latency -n 50\n  kici bench burst -n 200 --agents 4\n  kici bench burst --stub --delay 0s --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, m := range measures {
		cmd.AddCommand(measureCommand(p, m))
	}
	cmd.AddCommand(chaosCommand(p))
	return cmd
}

// measure is a command of its own, with its usual numbers.
type measure struct {
	name, short, example string

	n      int    // 0 for a measure that has no such number
	counts string // what -n counts
	agents int    // 0 for a measure without agents
	real   bool   // its agents are real ones unless it is told otherwise
	run    func(context.Context, bench.Options) (bench.Result, error)
}

var measures = []measure{
	{name: "cold", short: "Time from the start of a server until it answers", example: "-n 20", n: 10, counts: "starts", run: bench.Cold},
	{name: "idle", short: "Memory of a server and its agents without work", example: "--stub --agents 10000", agents: 1, real: true, run: bench.Idle},
	{name: "latency", short: "From a webhook to its 202, its dispatch and its success, one after the other", example: "-n 50",
		n: 20, counts: "webhooks", agents: 1, real: true, run: bench.Latency},
	{name: "burst", short: "Many webhooks at once: rate, processor time, and whether a run is lost or stuck", example: "-n 200 --stub --delay 0s",
		n: 200, counts: "webhooks", agents: 4, real: true, run: bench.Burst},
	{name: "claims", short: "Jobs claimed in a second, with an empty queue and behind 100,000 that fit nobody", example: "-n 10000",
		n: 5000, counts: "jobs", run: bench.Claims},
	{name: "registration", short: "From a webhook to a registered run of 1,000 jobs", example: "-n 20", n: 5, counts: "runs", run: bench.Registration},
	{name: "status", short: "Status updates of steps that are taken in a second", example: "--agents 8", n: 2000, counts: "updates of each agent",
		agents: 4, run: bench.Status},
	{name: "logs", short: "A log of one step: how fast it is taken in, and how fast it opens", example: "-n 200", n: 1024, counts: "MiB", run: bench.Logs},
	{name: "restart", short: "A killed server comes back: time until all agents have their jobs again, and whether one is lost",
		example: "--agents 250", agents: 1000, run: bench.Restart},
}

func measureCommand(p Process, m measure) *cobra.Command {
	o := bench.Options{N: 1, Stub: !m.real}
	var asJSON bool
	cmd := &cobra.Command{
		Use:     m.name,
		Short:   m.short,
		Example: "  kici bench " + m.name + " --json\n  kici bench " + m.name + " " + m.example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.N < 1 || o.Agents < 0 || o.Delay < 0 {
				return console.Usage("-n must be at least 1, --agents and --delay must not be negative")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Progress = func(text string) { fmt.Fprintf(p.Stderr, "  %s\n", text) }
			result, err := m.run(ctx, o)
			if err != nil {
				result.Status = "failed"
			}
			return errors.Join(printResult(p, result, asJSON), err, failedResult(result, err))
		},
	}
	cmd.Flags().StringVar(&o.Postgres, "postgres", "", "URL of an empty PostgreSQL database to use instead of SQLite")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	if m.n > 0 {
		cmd.Flags().IntVarP(&o.N, "n", "n", m.n, m.counts)
	}
	if m.agents > 0 {
		cmd.Flags().IntVar(&o.Agents, "agents", m.agents, "agents to start")
	}
	if m.real {
		cmd.Flags().BoolVar(&o.Stub, "stub", false, "agents that run nothing and answer that it succeeded")
		cmd.Flags().DurationVar(&o.Delay, "delay", 100*time.Millisecond, "time that a stub agent takes for a job, 0s to answer at once")
	}
	return cmd
}

// failedResult makes a measure in which runs went missing end with an error.
func failedResult(r bench.Result, err error) error {
	if err == nil && r.Status != "success" {
		return errors.New("not all runs succeeded")
	}
	return nil
}

func printResult(p Process, r bench.Result, asJSON bool) error {
	if asJSON {
		return p.PrintJSON(r)
	}
	fmt.Fprintf(p.Stdout, "%s (%s): %s\n", r.Measure, r.Store, r.Status)
	for _, f := range []struct {
		name   string
		figure *bench.Figure
	}{{"cold start", r.ColdStart}, {"POST to 202", r.HTTP202}, {"POST to dispatch", r.Dispatch}, {"POST to success", r.Success},
		{"POST to registered", r.Registration}, {"first page of the log", r.OpenFirst}, {"last page of the log", r.OpenLast}} {
		if f.figure != nil {
			fmt.Fprintf(p.Stdout, "  %-22s %s\n", f.name, f.figure)
		}
	}
	for _, n := range []struct {
		name   string
		number *float64
		unit   string
	}{{"rate", r.RunsPerSec, "runs/s"}, {"server CPU", r.ServerCPU, "ms/run"}, {"claims", r.Claims, "/s"},
		{"processor time", r.ClaimCPU, "ms/claim"}, {"claims behind others", r.ClaimsBehind, "/s"}, {"status updates", r.Updates, "/s"}, {"server CPU", r.UpdateCPU, "ms/update"},
		{"answers again after", r.Ready, "ms"}, {"all re-owned after", r.Reowned, "ms"}, {"log taken in", r.Ingest, "MiB/s"},
		{"server CPU", r.LogCPU, "ms/MiB"}, {"server memory", r.ServerRSS, "MiB"}, {"agent memory", r.AgentRSS, "MiB"}} {
		if n.number != nil {
			fmt.Fprintf(p.Stdout, "  %-22s %.4g %s\n", n.name, *n.number, n.unit)
		}
	}
	if r.Runs != nil {
		fmt.Fprintf(p.Stdout, "  %-22s %d of %d succeeded, %d lost, %d stuck\n", "runs", *r.Succeeded, *r.Runs, *r.Lost, *r.Stuck)
	}
	if r.Jobs != nil {
		fmt.Fprintf(p.Stdout, "  %-22s %d, %d lost, %d given out again\n", "jobs", *r.Jobs, *r.Lost, *r.Repeated)
	}
	return nil
}
