//go:build unix

package trial

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kici/internal/agent/local"
	"kici/internal/agent/workspace"
	"kici/internal/cli/author"
	"kici/internal/cli/console"
	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/inputs"
	"kici/internal/decide/trigger"
)

// localRun is kici run local.
type localRun struct {
	trial
	pick        bool
	jobs        int
	keepGoing   bool
	env         []string
	given       []string // inputs
	quiet       bool
	lines       bool // JSON as it happens
	junit       string
	inPlace     bool
	keep        bool
	container   bool
	check       bool
	failOnDrift bool
}

// RunCommand is kici run.
func RunCommand(p console.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run", Short: "Run workflows yourself", Example: "  kici run local push", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(runLocalCommand(p))
	return cmd
}

func runLocalCommand(p console.Process) *cobra.Command {
	l := &localRun{trial: trial{Process: p}}
	cmd := &cobra.Command{
		Use:   "local EVENT",
		Short: "Run on this machine what an event starts, without a server",
		Long: "Runs the workflows that an event starts, as kici preview shows them, on this machine. Every job gets a copy of the\n" +
			"repository as it lies here, with all changes that are not committed. Labels are not asked for: this machine stands for\n" +
			"every agent. Secrets come from .kici/.secrets (sections are contexts), .kici/secrets.yaml and .kici/.env.local, and from\n" +
			"--secret and --context.\n\n" +
			"Ctrl-C ends the jobs with their hooks, a second one at once. The exit code is 0 when all went well, 1 when not, 2 for a\n" +
			"call that cannot be followed and for drift that --fail-on-drift was to find.",
		Example: "  kici run local push\n  kici run local pr:open --job test --keep-going\n  kici run local dispatch --workflow deploy --input target=stage --junit results.xml",
		Args:    cobra.MaximumNArgs(1),
		RunE:    l.run,
	}
	l.trial.flags(cmd)
	f := cmd.Flags()
	f.BoolVarP(&l.pick, "pick", "p", false, "choose one of the workflows")
	f.IntVarP(&l.jobs, "jobs", "j", 0, "jobs that run at a time, also called --concurrency (default: as many as there are processors, one with --in-place)")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "concurrency" {
			name = "jobs"
		}
		return pflag.NormalizedName(name)
	})
	f.BoolVar(&l.keepGoing, "keep-going", false, "begin jobs also after one has failed")
	f.StringArrayVar(&l.env, "env", nil, "variable of the jobs, NAME=value")
	f.StringArrayVar(&l.given, "input", nil, "input of a dispatch, NAME=value")
	f.BoolVar(&l.quiet, "quiet", false, "print the results only")
	f.BoolVar(&l.lines, "json-lines", false, "print a line of JSON for each change and each line of a log, the results last")
	f.StringVar(&l.junit, "junit", "", "file to write the results to, for programs that read JUnit's")
	f.BoolVar(&l.inPlace, "in-place", false, "run in the repository itself instead of in copies")
	f.BoolVar(&l.keep, "keep", false, "leave the copies where they are, and say where")
	f.BoolVar(&l.container, "container", false, "run each job in a container, of the image that it names or of "+local.DefaultImage)
	f.BoolVar(&l.check, "check", false, "only check what idempotent steps would change")
	f.BoolVar(&l.failOnDrift, "fail-on-drift", false, "with --check: fail when they would change something")
	return cmd
}

// refuse names what cannot be meant.
func (l *localRun) refuse(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return console.Usage("name the event to run for, as in kici run local push (kici fixture list shows them)")
	case l.pick && l.workflow != "":
		return console.Usage("--pick and --workflow both choose the workflow: use one of them")
	case l.failOnDrift && !l.check:
		return console.Usage("--fail-on-drift needs --check")
	case l.json && l.lines:
		return console.Usage("--json and --json-lines are two forms of output: use one of them")
	case cmd.Flags().Changed("jobs") && l.jobs < 1:
		return console.Usage("--jobs must be at least 1, not %d", l.jobs)
	case l.keep && l.inPlace:
		return console.Usage("--keep is about the copies that --in-place does without")
	}
	return nil
}

