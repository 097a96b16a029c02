package vault

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
		a.secretSetCommand(), a.secretListCommand(), a.secretScopesCommand(), a.secretRemoveCommand(), a.secretPurgeCommand())
}

func (a *admin) secretSetCommand() *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:   "set [ORG SCOPE] KEY",
		Short: "Store a secret; the value is asked for, or read from stdin",
		Long:  "Stores a secret. On a terminal the value is asked for without echo; otherwise it is the whole of stdin without its last\nline end. Flags name other places. Only --value takes it from the command line, where others can see it.",
		Example: "  kici admin secret set NPM_TOKEN\n  kici admin secret set DEPLOY_KEY --scope deploy < id_ed25519\n" +
			"  pass show npm | kici admin secret set NPM_TOKEN",
		Args: cobra.RangeArgs(1, 3),
	}
	cmd.Flags().StringVar(&scope, "scope", defaultScope, "scope of the secret")
	from := valueFlags(cmd)
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		key, scope, err := a.secretPlace(cmd, args, scope)
		if err != nil {
			return err
		}
		text, ok, err := a.read(from, "Value of "+key+": ")
		if err != nil || !ok {
			return err
		}
		if err := c.SetSecret(ctx, a.Org, scope, key, text); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"set": true})
		}
		fmt.Fprintf(a.Stdout, "Secret %s set in scope %s.\n", key, scope)
		return nil
	})
	return cmd
}

// secretPlace is the key and the scope that the arguments and --scope name: KEY, or ORG SCOPE KEY.
func (a *admin) secretPlace(cmd *cobra.Command, args []string, scope string) (key, where string, err error) {
	switch {
	case len(args) == 1:
		return args[0], scope, nil
	case len(args) == 2:
		return "", "", console.Usage("two arguments: it must be KEY, or ORG SCOPE KEY")
	case cmd.Flags().Changed("scope"):
		return "", "", console.Usage("the scope is given twice: %s, --scope", args[1])
	}
	a.Org = args[0]
	return args[2], args[1], nil
}

func (a *admin) secretScopesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "scopes [ORG]",
		Short:   "List the scopes of an organisation",
		Example: "  kici admin secret scopes",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.With(func(ctx context.Context, c *client.Client, args []string) error {
			a.inOrg(args, 0)
			scopes, err := c.SecretScopes(ctx, a.Org)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.Scopes{Scopes: scopes})
			}
			t := console.Table{What: "scopes", Head: []string{"SCOPE"}}
			for _, s := range scopes {
				t.Row(s)
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}

// everyOrg is what one types to purge the secrets of all organisations.
const everyOrg = "__ALL__"

// secretPurgeCommand asks for the organisation's name: what it deletes cannot be had back.
func (a *admin) secretPurgeCommand() *cobra.Command {
	var confirm, yes bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete all secrets of an organisation, or of all",
		Long: "Deletes all secrets of the organisation that --org names, and without it of every organisation. It needs --confirm, and then\n" +
			"asks for the name of the organisation, or " + everyOrg + "; --yes answers for those who cannot be asked.",
		Example: "  kici admin secret purge --org default --confirm",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&confirm, "confirm", false, "required: say that this is meant")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for the name")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		org, word := "", everyOrg
		if cmd.Flags().Changed("org") {
			org, word = a.Org, a.Org
		}
		if !confirm {
			return console.Usage("--confirm is required: all secrets of %s would be deleted", word)
		}
		if err := a.Typed(yes, word, "All secrets of "+word+" will be deleted."); err != nil {
			return err
		}
		n, err := c.PurgeSecrets(ctx, org)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(adminwire.PurgedSecrets{Deleted: n})
		}
		fmt.Fprintf(a.Stdout, "Deleted %s.\n", console.Plural(int(n), "secret"))
		return nil
	})
	return cmd
}

// secretListCommand lists names only. Without a scope it goes through all of them, a request for each.
func (a *admin) secretListCommand() *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:     "list [ORG SCOPE]",
		Short:   "List the names of secrets, of one scope or of all",
		Example: "  kici admin secret list\n  kici admin secret list --scope deploy",
		Args:    cobra.MaximumNArgs(2),
	}
	cmd.Flags().StringVar(&scope, "scope", "", "one scope (default: all)")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		if len(args) == 1 {
			return console.Usage("one argument: it must be none, or ORG SCOPE")
		}
		if len(args) == 2 {
			a.Org, scope = args[0], args[1]
		}
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
		Use:     "remove [ORG SCOPE] KEY",
		Aliases: []string{"delete", "rm"},
		Short:   "Remove a secret",
		Example: "  kici admin secret remove NPM_TOKEN --yes",
		Args:    cobra.RangeArgs(1, 3),
	}
	cmd.Flags().StringVar(&scope, "scope", defaultScope, "scope of the secret")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		key, scope, err := a.secretPlace(cmd, args, scope)
		if err != nil {
			return err
		}
		if err := a.Confirm(yes, fmt.Sprintf("Remove secret %s of scope %s?", key, scope)); err != nil {
			return err
		}
		if err := c.RemoveSecret(ctx, a.Org, scope, key); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"deleted": true})
		}
		fmt.Fprintf(a.Stdout, "Secret %s removed from scope %s.\n", key, scope)
		return nil
	})
	return cmd
}
