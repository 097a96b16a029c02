package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// tokenCommand is about tokens of people and programs; agents have their own.
func (a *admin) tokenCommand() *cobra.Command {
	return console.Group("token", "Tokens of people and programs that administer the server", []string{"tokens"},
		a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
}

// tokenCreateCommand prints the token alone on stdout, so that it can be put into a file without being seen.
func (a *admin) tokenCreateCommand() *cobra.Command {
	var role, key, expires string
	cmd := &cobra.Command{
		Use:     "create LABEL",
		Short:   "Make an admin token; its text is shown once",
		Example: "  kici admin token create ci-dashboard --role auditor --expires 30d",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&role, "role", "", "owner, admin or auditor (required)")
	cmd.Flags().StringVar(&key, "routing-key", "", "bind the token to one source")
	cmd.Flags().StringVar(&expires, "expires", "", "life such as 30d, 12h or 45m, or a time such as 2027-01-01T00:00:00Z (default: never)")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		if role == "" {
			return console.Usage("--role is required: owner, admin or auditor")
		}
		n := adminwire.NewAdminToken{Label: args[0], Role: role}
		if key != "" {
			n.RoutingKey = &key
		}
		if expires != "" {
			end, err := expiry(expires, time.Now())
			if err != nil {
				return err
			}
			n.ExpiresAt = &adminwire.Time{Time: end}
		}
		made, err := c.CreateToken(ctx, n)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(made)
		}
		fmt.Fprintf(a.Stderr, "Token %s made. Keep it: it is not shown again.\n", made.ID)
		fmt.Fprintln(a.Stdout, made.Token)
		return nil
	})
	return cmd
}

// expiry reads the end of a token. A mistyped one is an error: it must not make a token for ever.
func expiry(text string, now time.Time) (time.Time, error) {
	end, err := time.Parse(time.RFC3339, text)
	if err != nil {
		life, ok := days(text)
		if !ok {
			if life, err = time.ParseDuration(text); err != nil || !strings.HasSuffix(text, "h") && !strings.HasSuffix(text, "m") {
				return end, console.Usage("--expires %q: use a life such as 30d, 12h or 45m, or a time such as 2027-01-01T00:00:00Z", text)
			}
		}
		end = now.Add(life)
	}
	if !end.After(now) {
		return end, console.Usage("--expires %q: it lies in the past", text)
	}
	return end, nil
}

// days reads a number of days, which durations of the language lack. It is bounded: a hundred years are a mistake.
func days(text string) (time.Duration, bool) {
	number, ok := strings.CutSuffix(text, "d")
	n, err := strconv.Atoi(number)
	return time.Duration(n) * 24 * time.Hour, ok && err == nil && n > 0 && n <= 36500
}

func (a *admin) tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List admin tokens, revoked ones too",
		Example: "  kici admin token list",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, c *client.Client, _ []string) error {
			tokens, err := c.Tokens(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.AdminTokenList{Tokens: tokens})
			}
			t := console.Table{What: "tokens", Head: []string{"ID", "LABEL", "ROLE", "ROUTING KEY", "CREATED", "EXPIRES", "LAST USED", "STATE"}}
			for _, k := range tokens {
				state := "valid"
				switch {
				case k.Revoked:
					state = "revoked"
				case !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(time.Now()):
					state = "expired"
				}
				t.Row(k.ID, k.Label, k.Role, console.Text(k.RoutingKey), console.When(k.CreatedAt), console.When(k.ExpiresAt), console.When(k.LastUsedAt), state)
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}

// tokenRevokeCommand does not ask: a token that has leaked must be ended at once, and another is made in a moment.
func (a *admin) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "End an admin token",
		Example: "  kici admin token revoke 2f9c6a0e-…",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.RevokeToken(ctx, args[0]); err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.Revoked{Revoked: true})
			}
			fmt.Fprintln(a.Stdout, "Token revoked.")
			return nil
		}),
	}
}