func (l *localRun) run(cmd *cobra.Command, args []string) error {
	if err := l.refuse(cmd, args); err != nil {
		return err
	}
	env, err := pairsOf("env", l.env)
	if err != nil {
		return err
	}
	if err := l.prepare(cmd, args[0]); err != nil {
		return err
	}
	if l.stale != "" && !l.quiet {
		fmt.Fprintln(l.Stderr, l.stale)
	}
	works, err := l.works()
	if err != nil {
		return err
	}
	o, err := l.options(cmd.Context(), env)
	if err != nil {
		return err
	}
	ctx, force, stop := interrupts(cmd.Context())
	defer stop()
	o.Force = force
	return l.runAll(ctx, o, works)
}

// pairsOf reads NAME=value flags.
func pairsOf(flag string, list []string) (map[string]string, error) {
	given, issues := inputs.ParsePairs(list)
	if len(issues) > 0 {
		return nil, console.Usage("--%s %s: expected NAME=value", flag, issues[0].Key)
	}
	values := map[string]string{}
	for _, g := range given {
		values[g.Key] = g.Value
	}
	return values, nil
}

// works are the workflows to run, with their inputs. A workflow that is named or picked is run whatever its triggers say,
// as some have none.
func (l *localRun) works() ([]local.Work, error) {
	chosen, err := l.choose()
	if err != nil {
		return nil, err
	}
	given, issues := inputs.ParsePairs(l.given)
	if len(issues) > 0 {
		return nil, console.Usage("%w", &inputs.Error{Issues: issues})
	}
	works := make([]local.Work, len(chosen))
	for i, w := range chosen {
		works[i] = local.Work{Workflow: w, Event: l.event, Source: l.source, Host: "localhost"}
		switch {
		case l.failOnDrift:
			works[i].CheckMode = "check-fail-on-drift"
		case l.check:
			works[i].CheckMode = "check"
		}
		if works[i].Inputs, err = l.inputsOf(w, append(l.fixtureInputs(w, given), given...)); err != nil {
			return nil, err
		}
	}
	return works, nil
}

// fixtureInputs are the inputs of the fixture that the workflow knows and that were not given otherwise. A fixture may
// bring more than one workflow needs, since it can start several.
func (l *localRun) fixtureInputs(w lockfile.Workflow, given []inputs.Given) (more []inputs.Given) {
	for _, known := range inputs.OfDispatch(w) {
		value, brought := l.trial.inputs[known.Name]
		if brought && !slices.ContainsFunc(given, func(g inputs.Given) bool { return g.Key == known.Name }) {
			more = append(more, inputs.Given{Key: known.Name, Value: value})
		}
	}
	return more
}

func (l *localRun) inputsOf(w lockfile.Workflow, given []inputs.Given) (json.RawMessage, error) {
	if l.event.Type != "dispatch" && len(given) == 0 {
		return nil, nil
	}
	values, issues := inputs.Coerce(inputs.OfDispatch(w), given)
	if len(issues) > 0 {
		return nil, console.Usage("workflow %s: %w", w.Name, &inputs.Error{Issues: issues})
	}
	return json.Marshal(values)
}

