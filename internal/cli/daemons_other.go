//go:build !unix

package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// daemons are the verbs that serve: none here. Servers and agents run on Linux and macOS; this system has the verbs of
// authors and of administration.
func daemons() []verb { return nil }

// runnerCommand is for agents, which do not run here.
func runnerCommand(Process) *cobra.Command {
	return &cobra.Command{
		Use:    "__runner",
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return errors.New("agents do not run on this system") },
	}
}
