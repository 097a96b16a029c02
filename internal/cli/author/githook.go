package author

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/author/compile"
	"kici/internal/cli/console"
)

// hookMark tells a hook of ours, which may be written over.
const hookMark = "# Made by kici hook install."

// hookHead lets commits pass where there is nothing to compile, as on a branch of before, and where kici is missing: that
// is told, instead of keeping people from their work.
const hookHead = `#!/bin/sh
` + hookMark + `
[ -d @DIR@/workflows ] || exit 0
if ! command -v kici >/dev/null 2>&1; then
  echo 'kici is not on PATH: the lock file of the workflows is not looked at' >&2
  exit 0
fi
`

// hookTasks are what the hooks do. The lock file that goes into a commit is made of the files as they lie there.
var hookTasks = map[string]string{
	"pre-commit": "kici compile --quiet@FLAG@ && git add -- @DIR@/" + compile.LockName,
	"pre-push":   "kici compile --quiet --check@FLAG@",
}

// HookCommand is kici hook.
func HookCommand(p console.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "hook", Short: "Hooks of git in this repository", Example: "  kici hook install", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(hookInstallCommand(p))
	return cmd
}

// hookInstall is kici hook install.
type hookInstall struct {
	console.Process
	dir, kiciDir     string
	push, git, force bool
}

func hookInstallCommand(p console.Process) *cobra.Command {
	h := &hookInstall{Process: p}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Let git compile the workflows before each commit",
		Long: "Installs a pre-commit hook that compiles the workflows and adds the lock file to the commit, and keeps the commit back\n" +
			"when they do not compile. With --pre-push it is one before a push that only checks whether the lock file is up to date.\n" +
			"A repository that manages its hooks with husky gets a line in .husky/, unless --git asks for a hook of git itself.\n" +
			"A hook that somebody else wrote stays unless --force is given.",
		Example: "  kici hook install\n  kici hook install --pre-push",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return h.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&h.dir, "dir", ".", "folder in the repository")
	f.StringVar(&h.kiciDir, "kici-dir", compile.DefaultDir, "folder of the workflows, from the root of the repository")
	f.BoolVar(&h.push, "pre-push", false, "check before a push instead of compiling before a commit")
	f.BoolVar(&h.git, "git", false, "make a hook of git also where husky manages the hooks")
	f.BoolVar(&h.force, "force", false, "replace a hook that is there")
	return cmd
}

func (h *hookInstall) run(ctx context.Context) error {
	name := "pre-commit"
	if h.push {
		name = "pre-push"
	}
	if !filepath.IsLocal(h.kiciDir) {
		return console.Usage("--kici-dir must be a folder below the root of the repository, not %s", h.kiciDir)
	}
	root, err := h.ask(ctx, "--show-toplevel")
	if err != nil {
		return err
	}
	folder, err := h.ask(ctx, "--path-format=absolute", "--git-path", "hooks")
	if err != nil {
		return err
	}
	own, err := h.ask(ctx, "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return err
	}
	// Husky points git to a folder of generated scripts, which run those that the repository keeps in .husky.
	if husky := filepath.Join(root, ".husky"); folder == filepath.Join(husky, "_") && !h.git {
		return h.addLine(filepath.Join(husky, name), name)
	}
	if h.git && folder != filepath.Join(own, "hooks") {
		return console.Usage("core.hooksPath makes git take its hooks from %s, so one of its own would never run: leave --git out", folder)
	}
	return h.install(filepath.Join(folder, name), name)
}

// ask lets git tell about the repository.
func (h *hookInstall) ask(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"rev-parse"}, args...)...)
	cmd.Dir = h.dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", console.Usage("no git repository at %s: %s", h.dir, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("find the hooks of git: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// fill puts the folder of workflows into a script.
func (h *hookInstall) fill(script string) string {
	flag := ""
	if filepath.Clean(h.kiciDir) != compile.DefaultDir {
		flag = " --kici-dir " + console.ShellWord(filepath.ToSlash(h.kiciDir))
	}
	return strings.NewReplacer("@DIR@", console.ShellWord(filepath.ToSlash(filepath.Clean(h.kiciDir))), "@FLAG@", flag).Replace(script)
}

func (h *hookInstall) install(path, name string) error {
	task := h.fill(hookTasks[name])
	old, err := os.ReadFile(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read hook: %w", err)
	case err == nil && !h.force && !strings.Contains(string(old), hookMark):
		return console.Usage("%s is there already: add the line `%s` to it, or use --force", path, task)
	}
	return h.write(path, h.fill(hookHead)+task+"\n", task)
}

// addLine adds our line to a script that the repository keeps, once.
func (h *hookInstall) addLine(path, name string) error {
	task := h.fill(hookTasks[name])
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read hook: %w", err)
	}
	text := string(old)
	if strings.Contains(text, task) {
		fmt.Fprintf(h.Stdout, "%s has it already: %s\n", path, task)
		return nil
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return h.write(path, text+hookMark+"\n"+task+"\n", task)
}

func (h *hookInstall) write(path, text, task string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of hooks: %w", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		return fmt.Errorf("write hook: %w", err)
	}
	if err := os.Chmod(path, 0o755); err != nil { // one that was there may not have been executable
		return fmt.Errorf("write hook: %w", err)
	}
	fmt.Fprintf(h.Stdout, "Installed %s: git runs %s\n", path, task)
	return nil
}
