package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kici/internal/cli/console"
	"kici/internal/client"
)

// admin is what every verb of administration has: the process, how to reach the server, and how to print.
type admin struct {
	console.Process
	where client.Where
	org   string
	json  bool
}

// adminCommand is everything that needs a server. Its flags are accepted before and after a verb.
func adminCommand(p console.Process) *cobra.Command {
	a := &admin{Process: p}
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
	flags.StringVarP(&a.where.URL, "url", "u", "", "URL of the server (KICI_ADMIN_URL; else the one that runs on this machine)")
	flags.StringVarP(&a.where.Token, "token", "t", "", "admin token; others on this machine can see it, prefer KICI_ADMIN_TOKEN")
	flags.StringVar(&a.where.DataDir, "data", "", "data folder of the server on this machine (KICI_DATA_DIR)")
	flags.StringVar(&a.org, "org", client.Org, "organisation")
	flags.BoolVar(&a.json, "json", false, "print the API's answer as JSON")
	cmd.AddCommand(a.tokenCommand(), a.agentTokenCommand(), a.agentsCommand(), a.hostCommand(), a.sourceCommand(), a.triggerCommand(), a.deliveriesCommand(), a.eventCommand(),
		a.secretCommand(), a.rotateKeyCommand(), a.contextCommand(), a.runsCommand(), a.queueCommand(), a.executionCommand(), a.orchestratorCommand(),
		a.heldRunCommand(), a.backupCommand(), a.restoreCommand())
	return cmd
}

// connect makes the client. It is done when a verb runs, so that help works without a server.
func (a *admin) connect() (*client.Client, error) {
	if a.where.Token != "" {
		fmt.Fprintln(a.Stderr, "Warning: --token can be seen by other users of this machine; prefer KICI_ADMIN_TOKEN")
	}
	a.where.Env = a.Env
	return client.Connect(a.where)
}

// with runs a verb with a client.
func (a *admin) with(verb func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		return verb(cmd.Context(), c, args)
	}
}

// maxSecret bounds what is read as a secret value. The server takes less and says so.
const maxSecret = 1 << 20

// secretValue reads a value without showing it: from a terminal without echo, else the whole of stdin without its last
// line end. A value never comes from the command line, where other users and the shell's history see it.
func (a *admin) secretValue(prompt string, trim bool) (string, error) {
	if fd, ok := console.Terminal(a.Stdin); ok {
		fmt.Fprint(a.Stderr, prompt)
		raw, err := term.ReadPassword(fd)
		fmt.Fprintln(a.Stderr)
		if err != nil {
			return "", fmt.Errorf("read the value: %w", err)
		}
		return string(raw), nil
	}
	raw, err := io.ReadAll(io.LimitReader(a.Stdin, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	if len(raw) > maxSecret {
		return "", fmt.Errorf("the value is larger than %d bytes", maxSecret)
	}
	value := string(raw)
	if trim {
		value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	}
	return value, nil
}
