package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// sourceCommand is about where deliveries and repositories come from.
func (a *admin) sourceCommand() *cobra.Command {
	add := console.Group("add", "Make a source", nil, a.addLocalCommand(), a.addGenericCommand())
	return console.Group("source", "Sources: where deliveries and repositories come from", []string{"sources"},
		add, a.sourceListCommand(), a.sourceRemoveCommand(), a.sourceHookCommand(),
		a.sourceSwitchCommand("enable", true), a.sourceSwitchCommand("disable", false))
}

// hookFlags say how the hook of a local source finds its secret.
type hookFlags struct{ file string }

func (h *hookFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&h.file, "secret-file", "", "file in which the hook finds its secret (default: hooks/NAME.secret in the data folder)")
}

// path is where the secret of a source lies, absolute since a hook runs in its repository.
func (h *hookFlags) path(a *admin, name string) (string, error) {
	file := h.file
	if file == "" {
		a.Where.Env = a.Env
		file = filepath.Join(a.Where.Folder(), "hooks", name+".secret")
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return "", fmt.Errorf("find the hook's secret: %w", err)
	}
	return path, nil
}

// addLocalCommand writes the secret beside its place before the source is made, and moves it there after: neither a source
// whose secret nobody has nor a hook with a secret nobody takes can come of it.
func (a *admin) addLocalCommand() *cobra.Command {
	var base, cloneURL string
	var hook hookFlags
	cmd := &cobra.Command{
		Use:   "local NAME",
		Short: "Repositories in a folder of the server's machine; prints their post-receive hook",
		Long: "Makes a source of the git repositories below a folder of the server's machine, with a fresh secret, and prints the\n" +
			"post-receive hook that tells the server about pushes to them. The secret lies in a file that only you can read; the user\n" +
			"as whom git runs the hook must be able to read it.",
		Example: "  kici admin source add local work --base ~/git > ~/git/app.git/hooks/post-receive\n  chmod +x ~/git/app.git/hooks/post-receive",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&base, "base", "", "folder below which the repositories lie (required)")
	cmd.Flags().StringVar(&cloneURL, "clone-url-base", "", "URL below which agents on other machines clone them (default: the folder itself)")
	hook.add(cmd)
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		if base == "" {
			return console.Usage("--base is required: the folder of the repositories")
		}
		folder, err := filepath.Abs(base)
		if err != nil {
			return fmt.Errorf("find %s: %w", base, err)
		}
		path, err := hook.path(a, args[0])
		if err != nil {
			return err
		}
		token, method := newSecret(), "bearer_token"
		draft, err := draftSecret(path, "Authorization: Bearer "+token)
		if err != nil {
			return err
		}
		defer draft.drop()
		config, err := json.Marshal(map[string]string{"token": token})
		if err != nil {
			return err
		}
		src, err := c.CreateSource(ctx, adminwire.SourceSettings{OrgID: a.Org, Name: &args[0], VerificationMethod: &method, VerificationConfig: config,
			LocalConfig: &adminwire.LocalConfig{RepoBasePath: folder, CloneURLBase: cloneURL}})
		if err != nil {
			return err
		}
		if err := draft.keep(); err != nil {
			return err
		}
		return a.printHook(c, src, path)
	})
	return cmd
}

// printHook prints the hook alone on stdout, so that it can be written to a file, and how to install it on stderr.
func (a *admin) printHook(c *client.Client, src adminwire.Source, secretPath string) error {
	url := c.Base() + src.WebhookPath
	script := hookScript(url, src.LocalConfig.RepoBasePath, secretPath)
	if a.JSON {
		return a.PrintJSON(struct {
			adminwire.OneSource
			WebhookURL string `json:"webhookUrl"`
			SecretFile string `json:"secretFile"`
			Hook       string `json:"hook"`
		}{adminwire.OneSource{Source: src}, url, secretPath, script})
	}
	fmt.Fprintf(a.Stderr, "Source %s: repositories below %s, pushes are sent to\n  %s\nInstall the hook below in each of them:\n"+
		"  kici admin source hook %s > REPOSITORY/hooks/post-receive && chmod +x REPOSITORY/hooks/post-receive\n"+
		"(.git/hooks in a repository with a working tree). Its secret is in %s.\n\n", src.Name, src.LocalConfig.RepoBasePath, url, console.ShellWord(src.Name), secretPath)
	fmt.Fprint(a.Stdout, script)
	return nil
}

