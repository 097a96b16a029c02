package trial

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kici/internal/author/compile"
	"kici/internal/cli/author"
	"kici/internal/cli/console"
	"kici/internal/core/lockfile"
)

// complete makes a shell know the events, workflows and jobs of the repository. What cannot be read has no names to offer.
func (t *trial) complete(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := cmd.Context()
		return console.BeginWith(author.EventNames(ctx, author.GitRoot(ctx, t.dir), t.kiciDir), begun), cobra.ShellCompDirectiveDefault // a file can hold an event, too
	}
	for flag, names := range map[string]func(lockfile.Workflow) []string{
		"workflow": func(w lockfile.Workflow) []string { return []string{w.Name} },
		"job": func(w lockfile.Workflow) (names []string) {
			for _, j := range w.Jobs {
				if j.Name != "" && (t.workflow == "" || t.workflow == w.Name) {
					names = append(names, j.Name)
				}
			}
			return names
		},
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			var all []string
			for _, w := range t.compiled(cmd.Context()) {
				all = append(all, names(w)...)
			}
			return console.BeginWith(all, begun), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// compiled are the workflows of the lock file, which is at hand at once.
func (t *trial) compiled(ctx context.Context) []lockfile.Workflow {
	raw, err := os.ReadFile(filepath.Join(author.InRoot(author.GitRoot(ctx, t.dir), t.kiciDir), compile.LockName))
	if err != nil {
		return nil
	}
	lock, bad := lockfile.Load(raw, "this repository", "working copy")
	if bad != nil {
		return nil
	}
	return lock.Workflows
}
