package admin

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

// contextCommand is about the deployment targets of an organisation.
func (a *admin) contextCommand() *cobra.Command {
	return console.Group("context", "Contexts: variables, secrets and rules of deployment targets", []string{"contexts", "environment"},
		a.contextSetCommand(), a.contextBindCommand(), a.contextVariableCommand(), a.contextListCommand(), a.contextShowCommand(),
		a.contextDeleteCommand())
}

// contextSetCommand sends only what was given, so that the rest stays as it is.
func (a *admin) contextSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set NAME",
		Aliases: []string{"create", "set-policy"},
		Short:   "Make a context, or change its rules; what is not given stays",
		Example: "  kici admin context set production --branches main --reviewers u1,u2 --wait-timer 300\n" +
			"  kici admin context set reviews --glob 'review/*' --concurrency-limit 1",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.String("glob", "", "the context is every name that this pattern matches")
	f.Bool("enabled", true, "jobs may use it")
	f.StringSlice("branches", nil, "globs of target branches that may use it; empty for all")
	f.StringSlice("reviewers", nil, "ids of users who must all approve; empty for none")
	f.Int64("wait-timer", 0, "seconds that jobs wait before they start")
	f.Int64("hold-expiry", 0, "seconds after which a hold expires")
	f.Int64("concurrency-limit", 0, "jobs at a time")
	f.String("minimum-trust", "", "least trust in the contributor: known, trusted; empty for any")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		put, err := c.PutContext(ctx, a.Org, args[0], contextFields(cmd))
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(put)
		}
		fmt.Fprintf(a.Stdout, "context set: %s created=%t id=%s\n", args[0], put.Created, put.ContextID)
		return nil
	})
	return cmd
}

// contextFields are the members of the body for the flags that were given.
func contextFields(cmd *cobra.Command) map[string]any {
	f, fields := cmd.Flags(), map[string]any{}
	for flag, member := range map[string]string{"wait-timer": "waitTimerSeconds", "hold-expiry": "holdExpirySeconds", "concurrency-limit": "concurrencyLimit"} {
		if n, err := f.GetInt64(flag); err == nil && f.Changed(flag) {
			fields[member] = n
		}
	}
	for flag, member := range map[string]string{"branches": "branchRestrictions", "reviewers": "requiredReviewers"} {
		if list, err := f.GetStringSlice(flag); err == nil && f.Changed(flag) {
			fields[member] = append([]string{}, list...)
		}
	}
	if on, err := f.GetBool("enabled"); err == nil && f.Changed("enabled") {
		fields["enabled"] = on
	}
	if pattern, err := f.GetString("glob"); err == nil && f.Changed("glob") {
		fields["type"], fields["globPattern"] = "glob", pattern
	}
	if trust, err := f.GetString("minimum-trust"); err == nil && f.Changed("minimum-trust") {
		fields["minimumTrust"] = trust
	}
	return fields
}

func (a *admin) contextBindCommand() *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use:     "bind NAME SCOPE",
		Short:   "Let a context see the secrets of the scopes that a pattern selects",
		Example: "  kici admin context bind production 'aws/prod/**'",
		Args:    cobra.ExactArgs(2),
	}
	cmd.Flags().StringVar(&host, "host", "**", "only on hosts that this pattern matches")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		created, err := c.BindContext(ctx, a.Org, args[0], args[1], host)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(adminwire.Created{Created: created})
		}
		fmt.Fprintf(a.Stdout, "context bind: created=%t\n", created)
		return nil
	})
	return cmd
}

func (a *admin) contextVariableCommand() *cobra.Command {
	var locked bool
	var source string
	cmd := &cobra.Command{
		Use:     "variable NAME KEY VALUE",
		Short:   "Set an environment variable of a context; it is no secret",
		Example: "  kici admin context variable production LEVEL 9",
		Args:    cobra.ExactArgs(3),
	}
	cmd.Flags().BoolVar(&locked, "locked", false, "no source overrides it")
	cmd.Flags().StringVar(&source, "source", "", "only for the runs of the source with this routing key")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		v := adminwire.SetVariable{Value: &args[2], Locked: locked, RoutingKey: source}
		if err := c.SetVariable(ctx, a.Org, args[0], args[1], v); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"set": true})
		}
		fmt.Fprintf(a.Stdout, "Variable %s set in context %s.\n", args[1], args[0])
		return nil
	})
	return cmd
}

func (a *admin) contextListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List contexts with the names of their secrets",
		Example: "  kici admin context list",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		list, err := c.Contexts(ctx, a.Org)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(list)
		}
		t := console.Table{What: "contexts", Head: []string{"NAME", "TYPE", "ENABLED", "BRANCHES", "REVIEWERS", "SECRETS"}}
		for _, x := range list.Contexts {
			t.Row(x.Name, x.Type, strconv.FormatBool(x.Enabled), strings.Join(x.BranchRestrictions, ","),
				strings.Join(x.RequiredReviewers, ","), strings.Join(x.SecretKeys, ","))
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

func (a *admin) contextShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show the variables and bindings of a context",
		Example: "  kici admin context show production",
		Args:    cobra.ExactArgs(1),
	}
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		detail, err := c.Context(ctx, a.Org, args[0])
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(detail)
		}
		t := console.Table{What: "variables or bindings", Head: []string{"KIND", "NAME", "VALUE", "FOR"}}
		for _, v := range detail.Variables {
			t.Row(map[bool]string{false: "variable", true: "locked variable"}[v.Locked], v.Key, v.Value, "")
		}
		for _, o := range detail.Overrides {
			t.Row("override", o.Key, o.Value, o.RoutingKey)
		}
		for _, b := range detail.Bindings {
			t.Row("binding", b.ScopePattern, "", b.HostPattern)
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

func (a *admin) contextDeleteCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Aliases: []string{"remove", "rm"},
		Short:   "Delete a context with its variables and bindings",
		Example: "  kici admin context delete production --yes",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		if err := a.Confirm(yes, fmt.Sprintf("Delete context %s?", args[0])); err != nil {
			return err
		}
		if err := c.DeleteContext(ctx, a.Org, args[0]); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"deleted": true})
		}
		fmt.Fprintf(a.Stdout, "Context %s deleted.\n", args[0])
		return nil
	})
	return cmd
}
