//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kici/internal/agent"
	"kici/internal/agent/runner"
	"kici/internal/cli/console"
	"kici/internal/cli/trial"
	"kici/internal/kit/config"
	"kici/internal/kit/memory"
	"kici/internal/kit/telemetry"
	"kici/internal/kit/version"
	"kici/internal/server"
)

// daemons are the verbs that serve until they are stopped.
func daemons() []verb {
	return []verb{{"demo", demoCommand}, {"bench", benchCommand}, {"up", upCommand}, {"server", serverCommand},
		{"agent", agentCommand}, {"run", trial.RunCommand}}
}

// serverFlags are the flags that stand for settings, by key.
type serverFlags struct {
	file string
	keys map[string]*string
}

func addServerFlags(cmd *cobra.Command) *serverFlags {
	f := &serverFlags{keys: map[string]*string{}}
	cmd.Flags().StringVar(&f.file, "config", "", "YAML file of settings (default: KICI_CONFIG, else /etc/kici/orchestrator.yaml when it is there)")
	for _, s := range config.Describe(&server.Config{}) {
		if s.Flag != "" {
			help := strings.TrimSuffix(s.Help, ".")
			f.keys[s.Key] = cmd.Flags().String(s.Flag, s.Default, strings.ToLower(help[:1])+help[1:])
		}
	}
	return f
}

// given are the values of the flags that were used.
func (f *serverFlags) given(cmd *cobra.Command) map[string]string {
	out := map[string]string{}
	for _, s := range config.Describe(&server.Config{}) {
		if s.Flag != "" && cmd.Flags().Changed(s.Flag) {
			out[s.Key] = *f.keys[s.Key]
		}
	}
	return out
}

func serverCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the orchestrator",
		Long: "Runs the orchestrator. Without configuration it listens on 127.0.0.1:4000, keeps an SQLite file in its data folder, makes\n" +
			"its keys and a first admin token there, and kici admin on the same machine finds it.",
		Example: "  kici server\n  kici server --data /srv/kici --port 4100\n  KICI_DATABASE_URL=postgres://… kici server",
		Args:    cobra.NoArgs,
	}
	flags := addServerFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return serve(p, cmd.Context(), flags.file, flags.given(cmd), nil)
	}
	return cmd
}

// serve runs a server until ctx ends or a signal says so. started is told where it listens; its error ends the server.
func serve(p Process, ctx context.Context, file string, flags map[string]string, started func(ctx context.Context, s *server.Server, log *slog.Logger) error) error {
	c, report, err := server.LoadConfig(file, p.Environ, flags)
	if err != nil {
		return fmt.Errorf("the settings are not right, the server does not start:\n%w", err)
	}
	settings, err := c.Settings()
	if err != nil {
		return err
	}
	level, err := telemetry.ParseLevel(c.Server.LogLevel)
	if err != nil {
		return err
	}
	log := telemetry.NewLog(p.Stderr, level, c.Server.LogFormat)
	for _, w := range report.Warnings {
		log.Warn(w)
	}
	defer memory.Bound()()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := server.Open(ctx, settings, log, p.Stdout)
	if err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return errors.Join(err, s.Stop())
	}
	fmt.Fprintf(p.Stdout, "kici server listens on %s\n", s.URL())
	if started != nil {
		err = started(ctx, s, log)
	}
	if err == nil {
		<-ctx.Done()
	}
	stop() // a second signal ends the process at once
	log.Info("stopping")
	return errors.Join(err, s.Stop())
}

func agentCommand(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "agent",
		Short: "Run an agent, which takes jobs from a server",
		Long: "Runs an agent. It is told everything by variables: KICI_ORCHESTRATOR_URL (ws://host:4000/ws), KICI_AGENT_TOKEN (made by\n" +
			"kici admin agent-token create), KICI_AGENT_ID, KICI_LABELS and others.",
		Example: "  KICI_ORCHESTRATOR_URL=ws://127.0.0.1:4000/ws KICI_AGENT_TOKEN=kat_… KICI_LABELS=linux kici agent",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := agent.ConfigFromEnv(p.Environ)
			if err != nil {
				return fmt.Errorf("the settings are not right, the agent does not start:\n%w", err)
			}
			c.Version = version.Read().Version
			err = agent.Run(cmd.Context(), c, telemetry.NewLog(p.Stderr, c.LogLevel, telemetry.FormatAuto))
			var exit *agent.ExitError
			if errors.As(err, &exit) {
				return &console.ExitError{Code: exit.Code, Cause: exit.Err}
			}
			return err
		},
	}
}

// runnerCommand is the process in which an agent runs the steps of one job. People have no use for it.
func runnerCommand(p Process) *cobra.Command {
	return &cobra.Command{
		Use:    "__runner",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if code := runner.Main(cmd.Context(), p.Stdin, p.Stdout, p.Stderr); code != 0 {
				return &console.ExitError{Code: code}
			}
			return nil
		},
	}
}

func upCommand(p Process) *cobra.Command {
	var labels []string
	cmd := &cobra.Command{
		Use:     "up",
		Short:   "Run a server and one agent, for a laptop or a small team",
		Long:    "Runs the orchestrator and, as a process of its own, one agent that serves it. Both end together.",
		Example: "  kici up\n  kici up --data /srv/kici --labels linux,docker",
		Args:    cobra.NoArgs,
	}
	flags := addServerFlags(cmd)
	cmd.Flags().StringSliceVar(&labels, "labels", []string{"linux", "default"}, "labels of the agent, beside those of the machine")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return serve(p, cmd.Context(), flags.file, flags.given(cmd), func(ctx context.Context, s *server.Server, log *slog.Logger) error {
			return runOwnAgent(p, ctx, s, labels)
		})
	}
	return cmd
}

// runOwnAgent runs an agent beside the server until ctx ends. An agent that ends by itself ends both: half of it would
// look as if it worked.
func runOwnAgent(p Process, ctx context.Context, s *server.Server, labels []string) error {
	token, err := s.AgentToken(ctx, "kici up")
	if err != nil {
		return err
	}
	self, err := executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, "agent")
	child.Env = append(agentEnviron(p.Environ),
		"KICI_ORCHESTRATOR_URL="+s.AgentURL(), "KICI_AGENT_TOKEN="+token, "KICI_AGENT_ID=up-"+s.NodeID()[:min(8, len(s.NodeID()))],
		"KICI_LABELS="+strings.Join(labels, ","), "KICI_PORT=0", "KICI_AGENT_IS_ORCHESTRATOR_HOST=true")
	child.Stdout, child.Stderr = p.Stderr, p.Stderr
	child.SysProcAttr = bound()
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case err := <-ended:
		return fmt.Errorf("the agent has ended by itself: %w", errors.Join(err, errAgentEnded))
	case <-ctx.Done():
	}
	_ = child.Process.Signal(syscall.SIGTERM) // it may have ended with the same signal
	<-ended
	return nil
}

var errAgentEnded = errors.New("see its log above")

// agentEnviron is the environment without what concerns the server.
func agentEnviron(environ []string) []string {
	var out []string
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "KICI_") {
			out = append(out, entry)
		}
	}
	return out
}

// executable is this program's file, for the processes that it starts of itself.
func executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program's file: %w", err)
	}
	return path, nil
}
