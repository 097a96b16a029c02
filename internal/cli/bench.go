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
)

func (p Process) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the whole system on this machine",
		Long: "Starts a server of its own, with SQLite or on the empty PostgreSQL database that --postgres names, and agents, and measures\n" +
			"from outside. Run it on a machine that does nothing else.",
		Example: "  kici bench latency -n 50\n  kici bench burst -n 200 --agents 4\n  kici bench burst --stub --delay 0s --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		p.measure("cold", "Time from the start of a server until it answers", 10, 0, bench.Cold),
		p.measure("idle", "Memory of a server and its agents without work", 1, 1, bench.Idle),
		p.measure("latency", "From a webhook to its 202, its dispatch and its success, one after the other", 20, 1, bench.Latency),
		p.chaosCommand(),
		p.measure("burst", "Many webhooks at once: rate, processor time, and whether a run is lost or stuck", 200, 4, bench.Burst),
	)
	return cmd
}

// measure is the command of one measure, with its usual numbers.
func (p Process) measure(name, short string, n, agents int, run func(context.Context, bench.Options) (bench.Result, error)) *cobra.Command {
	var o bench.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:     name,
		Short:   short,
		Example: "  kici bench " + name + " --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.N < 1 || o.Agents < 0 || o.Delay < 0 {
				return usage("-n must be at least 1, --agents and --delay must not be negative")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Progress = func(text string) { fmt.Fprintf(p.Stderr, "  %s\n", text) }
			result, err := run(ctx, o)
			if err != nil {
				result.Status = "failed"
			}
			return errors.Join(p.printResult(result, asJSON), err, failedResult(result, err))
		},
	}
	cmd.Flags().IntVarP(&o.N, "n", "n", n, "repetitions, or webhooks of a burst")
	cmd.Flags().StringVar(&o.Postgres, "postgres", "", "URL of an empty PostgreSQL database to use instead of SQLite")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	if agents > 0 {
		cmd.Flags().IntVar(&o.Agents, "agents", agents, "agents to start")
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

func (p Process) printResult(r bench.Result, asJSON bool) error {
	if asJSON {
		return p.printJSON(r)
	}
	fmt.Fprintf(p.Stdout, "%s (%s): %s\n", r.Measure, r.Store, r.Status)
	for _, f := range []struct {
		name   string
		figure *bench.Figure
	}{{"cold start", r.ColdStart}, {"POST to 202", r.HTTP202}, {"POST to dispatch", r.Dispatch}, {"POST to success", r.Success}} {
		if f.figure != nil {
			fmt.Fprintf(p.Stdout, "  %-22s %s\n", f.name, f.figure)
		}
	}
	for _, n := range []struct {
		name   string
		number *float64
		unit   string
	}{{"rate", r.RunsPerSec, "runs/s"}, {"server CPU", r.ServerCPU, "ms/run"}, {"server memory", r.ServerRSS, "MiB"}, {"agent memory", r.AgentRSS, "MiB"}} {
		if n.number != nil {
			fmt.Fprintf(p.Stdout, "  %-22s %.1f %s\n", n.name, *n.number, n.unit)
		}
	}
	if r.Runs != nil {
		fmt.Fprintf(p.Stdout, "  %-22s %d of %d succeeded, %d lost, %d stuck\n", "runs", *r.Succeeded, *r.Runs, *r.Lost, *r.Stuck)
	}
	return nil
}
