package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// hostCommand is about the machines that jobs with runsOnAll reach.
func (a *admin) hostCommand() *cobra.Command {
	return console.Group("host", "Hosts: machines that jobs run on all of, with or without an agent", []string{"hosts"},
		a.hostListCommand(), a.hostGetCommand(), a.hostDeclareCommand(), a.hostRemoveCommand())
}

func (a *admin) hostListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List hosts: those whose agents registered, and those that were declared",
		Example: "  kici admin host list",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, c *client.Client, _ []string) error {
			hosts, err := c.Hosts(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.HostList{Hosts: hosts})
			}
			t := console.Table{What: "hosts", Head: []string{"AGENT ID", "CLASS", "STATUS", "INSTANCE", "LAST SEEN", "LABELS"}}
			for _, h := range hosts {
				t.Row(h.AgentID, h.LifecycleClass, hostStatus(h), console.Text(h.ConnectedInstanceID), console.When(h.LastSeen), labels(h.Labels, ""))
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}

// hostStatus tells a host that has no agent from one whose agent is away, and one that is expected back from one that is not.
func hostStatus(h adminwire.Host) string {
	switch {
	case h.Uninitialized:
		return "no agent"
	case !h.RebootUntil.IsZero():
		return h.Status + ", reboots until " + console.When(h.RebootUntil)
	}
	return h.Status
}

func (a *admin) hostGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get AGENT-ID",
		Aliases: []string{"show"},
		Short:   "Show a host: its labels and properties, and how it is reached",
		Example: "  kici admin host get web-3",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(ctx context.Context, c *client.Client, args []string) error {
			h, err := c.Host(ctx, args[0])
			if err != nil {
				return err
			}
			return a.showHost(h)
		}),
	}
}

func (a *admin) showHost(h adminwire.Host) error {
	if a.JSON {
		return a.PrintJSON(adminwire.OneHost{Host: h})
	}
	t := console.Table{What: "facts", Head: []string{"FACT", "VALUE"}}
	t.Row("agent id", h.AgentID)
	t.Row("status", hostStatus(h))
	t.Row("host name", h.Hostname)
	t.Row("labels", labels(h.Labels, ""))
	for _, k := range slices.Sorted(maps.Keys(h.Properties)) {
		t.Row("property "+k, fmt.Sprint(h.Properties[k]))
	}
	if d := h.Declared; d != nil && d.Address != "" {
		t.Row("address", d.SSHUser+"@"+d.Address+", port "+strconv.Itoa(d.SSHPort))
		t.Row("SSH key", d.SSHKeySecret)
		t.Row("host key", d.SSHHostKey)
	}
	t.Write(a.Stdout)
	return nil
}

func (a *admin) hostDeclareCommand() *cobra.Command {
	var d adminwire.Declaration
	var properties []string
	cmd := &cobra.Command{
		Use:   "declare AGENT-ID",
		Short: "Write a host down, or anew: what is not given is not kept",
		Long: "Writes down a host under the id that its agent has or will have, so that jobs which run on all hosts can choose it by its\n" +
			"labels. A job with includeUninitialized reaches it before it has an agent: one is then started there over SSH, by an agent\n" +
			"with the label kici:capability:ssh-transport, with the key that the secret holds.",
		Example: "  kici admin host declare web-3 --labels web,eu --address web-3.example.org --ssh-key-secret hosts/web/SSH_KEY",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringSliceVar(&d.Labels, "labels", nil, "labels that jobs choose it by")
	f.StringArrayVar(&properties, "prop", nil, "property NAME=VALUE; true, false and numbers are no texts")
	f.StringVar(&d.Hostname, "hostname", "", "name that jobs show for it (until its agent says another)")
	f.StringVar(&d.Address, "address", "", "where SSH reaches it: a name or an IP address, without the port")
	f.StringVar(&d.SSHUser, "ssh-user", "", "user to log in as (root)")
	f.IntVar(&d.SSHPort, "ssh-port", 0, "port of SSH (22)")
	f.StringVar(&d.SSHKeySecret, "ssh-key-secret", "", "SCOPE/KEY of the secret that holds the private key")
	f.StringVar(&d.SSHHostKey, "ssh-host-key", "", "the host's public key, as in 'ssh-ed25519 AAAA…'; without it whichever the host shows is accepted")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		var err error
		if d.Properties, err = hostProperties(properties); err != nil {
			return err
		}
		h, err := c.DeclareHost(ctx, args[0], d)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(adminwire.OneHost{Host: h})
		}
		fmt.Fprintf(a.Stdout, "Host %s declared.\n", h.AgentID)
		return nil
	})
	return cmd
}

// hostProperties reads NAME=VALUE pairs. Of one name the last counts.
func hostProperties(pairs []string) (map[string]any, error) {
	out := map[string]any{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--prop %q must be NAME=VALUE", pair)
		}
		out[name] = hostValue(value)
	}
	return out, nil
}

// hostValue is true, false, a finite number, or the text.
func hostValue(text string) any {
	switch text {
	case "true":
		return true
	case "false":
		return false
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && n-n == 0 {
		return n
	}
	return text
}

func (a *admin) hostRemoveCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "remove AGENT-ID",
		Aliases: []string{"rm", "delete"},
		Short:   "Forget a host: its declaration and its agent, when that is gone",
		Example: "  kici admin host remove web-3 --yes",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		if err := a.Confirm(yes, fmt.Sprintf("Forget host %s?", args[0])); err != nil {
			return err
		}
		if err := c.ForgetHost(ctx, args[0]); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"deleted": true})
		}
		fmt.Fprintf(a.Stdout, "Host %s removed.\n", args[0])
		return nil
	})
	return cmd
}

// labels are shown as they are written. No list is something else than an empty one: none says what it means.
func labels(list []string, none string) string {
	if list == nil {
		return none
	}
	return strings.Join(list, ",")
}