// sourceHookCommand is for the repositories that are added later.
func (a *admin) sourceHookCommand() *cobra.Command {
	var hook hookFlags
	cmd := &cobra.Command{
		Use:     "hook SOURCE",
		Short:   "Print the post-receive hook of a local source again",
		Example: "  kici admin source hook work > ~/git/other.git/hooks/post-receive",
		Args:    cobra.ExactArgs(1),
	}
	hook.add(cmd)
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		src, err := a.FindSource(ctx, c, args[0])
		if err != nil {
			return err
		}
		if src.LocalConfig == nil {
			return fmt.Errorf("source %s has no repositories on the server's machine, so there is nowhere to install a hook", src.Name)
		}
		path, err := hook.path(a, src.Name)
		if err != nil {
			return err
		}
		if _, err := os.Stat(path); err != nil {
			fmt.Fprintf(a.Stderr, "Warning: the hook's secret is not on this machine: %v\n", err)
		}
		return a.printHook(c, src, path)
	})
	return cmd
}

// genericFlags are the settings of a generic source.
type genericFlags struct {
	method, header                             string
	eventHeader, eventPath, keyHeader, keyPath string
	dedup, maxPayload                          int64 // seconds, bytes
	rate                                       int
	allowed, strip, ips                        []string
	secretFromStdin, stripOn                   bool
}

// addGenericCommand makes the secret itself unless it is given, since secrets that people think of are guessed.
func (a *admin) addGenericCommand() *cobra.Command {
	var f genericFlags
	cmd := &cobra.Command{
		Use:   "generic NAME",
		Short: "Any sender of HTTP requests; prints its URL and secret",
		Long: "Makes a source that takes deliveries of any sender. Workflows listen to it by its name. Without --secret-stdin a secret is\n" +
			"made and printed once.",
		Example: "  kici admin source add generic stripe --event-header x-event --key-header stripe-id\n" +
			"  kici admin source add generic intranet --verification ip_allowlist --allow-ip 10.0.0.0/8",
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.method, "verification", "hmac_sha256", "hmac_sha256, bearer_token, api_key, ip_allowlist or none")
	flags.StringVar(&f.header, "signature-header", "", "header of the signature, token or key (default: the method's usual one)")
	flags.BoolVar(&f.secretFromStdin, "secret-stdin", false, "take the secret from stdin, or ask for it, instead of making one")
	flags.StringSliceVar(&f.ips, "allow-ip", nil, "address or range that may send, for ip_allowlist; may be repeated")
	flags.StringVar(&f.eventHeader, "event-header", "", "header that holds the name of the event")
	flags.StringVar(&f.eventPath, "event-path", "", "path in the body, such as data.type, of the name of the event")
	flags.StringVar(&f.keyHeader, "key-header", "", "header by which a repeated delivery is known")
	flags.StringVar(&f.keyPath, "key-path", "", "path in the body by which a repeated delivery is known")
	flags.Int64Var(&f.dedup, "dedup-window", 300, "seconds for which a repeated delivery is known")
	flags.Int64Var(&f.maxPayload, "max-payload", 1<<20, "largest body in bytes")
	flags.StringSliceVar(&f.allowed, "allowed-events", nil, "events that are taken (default: all)")
	flags.StringSliceVar(&f.strip, "strip-headers", nil, "headers that are never stored (default: those that hold credentials)")
	flags.IntVar(&f.rate, "rate-limit", 600, "deliveries in a minute")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.stripOn = cmd.Flags().Changed("strip-headers")
		return a.With(func(ctx context.Context, c *client.Client, args []string) error {
			return a.addGeneric(ctx, c, args[0], f)
		})(cmd, args)
	}
	return cmd
}

