package author

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/author/compile"
	"kici/internal/author/sample"
	"kici/internal/cli/console"
)

// fixtures are the events that a repository keeps to try its workflows with.
type fixtures struct {
	console.Process
	dir     string
	kiciDir string
	json    bool
}

// FixtureCommand is kici fixture.
func FixtureCommand(p console.Process) *cobra.Command {
	f := &fixtures{Process: p}
	var output string
	cmd := &cobra.Command{
		Use:   "fixture [EVENT]",
		Short: "Make and keep events to try workflows with",
		Long: "Prints a built-in event as a file that can be changed and then tried. With a verb it manages the fixtures of the\n" +
			"repository: events in .kici/fixtures that kici preview and kici run local know by their names.",
		Example: "  kici fixture pr:open --output pr.json\n  kici fixture add real-push delivery.json\n  kici preview real-push",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := f.builtIn(args[0])
			if err != nil {
				return err
			}
			return f.write(d, output)
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "file to write to (default: print)")
	cmd.PersistentFlags().StringVar(&f.dir, "dir", ".", "folder in the repository")
	cmd.PersistentFlags().StringVar(&f.kiciDir, "kici-dir", compile.DefaultDir, "folder of the workflows, from the root of the repository")
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		f.dir, err = workflowsRoot(cmd.Context(), f.dir, f.kiciDir)
		return err
	}
	cmd.AddCommand(f.listCommand(), f.addCommand(), f.showCommand())
	return cmd
}

// complete offers the names of events.
func (f *fixtures) complete(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	root, err := workflowsRoot(cmd.Context(), f.dir, f.kiciDir)
	if err != nil {
		root = f.dir
	}
	return console.BeginWith(EventNames(cmd.Context(), root, f.kiciDir), begun), cobra.ShellCompDirectiveNoFileComp
}

// EventNames are those of all events that a repository can be tried with, each with what it is about. What cannot be
// read has no names to offer.
func EventNames(ctx context.Context, root, kiciDir string) []string {
	f := &fixtures{Process: console.Process{Stderr: io.Discard}, dir: root, kiciDir: kiciDir}
	list, err := f.list(ctx)
	if err != nil {
		return nil
	}
	names := make([]string, len(list))
	for i, one := range list {
		about, _, _ := strings.Cut(one.About, "\n")
		names[i] = cobra.CompletionWithDesc(one.Name, about)
	}
	return names
}

func (f *fixtures) builtIn(name string) (sample.Delivery, error) {
	d, known, err := sample.Make(name, sample.Settings{Branch: "main", SHA: strings.Repeat("2", 40), Repo: "acme/app"})
	switch {
	case err != nil:
		return d, console.Usage("%w", err)
	case !known:
		return d, console.Usage("no built-in event is called %q (kici fixture list shows them)", name)
	}
	return d, nil
}

// encode is the text of a fixture file.
func encode(d sample.Delivery) ([]byte, error) {
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// write prints an event, or puts it into a file that is not there yet.
func (f *fixtures) write(d sample.Delivery, output string) error {
	raw, err := encode(d)
	if err != nil {
		return err
	}
	if output == "" {
		_, err = f.Stdout.Write(raw)
		return err
	}
	if err := create(output, raw, false); err != nil {
		return err
	}
	fmt.Fprintln(f.Stdout, "Wrote", output)
	return nil
}

// create writes a file; one that is there already is replaced only by force.
func create(path string, content []byte, force bool) error {
	how := os.O_CREATE | os.O_WRONLY | os.O_EXCL
	if force {
		how = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	}
	file, err := os.OpenFile(path, how, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return console.Usage("%s is there already", path)
	}
	if err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

// listed is one line of the list.
type listed struct {
	Name    string `json:"name"`
	Variant string `json:"variants,omitempty"`
	About   string `json:"about"`
	BuiltIn bool   `json:"builtIn"`
	File    string `json:"file,omitempty"` // the workflow file that exports it
	Error   string `json:"error,omitempty"`
}

func (f *fixtures) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the fixtures of the repository and the built-in events", Example: "  kici fixture list", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := f.list(cmd.Context())
			if err != nil {
				return err
			}
			if f.json {
				return f.PrintJSON(map[string]any{"fixtures": list})
			}
			t := console.Table{What: "events", Head: []string{"EVENT", "AFTER A COLON", "ABOUT"}}
			for _, one := range list {
				t.Row(one.Name, one.Variant, cmp.Or(one.Error, one.About))
			}
			t.Write(f.Stdout)
			return nil
		},
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	return cmd
}

