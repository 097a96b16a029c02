// Package vault is the verbs of administration that are about contexts and what they bring to jobs: secrets, variables, rules,
// what organisations decide, and the logs of who did what with it.
package vault

import (
	"github.com/spf13/cobra"

	"kici/internal/cli/remote"
)

// admin is what they have of administration.
type admin struct{ *remote.Server }

// Commands are those verbs.
func Commands(s *remote.Server) []*cobra.Command {
	a := &admin{s}
	return []*cobra.Command{a.secretCommand(), a.contextCommand(), a.variableCommand(), a.orgCommand(), a.auditCommand(), a.accessLogCommand()}
}
