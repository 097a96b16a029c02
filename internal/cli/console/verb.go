package console

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Group is a verb that has verbs of its own.
func Group(use, short string, aliases []string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Aliases: aliases, Short: short, Args: cobra.NoArgs, Example: examples(verbs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(verbs...)
	return cmd
}

// examples joins the examples of verbs.
func examples(verbs []*cobra.Command) string {
	var out []string
	for _, v := range verbs {
		if v.Example != "" {
			out = append(out, v.Example)
		}
	}
	return strings.Join(out, "\n")
}

// BeginWith are those that what somebody has begun to write may become.
func BeginWith(names []string, begun string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, begun) })
}
