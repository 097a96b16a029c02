package vault

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
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
		a.contextSetCommand(), a.contextPolicyCommand(), a.contextTemplateCommand(), a.contextBindCommand(), a.contextVariableCommand(),
		a.contextListCommand(), a.contextShowCommand(), a.contextDeleteCommand())
}

// named lets a context be named by an argument or by a flag, and gives what is left of the arguments.
func named(cmd *cobra.Command, more int) func(args []string) (name string, rest []string, err error) {
	var flags [3]string
	for i, flag := range []string{"name", "context", "env"} {
		cmd.Flags().StringVar(&flags[i], flag, "", "name of the context, instead of the argument")
		_ = cmd.Flags().MarkHidden(flag) // for scripts that were written so; it exists
	}
	cmd.Args = cobra.MaximumNArgs(1 + more)
	return func(args []string) (string, []string, error) {
		given := append(slices.DeleteFunc(flags[:], func(s string) bool { return s == "" }), args...)
		if len(given) == 0 {
			return "", nil, console.Usage("the name of a context is required")
		}
		if len(given) > 1+more {
			return "", nil, console.Usage("the name of a context is given twice: %s, %s", given[0], given[1])
		}
		return given[0], given[1:], nil
	}
}

// contextSetCommand sends only what was given, so that the rest stays as it is.
func (a *admin) contextSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set NAME",
		Aliases: []string{"create"},
		Short:   "Make a context, or change its rules; what is not given stays",
		Example: "  kici admin context set production --branches main --reviewers u1,u2 --wait-timer 300\n" +
			"  kici admin context set reviews --glob 'review/*' --concurrency-limit 1",
	}
	typeFlags(cmd.Flags())
	policyFlags(cmd.Flags())
	a.withPolicy(cmd, func(ctx context.Context, c *client.Client, called string, fields map[string]any) error {
		put, err := c.PutContext(ctx, a.Org, called, fields)
		return a.showPut("set", called, put, err)
	})
	return cmd
}

// withPolicy has a verb about one context do something with the rules that its flags give.
func (a *admin) withPolicy(cmd *cobra.Command, do func(ctx context.Context, c *client.Client, called string, fields map[string]any) error) {
	name := named(cmd, 0)
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		fields, err := policyFields(cmd.Flags())
		if err != nil {
			return err
		}
		called, _, err := name(args)
		if err != nil {
			return err
		}
		return do(ctx, c, called, fields)
	})
}

func (a *admin) showPut(verb, name string, put adminwire.ContextPut, err error) error {
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(put)
	}
	fmt.Fprintf(a.Stdout, "context %s: %s created=%t id=%s\n", verb, name, put.Created, put.ContextID)
	return nil
}

// contextPolicyCommand changes a context that is there.
func (a *admin) contextPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set-policy NAME",
		Short:   "Change the rules of a context that exists; what is not given stays",
		Example: "  kici admin context set-policy production --minimum-trust trusted",
	}
	policyFlags(cmd.Flags())
	a.withPolicy(cmd, func(ctx context.Context, c *client.Client, called string, fields map[string]any) error {
		if err := c.ChangePolicy(ctx, a.Org, called, fields); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"updated": true})
		}
		fmt.Fprintf(a.Stdout, "context set-policy: %s updated\n", called)
		return nil
	})
	return cmd
}