func (l *localRun) choose() ([]lockfile.Workflow, error) {
	if l.workflow != "" {
		return []lockfile.Workflow{*l.lock.Workflow(l.workflow)}, nil
	}
	if l.pick {
		return l.ask()
	}
	matcher := trigger.NewMatcher(l.event, trigger.Options{})
	var chosen []lockfile.Workflow
	for _, w := range l.lock.Workflows {
		decision, err := matcher.Match(w)
		if err != nil {
			return nil, err
		}
		if decision.Matched {
			chosen = append(chosen, w)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no workflow starts at %s on %s; kici preview says why, and --workflow runs one all the same", l.event.Display(), l.event.TargetBranch)
	}
	return chosen, nil
}

// ask lets somebody choose a workflow by its number.
func (l *localRun) ask() ([]lockfile.Workflow, error) {
	for i, w := range l.lock.Workflows {
		fmt.Fprintf(l.Stderr, "%3d  %s\n", i+1, w.Name)
	}
	fmt.Fprint(l.Stderr, "Which one? ")
	answer, _ := bufio.NewReader(l.Stdin).ReadString('\n') // no answer is a wrong one
	answer = strings.TrimSpace(answer)
	n, err := strconv.Atoi(answer)
	if err != nil || n < 1 || n > len(l.lock.Workflows) {
		return nil, console.Usage("there is no workflow %q: give a number from 1 to %d", answer, len(l.lock.Workflows))
	}
	return []lockfile.Workflow{l.lock.Workflows[n-1]}, nil
}

// scratchAge is for how long the copies of a run may lie about that was killed, or kept.
const scratchAge = 72 * time.Hour

func (l *localRun) options(ctx context.Context, env map[string]string) (local.Options, error) {
	dir, err := filepath.Rel(l.repo.Root, author.InRoot(l.repo.Root, l.kiciDir))
	if err != nil {
		return local.Options{}, fmt.Errorf("find the folder of workflows: %w", err)
	}
	o := local.Options{Root: l.repo.Root, KiciDir: dir, Jobs: l.jobs, KeepGoing: l.keepGoing, Only: l.job, InPlace: l.inPlace, Keep: l.keep,
		Debug: l.debug, Env: env, Environ: l.Environ, Secrets: l.known, Artifacts: filepath.Join(author.InRoot(l.repo.Root, l.kiciDir), "artifacts")}
	if l.inPlace && o.Jobs == 0 {
		o.Jobs = 1 // they share one folder
	}
	if l.container {
		if o.Engine, err = l.engine(ctx); err != nil {
			return o, err
		}
	}
	if l.inPlace {
		return o, nil
	}
	if _, err := os.Stat(filepath.Join(l.repo.Root, ".git")); errors.Is(err, fs.ErrNotExist) {
		return o, console.Usage("%s is no repository of git, so it cannot be copied: use --in-place", l.repo.Root)
	}
	if o.Scratch, err = l.scratch(); err != nil {
		return o, err
	}
	workspace.CleanStale(ctx, o.Scratch, scratchAge, time.Now())
	return o, nil
}

// scratch is the folder of the copies.
func (l *localRun) scratch() (string, error) {
	dir := l.Process.Env("KICI_RUN_DIR")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a folder for copies of the repository: %w (KICI_RUN_DIR names one)", err)
		}
		dir = filepath.Join(cache, "kici", "runs")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a folder for copies of the repository: %w", err)
	}
	return dir, nil
}

// interrupts ends ctx at the first signal and closes force at the second. stop is called in the end.
func interrupts(parent context.Context) (ctx context.Context, force <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, second, done := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(done)
		if _, ok := <-signals; !ok {
			return
		}
		cancel()
		if _, ok := <-signals; ok {
			close(second)
		}
	}()
	return ctx, second, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel()
	}
}

// runAll runs one workflow after the other. After one that did not end well the others run only if that was asked for.
func (l *localRun) runAll(ctx context.Context, o local.Options, works []local.Work) error {
	out := &localResults{localRun: l}
	for i, w := range works {
		o.Work = w
		if err := l.alone(ctx, w.Workflow, func() error { return out.runOne(ctx, o) }); err != nil {
			return unknownJob(err)
		}
		if ctx.Err() != nil || !l.keepGoing && out.failed() {
			l.leftOut(works[i+1:])
			break
		}
	}
	return out.conclude()
}

// leftOut tells which workflows are not run any more.
func (l *localRun) leftOut(works []local.Work) {
	for _, w := range works {
		fmt.Fprintf(l.Stderr, "%s is not run (--keep-going runs it all the same)\n", w.Workflow.Name)
	}
}

// failed tells that some run did not end well.
func (r *localResults) failed() bool {
	return slices.ContainsFunc(r.list, func(one local.Result) bool { return one.Run.Status != ci.RunSuccess })
}
