package vault

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// variableCommand is about the environment variables of contexts. Their values are no secrets.
func (a *admin) variableCommand() *cobra.Command {
	return console.Group("variable", "Environment variables of contexts: list, get, set, delete", []string{"variables"},
		a.variableListCommand(), a.variableGetCommand(), a.variableSetCommand(), a.variableDeleteCommand())
}

func (a *admin) variableListCommand() *cobra.Command {
	var values bool
	cmd := &cobra.Command{
		Use:     "list [ORG] CONTEXT",
		Short:   "List the variables of a context",
		Example: "  kici admin variable list production --values",
		Args:    cobra.RangeArgs(1, 2),
	}
	cmd.Flags().BoolVar(&values, "values", false, "show the values, too")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		args = a.inOrg(args, 1)
		list, err := c.Variables(ctx, a.Org, args[0])
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(list)
		}
		t := console.Table{What: "variables", Head: []string{"KEY", "LOCKED", "UPDATED"}}
		if values {
			t.Head = append(t.Head, "VALUE")
		}
		for _, v := range list.Variables {
			row := []string{v.Key, strconv.FormatBool(v.Locked), console.When(v.UpdatedAt)}
			if values {
				row = append(row, v.Value)
			}
			t.Row(row...)
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

func (a *admin) variableGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get [ORG] CONTEXT KEY",
		Short:   "Print the value of a variable, as it is",
		Example: "  kici admin variable get production LEVEL",
		Args:    cobra.RangeArgs(2, 3),
		RunE: a.With(func(ctx context.Context, c *client.Client, args []string) error {
			args = a.inOrg(args, 2)
			list, err := c.Variables(ctx, a.Org, args[0])
			if err != nil {
				return err
			}
			i := slices.IndexFunc(list.Variables, func(v adminwire.ContextVariable) bool { return v.Key == args[1] })
			if i < 0 {
				return fmt.Errorf("context %s has no variable %s", args[0], args[1])
			}
			if a.JSON {
				return a.PrintJSON(list.Variables[i])
			}
			fmt.Fprintln(a.Stdout, list.Variables[i].Value)
			return nil
		}),
	}
}

func (a *admin) variableSetCommand() *cobra.Command {
	var locked bool
	cmd := &cobra.Command{
		Use:     "set [ORG] CONTEXT KEY",
		Short:   "Set a variable; the value is asked for, or read from stdin",
		Example: "  kici admin variable set production LEVEL --value 9 --locked",
		Args:    cobra.RangeArgs(2, 3),
	}
	cmd.Flags().BoolVar(&locked, "locked", false, "no source overrides it")
	from := valueFlags(cmd)
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		args = a.inOrg(args, 2)
		text, ok, err := a.read(from, "Value of "+args[1]+": ")
		if err != nil || !ok {
			return err
		}
		if err := c.SetVariable(ctx, a.Org, args[0], args[1], adminwire.SetVariable{Value: &text, Locked: locked}); err != nil {
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

func (a *admin) variableDeleteCommand() *cobra.Command {
	var yes bool
	var source string
	cmd := &cobra.Command{
		Use:     "delete [ORG] CONTEXT KEY",
		Aliases: []string{"remove", "rm"},
		Short:   "Delete a variable",
		Example: "  kici admin variable delete production LEVEL --yes",
		Args:    cobra.RangeArgs(2, 3),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringVar(&source, "source", "", "only its value for the runs of the source with this routing key")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		args = a.inOrg(args, 2)
		if err := a.Confirm(yes, fmt.Sprintf("Delete variable %s of context %s?", args[1], args[0])); err != nil {
			return err
		}
		if err := c.DeleteVariable(ctx, a.Org, args[0], args[1], source); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"deleted": true})
		}
		fmt.Fprintf(a.Stdout, "Variable %s deleted from context %s.\n", args[1], args[0])
		return nil
	})
	return cmd
}
