package runs

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
)

func (a *admin) secretOutputsCommand() *cobra.Command {
	var key string
	var reveal bool
	cmd := &cobra.Command{
		Use:     "secret-outputs RUN",
		Short:   "List the secret outputs of a run as long as it goes on",
		Long:    "Lists what jobs of a run gave to the jobs that need them in secret. With the end of the run the values are gone. With --reveal\nthey are shown, which the audit log of secrets tells of; with --json they are printed as they are.",
		Example: "  kici admin runs secret-outputs latest --output-key TOKEN --reveal",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
	}
	cmd.Flags().StringVar(&key, "output-key", "", "only outputs of this name")
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show the values")
	cmd.RunE = a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
		list, err := c.SecretOutputs(ctx, id, key, reveal)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(list)
		}
		t := console.Table{What: "secret outputs", Head: []string{"JOB", "NAME", "VALUE", "CREATED", "ERROR"}}
		for _, o := range list.Outputs {
			t.Row(o.JobID, o.OutputKey, o.Value, console.When(o.CreatedAt), o.RevealError)
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

func (a *admin) ephemeralKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ephemeral-key RUN",
		Short:   "Tell whether a run has the key for which agents seal its secret outputs; it goes with the end of the run",
		Example: "  kici admin runs ephemeral-key latest",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
			key, err := c.RunKey(ctx, id)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(key)
			}
			fmt.Fprintf(a.Stdout, "exists=%t created=%s\n", key.Exists, console.When(key.CreatedAt))
			return nil
		}),
	}
}
