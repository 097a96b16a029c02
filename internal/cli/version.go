package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"kici/internal/core/lockfile"
	"kici/internal/kit/version"
)

func versionCommand(p Process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Tell what this binary is",
		Example: "  kici version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version.Read()
			if asJSON {
				return p.PrintJSON(struct {
					version.Info
					LockSchema int `json:"lockSchema"`
				}{v, lockfile.SchemaVersion})
			}
			fmt.Fprintf(p.Stdout, "kici %s (lock file schema %d, %s)\n", v.Version, lockfile.SchemaVersion, v.Go)
			if v.Commit != "" {
				fmt.Fprintf(p.Stdout, "commit %s, %s\n", v.Commit, v.Date)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
