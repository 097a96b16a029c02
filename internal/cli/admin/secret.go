package admin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// defaultScope is the scope of which every job gets the secrets.
const defaultScope = "default"

// secretCommand has no verb that shows a value: the server gives none.
func (a *admin) secretCommand() *cobra.Command {
	return console.Group("secret", "Secrets that jobs get; values go in and never come out", []string{"secrets"},
		a.secretSetCommand(), a.secretListCommand(), a.secretRemoveCommand())
}

func (a *admin) secretSetCommand() *cobra.Command {
	var scope string
	var noTrim bool
	cmd := &cobra.Command{
		Use:   "set KEY",
		Short: "Store a secret; the value is asked for, or read from stdin",
		Long:  "Stores a secret. On a terminal the value is asked for without echo; otherwise it is the whole of stdin without its last\nline end. It is never taken from the command line, where others can see it.",
		Example: "  kici admin secret set NPM_TOKEN\n  kici admin secret set DEPLOY_KEY --scope deploy < id_ed25519\n" +
			"  pass show npm | kici admin secret set NPM_TOKEN",
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&scope, "scope", defaultScope, "scope of the secret")
	cmd.Flags().BoolVar(&noTrim, "no-trim", false, "keep the line end at the end of stdin")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		value, err := a.secretValue("Value of "+args[0]+": ", !noTrim)
		if err != nil {
			return err
		}
		if value == "" {
			fmt.Fprintln(a.Stderr, "Warning: the value is empty")
		}
		if err := c.SetSecret(ctx, a.Org, scope, args[0], value); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"set": true})
		}
		fmt.Fprintf(a.Stdout, "Secret %s set in scope %s.\n", args[0], scope)
		return nil
	})
	return cmd
}

// secretListCommand lists names only. Without a scope it goes through all of them, a request for each.
func (a *admin) secretListCommand() *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the names of secrets, of one scope or of all",
		Example: "  kici admin secret list\n  kici admin secret list --scope deploy",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&scope, "scope", "", "one scope (default: all)")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		if scope != "" && a.JSON {
			keys, err := c.SecretKeys(ctx, a.Org, scope)
			if err != nil {
				return err
			}
			return a.PrintJSON(adminwire.Keys{Keys: keys})
		}
		scopes := []string{scope}
		if scope == "" {
			var err error
			if scopes, err = c.SecretScopes(ctx, a.Org); err != nil {
				return err
			}
		}
		t := console.Table{What: "secrets", Head: []string{"SCOPE", "KEY"}}
		byScope := map[string][]string{}
		for _, s := range scopes {
			keys, err := c.SecretKeys(ctx, a.Org, s)
			if err != nil {
				return err
			}
			byScope[s] = keys
			for _, key := range keys {
				t.Row(s, key)
			}
		}
		if a.JSON {
			return a.PrintJSON(map[string]any{"scopes": byScope})
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

func (a *admin) secretRemoveCommand() *cobra.Command {
	var scope string
	var yes bool
	cmd := &cobra.Command{
		Use:     "remove KEY",
		Aliases: []string{"delete", "rm"},
		Short:   "Remove a secret",
		Example: "  kici admin secret remove NPM_TOKEN --yes",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&scope, "scope", defaultScope, "scope of the secret")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		if err := a.Confirm(yes, fmt.Sprintf("Remove secret %s of scope %s?", args[0], scope)); err != nil {
			return err
		}
		if err := c.RemoveSecret(ctx, a.Org, scope, args[0]); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"deleted": true})
		}
		fmt.Fprintf(a.Stdout, "Secret %s removed from scope %s.\n", args[0], scope)
		return nil
	})
	return cmd
}