func (a *admin) addGeneric(ctx context.Context, c *client.Client, name string, f genericFlags) error {
	settings, secret, err := a.genericSettings(name, f)
	if err != nil {
		return err
	}
	src, err := c.CreateSource(ctx, settings)
	if err != nil {
		return err
	}
	url := c.Base() + src.WebhookPath
	if a.JSON {
		return a.PrintJSON(struct {
			adminwire.OneSource
			WebhookURL string `json:"webhookUrl"`
			Secret     string `json:"secret,omitempty"` // only where it was made here
		}{adminwire.OneSource{Source: src}, url, secret})
	}
	console.Pairs(a.Stdout, [2]string{"source", src.Name}, [2]string{"id", src.ID}, [2]string{"url", url}, [2]string{"secret", secret})
	if secret != "" {
		fmt.Fprintln(a.Stderr, "Keep the secret: it is not shown again.")
	}
	return nil
}

// genericSettings gives the settings, and the secret when it was made here.
func (a *admin) genericSettings(name string, f genericFlags) (settings adminwire.SourceSettings, made string, err error) {
	settings = adminwire.SourceSettings{OrgID: a.Org, Name: &name, VerificationMethod: &f.method,
		DedupWindowSeconds: &f.dedup, MaxPayloadBytes: &f.maxPayload, RateLimitRPM: &f.rate,
		EventTypeHeader: &f.eventHeader, EventTypePath: &f.eventPath, IdempotencyKeyHeader: &f.keyHeader, IdempotencyKeyPath: &f.keyPath}
	if f.allowed != nil {
		settings.AllowedEvents = &f.allowed
	}
	if f.stripOn {
		settings.StripHeaders = &f.strip
	}
	config := map[string]any{}
	member := map[string]string{"hmac_sha256": "secret", "bearer_token": "token", "api_key": "key"}[f.method]
	switch {
	case f.method == "ip_allowlist":
		config["allowlist"] = f.ips
	case member != "" && f.secretFromStdin:
		config[member], err = a.ReadSecret("Secret: ", true)
	case member != "":
		made = newSecret()
		config[member] = made
	}
	if err != nil {
		return settings, "", err
	}
	if f.header != "" {
		config["headerName"] = f.header
	}
	settings.VerificationConfig, err = json.Marshal(config)
	return settings, made, err
}

func (a *admin) sourceListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List sources",
		Example: "  kici admin source list",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, c *client.Client, _ []string) error {
			sources, err := c.Sources(ctx, a.Org)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(adminwire.SourceList{Sources: sources})
			}
			t := console.Table{What: "sources", Head: []string{"NAME", "KIND", "STATE", "VERIFICATION", "URL", "REPOSITORIES", "ID"}}
			for _, s := range sources {
				state, folder := "on", ""
				if !s.Enabled {
					state = "off"
				}
				if s.LocalConfig != nil {
					folder = s.LocalConfig.RepoBasePath
				}
				t.Row(s.Name, s.ProviderType, state, s.VerificationMethod, c.Base()+s.WebhookPath, folder, s.ID)
			}
			t.Write(a.Stdout)
			return nil
		}),
	}
}

// sourceRemoveCommand asks first: senders are refused from then on, and most of them do not tell anybody.
func (a *admin) sourceRemoveCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "remove SOURCE",
		Aliases: []string{"delete", "rm"},
		Short:   "Remove a source; its deliveries are refused from then on",
		Example: "  kici admin source remove work --yes",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		src, err := a.FindSource(ctx, c, args[0])
		if err != nil {
			return err
		}
		if err := a.Confirm(yes, "Remove source "+src.Name+"?"); err != nil {
			return err
		}
		if err := c.DeleteSource(ctx, src.ID); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]bool{"deleted": true, "hard": false})
		}
		fmt.Fprintf(a.Stdout, "Source %s removed.\n", src.Name)
		return nil
	})
	return cmd
}

// sourceSwitchCommand turns a source on or off without losing its settings.
func (a *admin) sourceSwitchCommand(verb string, enabled bool) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " SOURCE",
		Short:   strings.ToUpper(verb[:1]) + verb[1:] + " a source",
		Example: "  kici admin source " + verb + " work",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(ctx context.Context, c *client.Client, args []string) error {
			src, err := a.FindSource(ctx, c, args[0])
			if err != nil {
				return err
			}
			if err := c.EnableSource(ctx, src.ID, enabled); err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]bool{"enabled": enabled})
			}
			fmt.Fprintf(a.Stdout, "Source %s %sd.\n", src.Name, verb)
			return nil
		}),
	}
}