// exported compiles the workflows for the fixtures in them. Without workflows there are none.
func (f *fixtures) exported(ctx context.Context) ([]compile.Fixture, error) {
	if _, err := os.Stat(filepath.Join(InRoot(f.dir, f.kiciDir), "workflows")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	result, err := compile.Compile(ctx, compile.Options{Dir: f.dir, KiciDir: f.kiciDir, Check: true})
	return result.Fixtures, err
}

func (f *fixtures) list(ctx context.Context) ([]listed, error) {
	var list []listed
	exported, err := f.exported(ctx)
	if err != nil {
		fmt.Fprintf(f.Stderr, "The fixtures of workflow files are left out, since these do not compile:\n%v\n", err)
	}
	for _, e := range exported {
		one := listed{Name: e.ID, File: e.File}
		if a, err := sample.ParseAuthored(e.Options); err != nil {
			one.Error = err.Error()
		} else {
			one.About = cmp.Or(a.Description, "a fixture in "+e.File)
		}
		list = append(list, one)
	}

	folder := filepath.Join(InRoot(f.dir, f.kiciDir), FixtureDir)
	entries, err := os.ReadDir(folder) // in the order of names
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list fixtures: %w", err)
	}
	for _, entry := range entries {
		name, isFixture := strings.CutSuffix(entry.Name(), ".json")
		if !isFixture {
			continue
		}
		one := listed{Name: name}
		if d, known, err := ReadDelivery(filepath.Join(folder, entry.Name())); err != nil {
			one.Error = err.Error()
		} else if !known {
			one.Error = "it holds no event"
		} else {
			one.About = "a fixture: " + d.Event
		}
		list = append(list, one)
	}
	for _, k := range sample.Kinds() {
		list = append(list, listed{Name: k.Name, Variant: k.Variants, About: k.About, BuiltIn: true})
	}
	return list, nil
}

func (f *fixtures) addCommand() *cobra.Command {
	var event, forge string
	var force bool
	cmd := &cobra.Command{
		Use:   "add NAME FILE",
		Short: "Keep an event as a fixture",
		Long: "Keeps an event under a name. FILE (- is the standard input) is what kici fixture EVENT prints, a recorded delivery\n" +
			"{\"headers\": …, \"body\": …}, of which event and payload are kept, or a payload alone together with --event.",
		Example: "  kici fixture add real-push delivery.json\n  kici fixture add mr payload.json --event 'Merge Request Hook' --forge gitlab-repo",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := FixturePath(f.dir, f.kiciDir, args[0])
			if err != nil {
				return err
			}
			d, err := f.read(args[1], event, forge)
			if err != nil {
				return err
			}
			if _, err := d.Envelope(nil); err != nil {
				return console.Usage("%w", err)
			}
			return f.keep(path, d, force)
		},
	}
	cmd.Flags().StringVar(&event, "event", "", "what the sender calls the event, for a payload alone")
	cmd.Flags().StringVar(&forge, "forge", "", "whose payload it is: github, gitea, forgejo, gogs, gitlab-repo or local (default: github)")
	cmd.Flags().BoolVar(&force, "force", false, "replace a fixture of the name")
	return cmd
}

func (f *fixtures) keep(path string, d sample.Delivery, force bool) error {
	raw, err := encode(d)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of fixtures: %w", err)
	}
	if err := create(path, raw, force); err != nil {
		return err
	}
	fmt.Fprintln(f.Stdout, "Kept", path)
	return nil
}

func (f *fixtures) read(from, event, forge string) (sample.Delivery, error) {
	raw, err := f.content(from)
	if err != nil {
		return sample.Delivery{}, err
	}
	d, known, err := sample.Parse(raw)
	switch {
	case err != nil:
		return d, console.Usage("read event %s: %w", from, err)
	case known && (event != "" || forge != ""):
		return d, console.Usage("%s says itself which event it is: leave --event and --forge out", from)
	case known:
		return d, nil
	case event == "":
		return d, console.Usage("%s holds a payload without its event: add --event, as in --event push", from)
	}
	return sample.Delivery{Event: event, Forge: forge, Payload: raw}, nil
}

func (f *fixtures) content(from string) ([]byte, error) {
	source := f.Stdin
	if from != "-" {
		file, err := os.Open(from)
		if err != nil {
			return nil, console.Usage("read event: %w", err)
		}
		defer file.Close()
		source = file
	}
	raw, err := io.ReadAll(io.LimitReader(source, maxEvent+1))
	if err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	if len(raw) > maxEvent {
		return nil, console.Usage("read event: %s has more than the %d bytes of a delivery", from, maxEvent)
	}
	return raw, nil
}

func (f *fixtures) showCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Print a fixture, or a built-in event", Example: "  kici fixture show real-push", Args: cobra.ExactArgs(1),
		ValidArgsFunction: f.complete,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.show(cmd.Context(), args[0]) },
	}
}

// show prints a fixture of a file, one that a workflow file exports, or a built-in event.
func (f *fixtures) show(ctx context.Context, name string) error {
	if path, err := FixturePath(f.dir, f.kiciDir, name); err == nil {
		if _, missing := os.Stat(path); missing == nil {
			d, known, err := ReadDelivery(path)
			if err == nil && !known {
				err = console.Usage("%s holds no event", path)
			}
			if err != nil {
				return err
			}
			return f.write(d, "")
		}
	}
	if d, err := f.builtIn(name); err == nil {
		return f.write(d, "")
	}
	exported, err := f.exported(ctx)
	if err != nil {
		return err
	}
	for _, e := range exported {
		if e.ID == name {
			return f.PrintJSON(e.Options)
		}
	}
	return console.Usage("no fixture and no built-in event is called %q (kici fixture list shows both)", name)
}
