package admin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// signingKeyCommand is about the keys that sign the identity tokens of jobs.
func (a *admin) signingKeyCommand() *cobra.Command {
	return console.Group("signing-key", "Keys that sign the identity tokens of jobs", nil, a.listSigningKeysCommand(), a.rotateSigningKeyCommand(),
		a.revokeSigningKeyCommand())
}

func (a *admin) listSigningKeysCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the keys, the newest first",
		Long: "Lists the keys. The active one signs. What the others signed is believed, but for those that are revoked.\n" +
			"The first key is made when the first job asks for a token.",
		Example: "  kici admin signing-key list",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, c *client.Client, _ []string) error {
			keys, err := c.SigningKeys(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.SigningKeyList{SigningKeys: keys})
			}
			t := console.Table{What: "signing keys", Head: []string{"KEY", "STATUS", "ACTIVE FROM", "UNTIL", "REVOKED FOR"}}
			for _, k := range keys {
				reason := "-"
				if k.RevocationReason != nil {
					reason = *k.RevocationReason
				}
				t.Row(k.ID, k.Status, console.When(k.ActivatedAt), console.When(k.RetiredAt), reason)
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}

func (a *admin) rotateSigningKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rotate",
		Short:   "Make a new key, which signs from now on",
		Long:    "Makes a new key the active one, on all servers. What the previous keys signed is believed as before.",
		Example: "  kici admin signing-key rotate",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, c *client.Client, _ []string) error {
			k, err := c.RotateSigningKey(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.OneSigningKey{SigningKey: k})
			}
			fmt.Fprintf(a.Stdout, "Signing key %s is active.\n", k.ID)
			return nil
		}),
	}
}

func (a *admin) revokeSigningKeyCommand() *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "Take a key back, with everything that it signed",
		Long: "Revokes a key that somebody else may know. Nothing that it signed is believed any more, for good. Where it was the active\n" +
			"key, the next job that asks for a token makes a new one.",
		Example: "  kici admin signing-key revoke 8Z6Fy2u1ua-_S2BgQ32zn0ZxQw1SoHTv3XBMWzlwjP0 --reason 'copied by mistake'",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever asks later why bundles fail")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		if reason == "" {
			return console.Usage("say why with --reason")
		}
		if err := a.Confirm(yes, fmt.Sprintf("Revoke signing key %s and everything that it signed?", args[0])); err != nil {
			return err
		}
		revoked, err := c.RevokeSigningKey(ctx, args[0], reason)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"revoked": revoked})
		}
		text := "Signing key %s is revoked.\n"
		if !revoked {
			text = "Signing key %s was revoked before.\n"
		}
		fmt.Fprintf(a.Stdout, text, args[0])
		return nil
	})
	return cmd
}

// attestationsCommand is about the bundles that jobs leave behind.
func (a *admin) attestationsCommand() *cobra.Command {
	return console.Group("attestations", "Provenance bundles that jobs left behind", nil, a.reverifyCommand())
}

func (a *admin) reverifyCommand() *cobra.Command {
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "reverify",
		Short: "Judge stored bundles anew",
		Long: "Judges the bundles that could not be judged when they came, by the keys as they are now; --all judges every bundle. After a\n" +
			"key was revoked, --all shows what it had signed as failed.",
		Example: "  kici admin attestations reverify --all --yes",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that have a verdict")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		if all {
			if err := a.Confirm(yes, "Judge all attestations anew?"); err != nil {
				return err
			}
		}
		done, err := c.Reverify(ctx, all)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(done)
		}
		fmt.Fprintf(a.Stdout, "attestations reverify: verified=%d failed=%d unverifiable=%d\n", done.Verified, done.Failed, done.Unverifiable)
		return nil
	})
	return cmd
}
