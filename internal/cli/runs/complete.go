package runs

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/cli/livetree"
	"kici/internal/client"
	"kici/internal/core/ci"
)

// completion is what the shell asks for the words that may stand in a place.
type completion = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// offer makes a completion of what a server has. One that does not answer has nothing to offer, and never files.
func (a *admin) offer(of func(cmd *cobra.Command, c *client.Client, args []string) ([]string, error)) completion {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		a.Where.Env = a.Env
		c, err := client.Connect(a.Where)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, err := of(cmd, c, args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return console.BeginWith(all, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// jobsOfRun offers the names of the jobs of the run that the first argument names.
func (a *admin) jobsOfRun() completion {
	return a.offer(func(cmd *cobra.Command, c *client.Client, args []string) (names []string, err error) {
		if len(args) == 0 {
			return nil, nil
		}
		id, err := runID(cmd.Context(), c, a.named(cmd), args[0])
		if err != nil {
			return nil, err
		}
		jobs, err := c.Jobs(cmd.Context(), id)
		for _, j := range jobs {
			names = append(names, livetree.Clean(j.JobName))
		}
		return names, err
	})
}

// openHolds offers the holds about which somebody may decide.
func (a *admin) openHolds() completion {
	return a.offer(func(cmd *cobra.Command, c *client.Client, _ []string) (ids []string, err error) {
		holds, err := c.HeldRuns(cmd.Context(), client.HoldQuery{Status: string(ci.HoldPending), Org: a.named(cmd)})
		for _, h := range holds {
			ids = append(ids, fmt.Sprintf("%s\t%s %s", h.ID, livetree.Clean(h.WorkflowName), livetree.Clean(heldPart(h))))
		}
		return ids, err
	})
}

// sources offers the names of sources in the place of the first argument.
func (a *admin) sources() completion {
	return a.offer(func(cmd *cobra.Command, c *client.Client, args []string) (names []string, err error) {
		if len(args) > 0 {
			return nil, nil
		}
		all, err := c.Sources(cmd.Context(), a.Org)
		for _, s := range all {
			names = append(names, livetree.Clean(s.Name))
		}
		return names, err
	})
}

// states offers those of a list of states that are not in it yet.
func states[T ~string](all []T) completion {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		before, last := "", begun
		if i := strings.LastIndexByte(begun, ','); i >= 0 {
			before, last = begun[:i+1], begun[i+1:]
		}
		var fitting []string
		for _, s := range all {
			if strings.HasPrefix(string(s), last) && !strings.Contains(","+before, ","+string(s)+",") {
				fitting = append(fitting, before+string(s))
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
	}
}
