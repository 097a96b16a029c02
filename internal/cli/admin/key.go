package admin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
)

// rotateKeyCommand is the second of three steps, between two starts of the server.
func (a *admin) rotateKeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate-key",
		Short: "Seal all secrets with the present master key",
		Long: "Seals everything that the server keeps sealed with its present master key. Before: start every server with the new key as\n" +
			"KICI_SECRET_KEY and the previous one as KICI_SECRET_KEY_OLD. Afterwards, when nothing was skipped, take the previous one\n" +
			"away. Interrupted, it is run again.",
		Example: "  kici admin rotate-key",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		done, err := c.RotateKey(ctx)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(done)
		}
		t := console.Table{What: "values", Head: []string{"WHAT", "SEALED ANEW", "SKIPPED"}}
		t.Row("secrets", fmt.Sprint(done.ReEncrypted), "0")
		t.Row("sources", fmt.Sprint(done.ReEncryptedConfigs), fmt.Sprint(done.SkippedConfigs))
		t.Row("keys of runs", fmt.Sprint(done.ReEncryptedRunKeys), fmt.Sprint(done.SkippedRunKeys))
		t.Row("secret outputs", fmt.Sprint(done.ReEncryptedSecretOutputs), fmt.Sprint(done.SkippedSecretOutputs))
		t.Row("signing keys", fmt.Sprint(done.ReEncryptedSigningKeys), fmt.Sprint(done.SkippedSigningKeys))
		t.Write(a.Stdout)
		if done.Skipped() > 0 {
			fmt.Fprintln(a.Stderr, "Warning: what was skipped cannot be read, with the previous key either")
		}
		return nil
	})
	return cmd
}
