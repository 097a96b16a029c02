package vault

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// orgCommand is about what an organisation decides for itself. Every verb shows the settings as they are afterwards.
func (a *admin) orgCommand() *cobra.Command {
	cmd := console.Group("org-settings", "What an organisation decides: approvals, caches, registries", []string{"org"},
		a.orgShowCommand("show", "Show all that the organisation has decided"),
		console.Group("approval", "Holds that people decide", nil, a.orgShowCommand("show", "Show the settings"),
			a.orgSetCommand("set-expiry SECONDS", "How long an approval may take that says nothing of it itself", "approvalExpirySeconds", number),
			a.orgSetCommand("set-self-approval BOOL", "Whether whoever started a run may approve its holds", "allowSelfApproval", truth)),
		console.Group("user-cache", "Caches of jobs", nil, a.orgShowCommand("show", "Show the settings"),
			a.orgSetCommand("set-quota BYTES", "How many bytes the organisation keeps", "userCacheQuotaBytes", number),
			a.orgSetCommand("set-ttl MILLISECONDS", "How long a cache is kept after its last use", "userCacheTtlMs", number),
			a.orgSetCommand("reset-quota", "Keep as many bytes as the server is configured to", "userCacheQuotaBytes", nil),
			a.orgSetCommand("reset-ttl", "Keep caches as long as the server is configured to", "userCacheTtlMs", nil)),
		console.Group("global-workflows", "What workflows may do", nil, a.orgShowCommand("show", "Show the settings"),
			a.orgSetCommand("allow-http-npm BOOL", "Whether registries of packages may be anywhere without TLS", "allowHttpNpmRegistries", truth)))
	cmd.PersistentFlags().StringVar(&a.Org, "customer-id", client.Org, "the same as --org")
	return cmd
}

// number and truth read an argument; what they refuse never reaches the server.
func number(text string) (any, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return nil, console.Usage("%q: it must be a whole number, 1 or more", text)
	}
	return n, nil
}

func truth(text string) (any, error) {
	if text != "true" && text != "false" {
		return nil, console.Usage("%q: it must be true or false", text)
	}
	return text == "true", nil
}

func (a *admin) orgShowCommand(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		Example: "  kici admin org-settings show",
		RunE: a.With(func(ctx context.Context, c *client.Client, _ []string) error {
			return a.showOrg(c.OrgSettings(ctx, a.Org))
		}),
	}
}

// orgSetCommand sets one member to its argument, or without a reader to the default.
func (a *admin) orgSetCommand(use, short, member string, read func(string) (any, error)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	if read != nil {
		cmd.Args = cobra.ExactArgs(1)
	}
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) (err error) {
		fields := map[string]any{member: nil}
		if read != nil {
			if fields[member], err = read(args[0]); err != nil {
				return err
			}
		}
		return a.showOrg(c.SetOrgSettings(ctx, a.Org, fields))
	})
	return cmd
}

func (a *admin) showOrg(s adminwire.OrgSettings, err error) error {
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(adminwire.OneOrgSettings{Settings: s})
	}
	console.Pairs(a.Stdout, [2]string{"organisation", s.CustomerID}, [2]string{"self-approve", strconv.FormatBool(s.AllowSelfApproval)},
		[2]string{"expiry", strconv.FormatInt(s.ApprovalExpirySeconds, 10) + " s"},
		[2]string{"http npm", strconv.FormatBool(s.AllowHTTPNpmRegistries)},
		[2]string{"cache quota", orServers(s.UserCacheQuotaBytes, "bytes")}, [2]string{"cache ttl", orServers(s.UserCacheTTLMs, "ms")})
	return nil
}

// orServers is a number that an organisation may leave to the server.
func orServers(n *int64, unit string) string {
	if n == nil {
		return "as the server is configured"
	}
	return strconv.FormatInt(*n, 10) + " " + unit
}
