// Package trial is the verbs by which authors try the workflows of a repository with an event: kici preview shows what
// would run, kici run local runs it.
package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/agent/local"
	"kici/internal/author/compile"
	"kici/internal/author/sample"
	"kici/internal/cli/author"
	"kici/internal/cli/console"
	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/plan"
)

// trial is what the verbs have in common that try the workflows of a repository with an event.
type trial struct {
	console.Process
	dir      string
	kiciDir  string
	branch   string
	sha      string
	files    []string
	payload  string
	workflow string
	job      string
	secrets  []string
	contexts []string
	debug    bool
	json     bool

	repo   local.Repository
	lock   *lockfile.File
	stale  string // what is wrong with the lock file on disk, "" for nothing
	kept   []compile.Fixture
	known  local.Secrets
	event  ci.Event
	inputs map[string]string // those that a fixture brings
	source plan.Source
}

func (t *trial) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.dir, "dir", ".", "folder in the repository")
	f.StringVar(&t.kiciDir, "kici-dir", compile.DefaultDir, "folder of the workflows, from the root of the repository")
	f.StringVar(&t.branch, "branch", "main", "branch of a built-in event")
	f.StringVar(&t.sha, "sha", "", "commit of a built-in event (default: the one that is checked out)")
	f.StringSliceVar(&t.files, "files", nil, "changed files; without, filters for paths pass")
	f.StringVar(&t.payload, "payload", "", "file with the payload of a built-in event")
	f.StringVar(&t.workflow, "workflow", "", "only the workflow of this name")
	f.StringVar(&t.job, "job", "", "only the job of this name, with what it needs")
	f.StringArrayVar(&t.secrets, "secret", nil, "secret of every job, NAME=value, or NAME to take it from a variable of that name")
	f.StringArrayVar(&t.contexts, "context", nil, "secret of a context, CONTEXT.NAME=value, or CONTEXT.NAME to take it from a variable NAME")
	f.BoolVar(&t.debug, "debug", false, "show the event and what is logged for debugging")
	f.BoolVar(&t.json, "json", false, "print one JSON object")
	t.complete(cmd)
}

// prepare compiles the workflows and makes the event.
func (t *trial) prepare(cmd *cobra.Command, name string) error {
	err := author.RefuseNoFolder(t.dir)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if t.repo, err = local.Describe(ctx, t.dir); err != nil {
		return err
	}
	if t.repo.Root == "" { // no repository of git, which only a copy of it needs
		if t.repo.Root, err = filepath.Abs(t.dir); err != nil {
			return fmt.Errorf("find folder: %w", err)
		}
		t.repo.Name = "local/" + filepath.Base(t.repo.Root)
	}
	if err := t.loadSecrets(); err != nil {
		return err
	}
	if err := t.compile(ctx); err != nil {
		return err
	}
	if t.workflow != "" && t.lock.Workflow(t.workflow) == nil {
		return console.Usage("no workflow is called %q; there are: %s", t.workflow, strings.Join(workflowNames(t.lock.Workflows), ", "))
	}
	if t.event, err = t.find(cmd, name); err != nil {
		return err
	}
	t.event.SourceRepo = cmp.Or(t.event.SourceRepo, t.repo.Name)
	t.source = plan.Source{Repo: t.event.SourceRepo, CloneURL: "file://" + filepath.ToSlash(t.repo.Root), SHA: t.commit(),
		Ref: cmp.Or(t.event.SourceBranch, t.event.TargetBranch), Provider: cmp.Or(t.event.Provider, "local")}
	if t.debug {
		return t.debugEvent()
	}
	return nil
}

// loadSecrets reads the secrets of the repository and, over them, those of the command line.
func (t *trial) loadSecrets() error {
	var err error
	if t.known, err = local.LoadSecrets(author.InRoot(t.repo.Root, t.kiciDir)); err != nil {
		return console.Usage("%w", err)
	}
	for _, given := range t.secrets {
		if err := t.putSecret("--secret", "", given); err != nil {
			return err
		}
	}
	for _, given := range t.contexts {
		context, rest, ok := strings.Cut(given, ".")
		if name, _, _ := strings.Cut(rest, "="); !ok || context == "" || name == "" || strings.Contains(context, "=") {
			return console.Usage("--context must be CONTEXT.NAME=value or CONTEXT.NAME")
		}
		if err := t.putSecret("--context", context, rest); err != nil {
			return err
		}
	}
	return nil
}