// contextTemplateCommand makes a context together with variables.
func (a *admin) contextTemplateCommand() *cobra.Command {
	var variables, template string
	cmd := &cobra.Command{
		Use:     "create-template NAME",
		Short:   "Make a context, or change its rules, together with variables",
		Example: `  kici admin context create-template staging --variables '{"LEVEL":"debug"}'`,
		Args:    cobra.MaximumNArgs(1),
	}
	typeFlags(cmd.Flags())
	policyFlags(cmd.Flags())
	cmd.Flags().StringVar(&variables, "variables", "", "variables to set, as a JSON object of texts")
	cmd.Flags().StringVar(&template, "template", "", "name of the context, instead of the argument")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		fields, err := policyFields(cmd.Flags())
		if err != nil {
			return err
		}
		if variables != "" {
			var values map[string]string
			if json.Unmarshal([]byte(variables), &values) != nil || values == nil {
				return console.Usage("--variables: it must be a JSON object of texts, such as {\"LEVEL\":\"debug\"}")
			}
			fields["variables"] = values
		}
		if len(args) == 1 && template == "" {
			template = args[0]
		} else if len(args) == 1 || template == "" {
			return console.Usage("the name of the context is required, once")
		}
		put, err := c.PutTemplate(ctx, a.Org, template, fields)
		return a.showPut("create-template", template, put, err)
	})
	return cmd
}

func (a *admin) contextBindCommand() *cobra.Command {
	var host, scope string
	cmd := &cobra.Command{
		Use:     "bind NAME SCOPE",
		Short:   "Let a context see the secrets of the scopes that a pattern selects",
		Example: "  kici admin context bind production 'aws/prod/**'",
	}
	cmd.Flags().StringVar(&host, "host", "**", "only on hosts that this pattern matches")
	cmd.Flags().StringVar(&scope, "scope", "", "pattern of the scopes, instead of the argument")
	name := named(cmd, 1)
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		called, rest, err := name(args)
		if err != nil {
			return err
		}
		if scope != "" {
			rest = append(rest, scope)
		}
		if len(rest) != 1 {
			return console.Usage("the pattern of the scopes is required, once")
		}
		created, err := c.BindContext(ctx, a.Org, called, rest[0], host)
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
		Short:   "Show the rules, variables and bindings of a context",
		Example: "  kici admin context show production",
	}
	name := named(cmd, 0)
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		called, _, err := name(args)
		if err != nil {
			return err
		}
		detail, err := c.Context(ctx, a.Org, called)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(detail)
		}
		showRules(a.Stdout, detail.Context)
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
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	name := named(cmd, 0)
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		called, _, err := name(args)
		if err != nil {
			return err
		}
		if err := a.Confirm(yes, fmt.Sprintf("Delete context %s?", called)); err != nil {
			return err
		}
		if err := c.DeleteContext(ctx, a.Org, called); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"deleted": true})
		}
		fmt.Fprintf(a.Stdout, "Context %s deleted.\n", called)
		return nil
	})
	return cmd
}

// showRules prints what guards a context; a rule that demands nothing is left out.
func showRules(out io.Writer, x adminwire.Context) {
	rules := [][2]string{{"context", x.Name}, {"type", x.Type}, {"glob", console.Text(x.GlobPattern)}, {"enabled", strconv.FormatBool(x.Enabled)},
		{"branches", strings.Join(x.BranchRestrictions, ",")}, {"triggers", strings.Join(x.TriggerTypeFilters, ",")}, {"repos", strings.Join(x.RepoPatterns, ",")},
		{"reviewers", strings.Join(x.RequiredReviewers, ",")}, {"min. trust", console.Text(x.MinimumTrust)}}
	if x.WaitTimerSeconds != nil {
		rules = append(rules, [2]string{"wait timer", fmt.Sprintf("%d s", *x.WaitTimerSeconds)})
	}
	if x.ConcurrencyLimit != nil {
		rules = append(rules, [2]string{"at a time", fmt.Sprintf("%d, %s", *x.ConcurrencyLimit, x.ConcurrencyStrategy)})
	}
	rules = append(rules, [2]string{"hold expiry", fmt.Sprintf("%d s", x.HoldExpirySeconds)}, [2]string{"test runs", strconv.FormatBool(x.AllowLocalExecution)})
	console.Pairs(out, slices.DeleteFunc(rules, func(r [2]string) bool { return r[1] == "" || r[1] == "-" })...)
}
