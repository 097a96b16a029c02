package runs

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

func (a *admin) attestationsCommand() *cobra.Command {
	var download string
	cmd := &cobra.Command{
		Use:   "attestations RUN",
		Short: "List what the jobs of a run attested, with the verdict on each",
		Long: "Lists the provenance bundles of a run. With --download a bundle is written to the standard output instead: it is named by the\n" +
			"digest of its subject, or by the beginning of it.",
		Example: "  kici admin runs attestations latest\n  kici admin runs attestations latest --download 9f86d081 > app.kici.json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
	}
	cmd.Flags().StringVar(&download, "download", "", "digest of the subject whose bundle is written to the standard output")
	cmd.RunE = a.ofRun(func(ctx context.Context, c *client.Client, id string) error {
		list, err := c.Attestations(ctx, id)
		if err != nil {
			return err
		}
		if download != "" {
			return a.writeBundle(ctx, c, id, list, download)
		}
		if a.JSON {
			return a.PrintJSON(adminwire.AttestationList{Attestations: list})
		}
		t := console.Table{What: "attestations", Head: []string{"SUBJECT", "DIGEST", "VERDICT", "WHY", "BYTES", "JOB", "CREATED"}}
		for _, f := range list {
			why := "-"
			if f.VerifyReason != nil {
				why = *f.VerifyReason
			}
			t.Row(f.SubjectName, f.SubjectDigest, f.VerifyStatus, why, strconv.FormatInt(f.SizeBytes, 10), f.JobID, console.When(f.CreatedAt))
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

// writeBundle writes the one bundle whose subject has a digest that begins so.
func (a *admin) writeBundle(ctx context.Context, c *client.Client, id string, list []adminwire.Attestation, digest string) error {
	var found []adminwire.Attestation
	for _, f := range list {
		if strings.HasPrefix(f.SubjectDigest, digest) {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		return fmt.Errorf("%d attestations of the run are about a subject whose digest begins with %s, not one", len(found), digest)
	}
	raw, err := c.Bundle(ctx, id, found[0].JobID, found[0].SubjectDigest)
	if err != nil {
		return err
	}
	_, err = a.Stdout.Write(raw)
	return err
}
