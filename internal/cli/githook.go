package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// hookMark tells a hook of ours, which may be written over.
const hookMark = "# Made by kici hook install."

// hookText checks the lock file. Where kici is missing it says so instead of keeping people from their work.
const hookText = `#!/bin/sh
` + hookMark + `
if ! command -v kici >/dev/null 2>&1; then
  echo 'kici is not on PATH: the lock file of the workflows is not checked' >&2
  exit 0
fi
exec kici compile --check
`

func (p Process) hookCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "hook", Short: "Hooks of git in this repository", Example: "  kici hook install", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.hookInstallCommand())
	return cmd
}

func (p Process) hookInstallCommand() *cobra.Command {
	var dir string
	var push, force bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Let git refuse commits whose lock file is out of date",
		Long: "Installs a pre-commit hook, or with --pre-push one before a push, that runs kici compile --check. A hook that somebody\n" +
			"else wrote stays unless --force is given.",
		Example: "  kici hook install\n  kici hook install --pre-push",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name := "pre-commit"
			if push {
				name = "pre-push"
			}
			ask := exec.CommandContext(cmd.Context(), "git", "rev-parse", "--git-path", "hooks")
			ask.Dir = dir
			out, err := ask.Output()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return usage("no git repository at %s: %s", dir, strings.TrimSpace(string(exit.Stderr)))
			}
			if err != nil {
				return fmt.Errorf("find the hooks of git: %w", err)
			}
			folder := strings.TrimSpace(string(out))
			if !filepath.IsAbs(folder) {
				folder = filepath.Join(dir, folder)
			}
			return p.installHook(filepath.Join(folder, name), force)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "folder in the repository")
	cmd.Flags().BoolVar(&push, "pre-push", false, "check before a push instead of before a commit")
	cmd.Flags().BoolVar(&force, "force", false, "replace a hook that is there")
	return cmd
}

func (p Process) installHook(path string, force bool) error {
	old, err := os.ReadFile(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read hook: %w", err)
	case err == nil && !force && !strings.Contains(string(old), hookMark):
		return usage("%s is there already: add the line `kici compile --check` to it, or use --force", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of hooks: %w", err)
	}
	if err := os.WriteFile(path, []byte(hookText), 0o755); err != nil {
		return fmt.Errorf("write hook: %w", err)
	}
	if err := os.Chmod(path, 0o755); err != nil { // one that was there may not have been executable
		return fmt.Errorf("write hook: %w", err)
	}
	fmt.Fprintf(p.Stdout, "Installed %s: git runs kici compile --check\n", path)
	return nil
}