// agentTokenCommand is about what agents register with.
func (a *admin) agentTokenCommand() *cobra.Command {
	return console.Group("agent-token", "Tokens with which agents register", []string{"agent-tokens"},
		a.agentTokenCreateCommand(), a.agentTokenListCommand(), a.agentTokenRevokeCommand())
}

// agentTokenCreateCommand prints the token alone on stdout, and how an agent is started with it beside.
func (a *admin) agentTokenCreateCommand() *cobra.Command {
	var n adminwire.NewAgentToken
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Make a token that any number of agents may use; its text is shown once",
		Example: "  kici admin agent-token create\n  kici admin agent-token create --labels gpu,linux --mandatory-label gpu",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringSliceVar(&n.Labels, "labels", nil, "labels that its agents may carry (default: any)")
	cmd.Flags().StringSliceVar(&n.MandatoryLabels, "mandatory-label", nil, "label that a job must name to run on its agents; may be repeated")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		made, err := c.CreateAgentToken(ctx, n)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(made)
		}
		fmt.Fprintf(a.Stderr, "Token %s made. Keep it: it is not shown again. An agent is started with\n"+
			"  KICI_ORCHESTRATOR_URL=%s/ws KICI_AGENT_TOKEN=… KICI_LABELS=linux kici agent\n", made.ID, "ws"+strings.TrimPrefix(c.Base(), "http"))
		fmt.Fprintln(a.Stdout, made.Token)
		return nil
	})
	return cmd
}

func (a *admin) agentTokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List agent tokens that are not revoked",
		Example: "  kici admin agent-token list",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, c *client.Client, _ []string) error {
			tokens, err := c.AgentTokens(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.AgentTokenList{Tokens: tokens})
			}
			t := console.Table{What: "agent tokens", Head: []string{"ID", "PREFIX", "TYPE", "LABELS", "MANDATORY", "CREATED BY", "CREATED", "LAST SEEN", "EXPIRES"}}
			for _, k := range tokens {
				t.Row(k.ID, k.TokenPrefix, k.AgentType, labels(k.Labels, "any"), labels(k.MandatoryLabels, ""), k.CreatedBy, console.When(k.CreatedAt),
					console.When(k.LastSeenAt), console.When(k.ExpiresAt))
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}

func (a *admin) agentTokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "End an agent token and the connections that use it",
		Example: "  kici admin agent-token revoke 7c1d52b4-…",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(ctx context.Context, c *client.Client, args []string) error {
			kicked, err := c.RevokeAgentToken(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.Kicked{Kicked: kicked})
			}
			fmt.Fprintf(a.Stdout, "Agent token revoked, %s closed.\n", console.Plural(kicked, "connection"))
			return nil
		}),
	}
}

// agentsCommand shows which agents there are, with the labels that jobs are matched by.
func (a *admin) agentsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "agents",
		Short:   "List the agents, connected or not, with their labels and jobs",
		Example: "  kici admin agents",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, c *client.Client, _ []string) error {
			hosts, err := c.Hosts(ctx)
			if err != nil {
				return err
			}
			hosts = slices.DeleteFunc(hosts, func(h adminwire.Host) bool { return h.LastSeen.IsZero() }) // no agent ever registered
			if a.JSON {
				return a.PrintJSON(adminwire.HostList{Hosts: hosts})
			}
			t := console.Table{What: "agents", Head: []string{"AGENT", "STATE", "JOBS", "LABELS", "MANDATORY", "PLATFORM", "VERSION", "LAST SEEN"}}
			for _, h := range hosts {
				t.Row(h.AgentID, h.Status, fmt.Sprintf("%d/%d", len(h.Running), h.MaxConcurrency), labels(h.Labels, ""), labels(h.MandatoryLabels, ""),
					h.Platform+"/"+h.Arch, h.Version, console.When(h.LastSeen))
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}
