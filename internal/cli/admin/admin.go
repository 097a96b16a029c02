// Package admin is the verbs of administration: kici admin, with the verbs about runs among them.
package admin

import (
	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/cli/remote"
	"kici/internal/cli/runs"
	"kici/internal/cli/vault"
	"kici/internal/client"
)

// admin is those verbs that are about the server and what is kept there.
type admin struct{ *remote.Server }

// Command is kici admin, everything that needs a server. Its flags are accepted before and after a verb.
func Command(p console.Process) *cobra.Command {
	a := &admin{&remote.Server{Process: p}}
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Administer a server: sources, secrets, tokens, runs, the queue",
		Long: "Administers a server over its API. On the machine of a running kici server nothing needs to be said; elsewhere set\n" +
			"KICI_ADMIN_URL and KICI_ADMIN_TOKEN. With --json every verb prints the API's answer.",
		Example: "  kici admin source add local work --base ~/git\n  kici admin trigger work main --repo app\n  kici admin runs watch latest\n  kici admin queue",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringVarP(&a.Where.URL, "url", "u", "", "URL of the server (KICI_ADMIN_URL; else the one that runs on this machine)")
	flags.StringVarP(&a.Where.Token, "token", "t", "", "admin token; others on this machine can see it, prefer KICI_ADMIN_TOKEN")
	flags.StringVar(&a.Where.DataDir, "data", "", "data folder of the server on this machine (KICI_DATA_DIR)")
	flags.StringVar(&a.Org, "org", client.Org, "organisation; without it runs, holds and the queue are those of all")
	flags.BoolVar(&a.JSON, "json", false, "print the API's answer as JSON")
	cmd.AddCommand(a.tokenCommand(), a.agentTokenCommand(), a.agentsCommand(), a.hostCommand(), a.sourceCommand(), a.eventCommand(),
		a.rotateKeyCommand(), a.signingKeyCommand(), a.attestationsCommand(),
		a.orchestratorCommand(), a.backupCommand(), a.restoreCommand())
	cmd.AddCommand(vault.Commands(a.Server)...)
	cmd.AddCommand(runs.Commands(a.Server)...)
	return cmd
}