// putSecret adds NAME=value, or NAME with the value of the variable. An error quotes no value.
func (t *trial) putSecret(flag, context, given string) error {
	name, value, ok := strings.Cut(given, "=")
	if name == "" {
		return console.Usage("%s needs a name before the =", flag)
	}
	if !ok {
		at := slices.IndexFunc(t.Environ, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		if at < 0 {
			return console.Usage("%s %s: no variable of that name is set, and no value follows", flag, name)
		}
		value = t.Environ[at][len(name)+1:]
	}
	t.known.Put(context, name, value)
	return nil
}

func (t *trial) debugEvent() error {
	raw, err := json.MarshalIndent(t.event, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(t.Stderr, "%s\n", raw)
	}
	return err
}

// commit is the one that the event is about. Where there is none yet, a made event needs some.
func (t *trial) commit() string { return cmp.Or(t.sha, t.repo.SHA, strings.Repeat("2", 40)) }

// compile compiles as kici compile does, into memory.
func (t *trial) compile(ctx context.Context) error {
	result, err := compile.Compile(ctx, compile.Options{Dir: t.repo.Root, KiciDir: t.kiciDir, Check: true})
	if wrong, ok := errors.AsType[compile.Diagnostics](err); ok {
		fmt.Fprintln(t.Stderr, wrong.Error())
		return &console.ExitError{Code: console.ExitFailure}
	}
	if err != nil {
		return author.NoFolder(err)
	}
	t.stale, t.kept = staleness(result), result.Fixtures
	lock, bad := lockfile.Load(result.Lock, t.repo.Name, "working tree")
	if bad != nil {
		return bad
	}
	t.lock = lock
	return nil
}

// staleness says what a server would find, which goes by the lock file that is there.
func staleness(result compile.Result) string {
	if !result.Changed {
		return ""
	}
	if _, err := os.Stat(result.Path); errors.Is(err, fs.ErrNotExist) {
		return "Note: there is no lock file yet, and servers go by it: run kici compile and commit it"
	}
	return "Note: the lock file is out of date, and servers go by it: run kici compile and commit it"
}

func workflowNames(list []lockfile.Workflow) []string {
	names := make([]string, len(list))
	for i, w := range list {
		names[i] = w.Name
	}
	return names
}

// find makes the event of a name: a built-in one, a fixture of a workflow file, one in a file, or a file.
func (t *trial) find(cmd *cobra.Command, name string) (ci.Event, error) {
	var files []string
	if cmd.Flags().Changed("files") {
		files = append([]string{}, t.files...)
	}
	if at := slices.IndexFunc(t.kept, func(f compile.Fixture) bool { return f.ID == name }); at >= 0 {
		return t.authored(cmd, t.kept[at], files)
	}
	d, err := t.delivery(cmd, name)
	if err != nil {
		return ci.Event{}, err
	}
	ev, err := d.Envelope(files)
	if err != nil {
		err = console.Usage("%w", err)
	}
	return ev, err
}

// authored makes the event of a fixture that a workflow file exports.
func (t *trial) authored(cmd *cobra.Command, f compile.Fixture, files []string) (ci.Event, error) {
	if err := refuseEventFlags(cmd, "fixture "+f.ID); err != nil {
		return ci.Event{}, err
	}
	if author.IsBuiltIn(f.ID) {
		return ci.Event{}, console.Usage("the fixture in %s has the name of a built-in event, %q: choose another one", f.File, f.ID)
	}
	if path, err := author.FixturePath(t.repo.Root, t.kiciDir, f.ID); err == nil {
		if _, missing := os.Stat(path); missing == nil {
			return ci.Event{}, console.Usage("two fixtures are called %q, in %s and in %s: give one of them another name", f.ID, f.File, path)
		}
	}
	a, err := sample.ParseAuthored(f.Options)
	var ev ci.Event
	if err == nil {
		ev, err = a.Envelope(sample.Settings{Branch: t.branch, SHA: t.commit(), Repo: t.repo.Name}, files)
	}
	if err != nil {
		return ev, console.Usage("fixture %s in %s: %w", f.ID, f.File, err)
	}
	t.inputs = a.Inputs
	return ev, nil
}

// delivery finds what is posted: a built-in event, a fixture of a file, or a file.
func (t *trial) delivery(cmd *cobra.Command, name string) (sample.Delivery, error) {
	if strings.HasSuffix(name, ".json") || strings.ContainsAny(name, `/\`) && !strings.Contains(name, ":") {
		return t.fileOnly(cmd, name)
	}
	d, known, err := sample.Make(name, sample.Settings{Branch: t.branch, SHA: t.commit(), Repo: t.repo.Name})
	if err != nil {
		return d, console.Usage("%w", err)
	}
	if known {
		return t.withPayload(d)
	}
	path, err := author.FixturePath(t.repo.Root, t.kiciDir, name)
	if _, missing := os.Stat(path); err != nil || errors.Is(missing, fs.ErrNotExist) {
		return d, console.Usage("no event is called %q: it is none of the built-in ones, no workflow file exports a fixture of that name, and there is no %s (kici fixture list shows all)",
			name, filepath.Join(t.kiciDir, author.FixtureDir, name+".json"))
	}
	return t.fileOnly(cmd, path)
}

// refuseEventFlags refuses flags which would say otherwise what an event says itself.
func refuseEventFlags(cmd *cobra.Command, event string) error {
	for _, flag := range []string{"branch", "payload"} {
		if cmd.Flags().Changed(flag) {
			return console.Usage("--%s is for built-in events: %s says it itself", flag, event)
		}
	}
	return nil
}

// fileOnly reads an event whose payload says everything.
func (t *trial) fileOnly(cmd *cobra.Command, path string) (sample.Delivery, error) {
	if err := refuseEventFlags(cmd, path); err != nil {
		return sample.Delivery{}, err
	}
	d, known, err := author.ReadDelivery(path)
	if err == nil && !known {
		err = console.Usage("%s holds no event but perhaps the payload of one: name the event and add --payload %s", path, path)
	}
	return d, err
}

// withPayload puts the body of a file into a built-in event, or what a fixture has of it.
func (t *trial) withPayload(d sample.Delivery) (sample.Delivery, error) {
	if t.payload == "" {
		return d, nil
	}
	given, known, err := author.ReadDelivery(t.payload)
	if err != nil {
		return d, err
	}
	if d.Payload = given.Payload; known {
		return d, nil
	}
	raw, err := os.ReadFile(t.payload)
	if err != nil {
		return d, fmt.Errorf("read payload: %w", err)
	}
	d.Payload = raw
	return d, nil
}
