package author

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"kici/internal/agent/local"
	"kici/internal/author/compile"
	"kici/internal/cli/console"
)

// initRun is one call of kici init.
type initRun struct {
	console.Process
	o                       compile.InitOptions
	manager                 string
	skip, noAgents, json    bool
	registry, scope, secret string
	elsewhere               string // words for where it is made when that is not here
}

// InitCommand is kici init.
func InitCommand(p console.Process) *cobra.Command {
	i := &initRun{Process: p}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make this repository ready for workflows",
		Long: "Makes .kici/ with a first workflow, the types that an editor needs, and what git must not see, and compiles it. The\n" +
			"workflow is one for what the repository holds (a Go module, a package of Node, …); --preset takes another.\n\n" +
			"Workflows need no package: the SDK is part of kici. One that imports others gets them by --package-manager, which adds\n" +
			".kici/package.json and installs it.",
		Example: "  cd my-repository && kici init\n  kici init --preset make\n  kici init --package-manager npm",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if i.o.Dir == "" {
				i.o.Dir, i.elsewhere = rootHere(cmd.Context())
			}
			return i.run(cmd.Context())
		},
	}
	var names []string
	for _, preset := range compile.Presets() {
		names = append(names, preset.Name)
	}
	f := cmd.Flags()
	f.StringVar(&i.o.Dir, "dir", "", "root of the repository (default: that of the repository here)")
	f.StringVar(&i.o.KiciDir, "kici-dir", compile.DefaultDir, "folder to make, from the root of the repository")
	f.BoolVar(&i.o.Force, "force", false, "make the files of an earlier kici init again; your workflows and package.json stay")
	f.BoolVar(&i.o.JavaScript, "mjs", false, "make a workflow in plain JavaScript")
	f.StringVar(&i.o.Preset, "preset", "", "first workflow: "+strings.Join(names, ", ")+" (default: what the repository looks like)")
	f.StringVar(&i.manager, "package-manager", "", "add a package.json for packages that workflows import, and install them by npm, pnpm or yarn")
	f.BoolVar(&i.skip, "skip-install", false, "install nothing")
	f.BoolVar(&i.noAgents, "no-agents-md", false, "make no AGENTS.md, the page for coding agents")
	f.StringVar(&i.registry, "private-registry", "", "URL of a private registry of packages that the workflow installs from")
	f.StringVar(&i.scope, "private-registry-scope", "", "scope of its packages, as @acme (default: all packages)")
	f.StringVar(&i.secret, "private-registry-secret", "production:NPM_TOKEN", "where its token is, CONTEXT:SECRET")
	f.BoolVar(&i.json, "json", false, "print one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("preset", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("package-manager", cobra.FixedCompletions(packageManagers, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

var packageManagers = []string{"npm", "pnpm", "yarn"}

// registryScope is what a lock file takes.
var registryScope = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^@[a-z0-9][a-z0-9-]*$`) })

// refuse names what cannot be meant.
func (i *initRun) refuse() error {
	u, err := url.Parse(i.registry)
	context, name, pair := strings.Cut(i.secret, ":")
	switch {
	case i.manager != "" && !slices.Contains(packageManagers, i.manager):
		return console.Usage("--package-manager must be npm, pnpm or yarn, not %q", i.manager)
	case i.registry == "" && i.scope != "":
		return console.Usage("--private-registry-scope needs --private-registry")
	case i.registry != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http"):
		return console.Usage("--private-registry must be a URL, as https://npm.example.org/, not %q", i.registry)
	case i.scope != "" && !registryScope().MatchString(i.scope):
		return console.Usage("--private-registry-scope must be like @acme, not %q", i.scope)
	case !pair || context == "" || name == "" || strings.Contains(name, ":"):
		return console.Usage("--private-registry-secret must be CONTEXT:SECRET, not %q", i.secret)
	}
	return nil
}

func (i *initRun) run(ctx context.Context) error {
	if err := i.refuse(); err != nil {
		return err
	}
	if err := RefuseNoFolder(i.o.Dir); err != nil {
		return err
	}
	i.o.Agents, i.o.Packages = !i.noAgents, i.manager != ""
	if i.registry != "" {
		i.o.Registry = &compile.Registry{URL: i.registry, Scope: i.scope, TokenSecret: i.secret}
	}
	made, err := compile.Init(ctx, i.o)
	switch {
	case errors.Is(err, compile.ErrExists):
		return console.Usage("%w: use --force to make again what kici init makes beside your workflows", err)
	case errors.Is(err, compile.ErrPreset), errors.Is(err, compile.ErrFolder):
		return console.Usage("%w", err)
	case err != nil:
		return err
	}
	if i.manager != "" && !i.skip {
		if err := i.install(ctx); err != nil {
			return err
		}
	}
	result, err := compile.Compile(ctx, compile.Options{Dir: i.o.Dir, KiciDir: i.o.KiciDir})
	if err != nil {
		return err
	}
	made.Files = append(made.Files, compile.File{Path: filepath.ToSlash(filepath.Join(i.o.KiciDir, compile.LockName)), About: "what servers read; kici compile writes it"})
	return i.tell(ctx, made, result)
}

func (i *initRun) tell(ctx context.Context, made compile.InitResult, result compile.Result) error {
	if i.json {
		return i.PrintJSON(map[string]any{"preset": made.Preset.Name, "workflow": made.Workflow, "lockFile": result.Path, "files": made.Files, "kept": slices.Concat([]string{}, made.Kept)})
	}
	if slices.Contains(made.Kept, made.Workflow) {
		fmt.Fprintf(i.Stdout, "Made again%s:\n", i.elsewhere)
	} else {
		fmt.Fprintf(i.Stdout, "Made for %s (preset %s)%s:\n", made.Preset.About, made.Preset.Name, i.elsewhere)
	}
	for _, file := range made.Kept {
		made.Files = append(made.Files, compile.File{Path: file, About: "yours, and as it was"})
	}
	width := 0
	for _, file := range made.Files {
		width = max(width, len(file.Path))
	}
	for _, file := range made.Files {
		fmt.Fprintf(i.Stdout, "  %-*s  %s\n", width, file.Path, file.About)
	}
	flag := i.kiciDirFlag()
	if repo, err := local.Describe(ctx, i.o.Dir); err == nil && repo.Root == "" {
		fmt.Fprintf(i.Stdout, "\nThis is no repository of git yet: git init makes it one.\n")
	}
	fmt.Fprintf(i.Stdout, "\nTry it with kici run local push%s. After a change of %s run kici compile%s, and commit both.\n", flag, made.Workflow, flag)
	return nil
}

// rootHere is the root of the repository in which the command was called, and words for where that is unless it is here.
func rootHere(ctx context.Context) (root, elsewhere string) {
	if root = GitRoot(ctx, "."); root == "." {
		return root, ""
	}
	return root, " in " + root
}

// install installs the packages in the folder of workflows. What the package manager prints is of no use but when it fails.
func (i *initRun) install(ctx context.Context) error {
	fmt.Fprintf(i.Stderr, "Installing packages with %s …\n", i.manager)
	cmd := exec.CommandContext(ctx, i.manager, "install")
	cmd.Dir, cmd.Env = filepath.Join(i.o.Dir, i.o.KiciDir), i.Environ
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("install packages: there is no %s on PATH; %s", i.manager, i.goOn(cmd.Dir))
	}
	if err != nil {
		return fmt.Errorf("install packages: %s install: %w\n%s%s", i.manager, err, out, i.goOn(cmd.Dir))
	}
	return nil
}

// goOn says what is left to do once the packages can be installed.
func (i *initRun) goOn(folder string) string {
	return fmt.Sprintf("the files are made: run %s install in %s, then kici compile%s", i.manager, folder, i.kiciDirFlag())
}

// kiciDirFlag is what other commands need to find the folder of workflows.
func (i *initRun) kiciDirFlag() string {
	if filepath.Clean(i.o.KiciDir) == compile.DefaultDir {
		return ""
	}
	return " --kici-dir " + console.ShellWord(i.o.KiciDir)
}
