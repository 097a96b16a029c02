package vault

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// filters gives a verb flags that each become a parameter of a query, and gives the query.
func filters(cmd *cobra.Command, flags [][3]string) func() url.Values {
	for _, f := range flags {
		cmd.Flags().String(f[0], "", f[2])
	}
	return func() url.Values {
		v := url.Values{}
		for _, f := range flags {
			if text, err := cmd.Flags().GetString(f[0]); err == nil && text != "" {
				v.Set(f[1], text)
			}
		}
		return v
	}
}

// between are the flags that narrow a log by time.
var between = [][3]string{{"from", "from", "not before this time, such as 2026-01-01T00:00:00Z"}, {"to", "to", "before this time"}}

func (a *admin) auditCommand() *cobra.Command {
	var limit, offset int
	cmd := &cobra.Command{
		Use:     "audit",
		Short:   "List who changed, resolved or revealed secrets, newest first",
		Example: "  kici admin audit --action setSecret --limit 10",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "how many, 1000 at most")
	cmd.Flags().IntVar(&offset, "offset", 0, "how many to pass over")
	query := filters(cmd, append([][3]string{{"context", "contextName", "scope, or what was resolved"}, {"routing-key", "routingKey", "routing key"},
		{"action", "action", "what was done, such as setSecret"}}, between...))
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		v := query()
		v.Set("limit", strconv.Itoa(limit))
		v.Set("offset", strconv.Itoa(offset))
		list, err := c.Audit(ctx, v)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(list)
		}
		t := console.Table{What: "entries", Head: []string{"TIME", "ACTION", "CONTEXT", "KEYS", "OUTCOME", "USER", "ROLE", "RUN"}}
		for _, e := range list.Entries {
			t.Row(console.When(e.CreatedAt), e.Action, console.Text(e.Context), strings.Join(e.Keys, ","), e.Outcome, console.Text(e.UserID),
				console.Text(e.Role), console.Text(e.RunID))
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

func (a *admin) accessLogCommand() *cobra.Command {
	return console.Group("access-log", "Who looked at or changed what: list, show", nil, a.accessListCommand(), a.accessShowCommand())
}

func (a *admin) accessListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List accesses, newest first; reads that repeat all the time are there in part",
		Example: "  kici admin access-log list --outcome denied",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "how many, 200 at most")
	query := filters(cmd, append([][3]string{{"org-id", "orgId", "organisation"}, {"actor-type", "actorType", "kind of who it was"}, {"actor-id", "actorId", "who it was"},
		{"action", "action", "what was done, such as run.cancel"}, {"source", "source", "over which way it came"}, {"outcome", "outcome", "allowed, denied or error"},
		{"target-type", "targetType", "kind of what it is about"}, {"target-id", "targetId", "what it is about"}, {"q", "q", "part of the error"},
		{"cursor", "cursor", "where the page before ended"}}, between...))
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		v := query()
		v.Set("limit", strconv.Itoa(limit))
		list, err := c.AccessLog(ctx, v)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(list)
		}
		t := console.Table{What: "accesses", Head: []string{"TIME", "ACTION", "OUTCOME", "ACTOR", "TARGET", "ERROR", "ID"}}
		for _, e := range list.Items {
			t.Row(console.When(e.Timestamp), e.Action, e.Outcome, e.ActorType+":"+e.ActorID, targetOf(e), console.Text(e.ErrorMessage), e.ID)
		}
		t.Write(a.Stdout)
		if list.NextCursor != nil {
			fmt.Fprintf(a.Stderr, "There is more: --cursor %s\n", *list.NextCursor)
		}
		return nil
	})
	return cmd
}

func targetOf(e adminwire.AccessEntry) string {
	if e.TargetID == nil {
		return console.Text(e.TargetType)
	}
	return console.Text(e.TargetType) + " " + *e.TargetID
}

// accessShowCommand prints JSON always: entries have what their action needs, and no more in common than the list shows.
func (a *admin) accessShowCommand() *cobra.Command {
	var org string
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Print one access as JSON",
		Example: "  kici admin access-log show 019ad2f3-…",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&org, "org-id", "", "only if it is of this organisation")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		e, err := c.Access(ctx, org, args[0])
		if err != nil {
			return err
		}
		return a.PrintJSON(e)
	})
	return cmd
}
