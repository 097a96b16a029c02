//go:build unix

package cli

import (
	"errors"
	"fmt"
	"maps"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/server/chaos"
)

func chaosCommand(p Process) *cobra.Command {
	o := chaos.Options{Settle: 2 * time.Minute}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Kill servers and agents at work, and see whether a promise is broken",
		Long: "Starts servers and agents of its own, gives them a stream of runs, and meanwhile kills, pauses and restarts them and disturbs\n" +
			"their connections. At the end it compares what the steps themselves have noted, what was acknowledged, and what is stored.\n" +
			"--seed repeats what the killer does; when exactly each thing happens is never the same twice.",
		Example: "  kici bench chaos --duration 10m\n  kici bench chaos --servers 3 --postgres postgres://localhost/empty --seed 7 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkChaos(cmd, &o); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Progress = func(text string) { fmt.Fprintf(p.Stderr, "  %s\n", text) }
			result, err := chaos.Run(ctx, o)
			return errors.Join(printChaos(p, result, asJSON), err, failedChaos(result, err))
		},
	}
	cmd.Flags().DurationVar(&o.Duration, "duration", time.Minute, "how long the killer is at work")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 0, "of the killer's plan; without it, one is made up and told")
	cmd.Flags().IntVar(&o.Servers, "servers", 1, "servers, more than one with --postgres only")
	cmd.Flags().IntVar(&o.Agents, "agents", 4, "agents")
	cmd.Flags().StringVar(&o.Postgres, "postgres", "", "URL of an empty PostgreSQL database to use instead of SQLite")
	cmd.Flags().StringVar(&o.Logs, "logs", "", "folder for all that servers and agents write, to look into afterwards")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// checkChaos completes and refuses options.
func checkChaos(cmd *cobra.Command, o *chaos.Options) error {
	switch {
	case o.Duration < time.Second:
		return console.Usage("--duration must be at least 1s")
	case o.Servers < 1 || o.Agents < 1:
		return console.Usage("--servers and --agents must be at least 1")
	case o.Servers > 1 && o.Postgres == "":
		return console.Usage("several servers need a database to share: name it with --postgres")
	}
	if !cmd.Flags().Changed("seed") {
		o.Seed = uint64(time.Now().UnixNano() % 1_000_000)
	}
	return nil
}

// failedChaos makes a broken promise an error.
func failedChaos(r chaos.Result, err error) error {
	if err == nil && r.Status != "success" {
		return fmt.Errorf("%d promises were broken; --seed %d repeats the plan", len(r.Violations), r.Seed)
	}
	return nil
}

func printChaos(p Process, r chaos.Result, asJSON bool) error {
	if asJSON {
		return p.PrintJSON(r)
	}
	fmt.Fprintf(p.Stdout, "chaos (%s): %s\n", r.Store, r.Status)
	fmt.Fprintf(p.Stdout, "  %-22s %d, %d servers, %d agents, %.0f s, at rest %.0f s later\n", "seed", r.Seed, r.Servers, r.Agents, r.Seconds, r.Settled)
	for _, action := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(p.Stdout, "  %-22s %d times\n", action, r.Faults[action])
	}
	for _, status := range slices.Sorted(maps.Keys(r.Runs)) {
		fmt.Fprintf(p.Stdout, "  %-22s %d\n", "runs "+status, r.Runs[status])
	}
	fmt.Fprintf(p.Stdout, "  %-22s %d\n", "reruns among them", r.Reruns)
	fmt.Fprintf(p.Stdout, "  %-22s %d, given out %d times, executed %d times\n", "jobs", r.Jobs, r.Attempts, r.Executions)
	fmt.Fprintf(p.Stdout, "  %-22s %d, all found again unless said below\n", "acknowledged lines", r.AckedLines)
	for _, v := range r.Violations {
		fmt.Fprintf(p.Stdout, "  BROKEN %s: %s\n", v.Promise, v.What)
	}
	return nil
}
