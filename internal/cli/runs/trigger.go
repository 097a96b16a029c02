package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/cli/livetree"
	"kici/internal/client"
	"kici/internal/core/adminwire"
)

// evaluationTime is how long a trigger waits to hear what became of it. Evaluating takes milliseconds.
const evaluationTime = 15 * time.Second

// evaluationLook is the pause between two looks.
const evaluationLook = 50 * time.Millisecond

// received is the state of a delivery that was not evaluated yet, or of which nothing could come.
const received = "received"

// triggerCommand is a push without a push. It waits until the delivery has been evaluated, to say which runs came of it.
func (a *admin) triggerCommand() *cobra.Command {
	var repo string
	var watch bool
	cmd := &cobra.Command{
		Use:   "trigger SOURCE [REF]",
		Short: "Start what a push of a branch, tag or commit would start",
		Long: "Starts what a push of REF would start, without a push and without a forge. REF is a branch, a tag or a commit of a local\n" +
			"source's repository, by default its default branch. In a working tree below the source's folder --repo may be left out.",
		Example: "  kici admin trigger work main --repo app\n  cd ~/git/app && kici admin trigger work --watch",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: a.sources(),
	}
	cmd.Flags().StringVar(&repo, "repo", "", "repository, by its path below the source's folder")
	cmd.Flags().BoolVar(&watch, "watch", false, "show the runs until they have ended; fails when one does not succeed")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		src, err := a.FindSource(ctx, c, args[0])
		if err != nil {
			return err
		}
		ref := ""
		if len(args) > 1 {
			ref = args[1]
		}
		if repo == "" {
			if repo = repositoryHere(src); repo == "" {
				return console.Usage("--repo is required: the repository's path below the folder of source %s", src.Name)
			}
		}
		done, err := c.Trigger(ctx, src.ID, repo, ref)
		if err != nil {
			return err
		}
		return a.reportTrigger(ctx, c, done, watch)
	})
	return cmd
}

// repositoryHere is the repository of the working directory, by its path below the source's folder, "" when it is not
// below it.
func repositoryHere(src adminwire.Source) string {
	if src.LocalConfig == nil {
		return ""
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	base, err := filepath.EvalSymlinks(src.LocalConfig.RepoBasePath)
	if err != nil {
		return ""
	}
	for dir, err = filepath.EvalSymlinks(dir); err == nil; dir = filepath.Dir(dir) {
		rel, err := filepath.Rel(base, dir)
		if err != nil || rel == "." || !filepath.IsLocal(rel) {
			return ""
		}
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return filepath.ToSlash(rel)
		}
	}
	return ""
}

// triggered is what became of a trigger.
type triggered struct {
	adminwire.Triggered
	Status string          `json:"status"` // of the delivery
	Error  *string         `json:"errorMessage"`
	Runs   []adminwire.Run `json:"runs"`
}

// reportTrigger prints the runs, or follows them one after the other, the first started first.
func (a *admin) reportTrigger(ctx context.Context, c *client.Client, done adminwire.Triggered, watch bool) error {
	d, err := evaluated(ctx, c, a.Org, done.DeliveryID)
	if err != nil {
		return err
	}
	// The time keeps the search short on a server with a long past: runs are found by it, not by their delivery.
	since := d.ReceivedAt.Add(-time.Millisecond).Format(time.RFC3339Nano)
	list, err := c.Runs(ctx, client.RunQuery{Delivery: done.DeliveryID, Since: since, Limit: 100})
	if err != nil {
		return err
	}
	if a.JSON && !watch {
		return a.PrintJSON(triggered{done, d.Status, d.ErrorMessage, list.Runs})
	}
	if !a.JSON {
		fmt.Fprintf(a.Stderr, "Triggered at commit %s: %s\n", short(done.SHA), livetree.Clean(outcome(d, len(list.Runs))))
	}
	if len(list.Runs) == 0 {
		return noRuns(d)
	}
	if !watch {
		a.runTable(list.Runs)
		return nil
	}
	failed := error(nil)
	for i := len(list.Runs) - 1; i >= 0; i-- { // oldest first
		if err := a.watch(ctx, c, list.Runs[i].RunID); err != nil {
			if exit, ok := errors.AsType[*console.ExitError](err); !ok || exit.Cause != nil {
				return err
			}
			failed = err
		}
	}
	return failed
}

// evaluated waits until a delivery has been evaluated, or for as long as that may be waited for.
func evaluated(ctx context.Context, c *client.Client, org, id string) (adminwire.Delivery, error) {
	deadline := time.Now().Add(evaluationTime)
	for {
		d, err := c.Delivery(ctx, org, id, false)
		if err != nil || d.Status != received || time.Now().After(deadline) {
			return d, err
		}
		if err := pause(ctx, evaluationLook); err != nil {
			return d, err
		}
	}
}

// outcome is what became of a delivery, in a sentence.
func outcome(d adminwire.Delivery, runs int) string {
	switch {
	case runs > 0:
		return console.Plural(runs, "run")
	case d.ErrorMessage != nil:
		return d.Status + ": " + *d.ErrorMessage
	case d.Status == received:
		return "not evaluated yet; see kici admin deliveries"
	}
	return "no workflow is started by it"
}

// noRuns is the end of a trigger of which no run came: well when no workflow matched, else not.
func noRuns(d adminwire.Delivery) error {
	if d.ErrorMessage != nil || d.Status == received {
		return &console.ExitError{Code: console.ExitFailure}
	}
	return nil
}

// shortRef is a branch or tag without its folder, and a commit cut short.
func shortRef(ref string) string {
	if len(ref) == 40 && !strings.ContainsFunc(ref, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) }) {
		return short(ref)
	}
	return strings.TrimPrefix(strings.TrimPrefix(ref, "refs/heads/"), "refs/tags/")
}

// deliveriesCommand is where one looks when a push started nothing.
func (a *admin) deliveriesCommand() *cobra.Command {
	var status, event string
	var limit int
	cmd := &cobra.Command{
		Use:     "deliveries",
		Aliases: []string{"event-log"},
		Short:   "List what sources have sent, and what became of it",
		Example: "  kici admin deliveries --status failed\n  kici admin deliveries show DELIVERY --include-payload | kici fixture add real-push - --event push",
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(a.deliveryCommand())
	cmd.Flags().StringVar(&status, "status", "", "received, processed, duplicate, lockfile_missing, lockfile_corrupt, failed or shed")
	cmd.Flags().StringVar(&event, "event", "", "name of the event")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many, 200 at most")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, _ []string) error {
		list, err := c.Deliveries(ctx, a.Org, status, event, limit)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(list)
		}
		t := console.Table{What: "deliveries", Head: []string{"RECEIVED", "EVENT", "REPOSITORY", "REF", "STATUS", "RUNS", "REMARK", "DELIVERY"}}
		for _, d := range list.Deliveries {
			t.Row(console.When(d.ReceivedAt), d.Event, console.Text(d.RepoIdentifier), shortRef(console.Text(d.Ref)), d.Status, fmt.Sprint(d.MatchedCount), console.Text(d.ErrorMessage), d.DeliveryID)
		}
		t.Write(a.Stdout)
		return nil
	})
	return cmd
}

// deliveryCommand shows one delivery.
func (a *admin) deliveryCommand() *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use:   "show DELIVERY",
		Short: "Show one delivery, or print what its sender sent",
		Long: "Shows what became of a delivery. With --include-payload it prints the body as it was received and nothing else, for a fixture of\n" +
			"kici preview and kici run local. The server keeps bodies as long as it remembers the ids of deliveries, a day by default.",
		Example: "  kici admin deliveries show DELIVERY\n  kici admin deliveries show DELIVERY --include-payload > push.json",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&payload, "include-payload", false, "print the body alone; with --json, print it with the rest")
	cmd.RunE = a.With(func(ctx context.Context, c *client.Client, args []string) error {
		d, err := c.Delivery(ctx, a.Org, args[0], payload)
		switch {
		case err != nil:
			return err
		case a.JSON:
			return a.PrintJSON(d)
		case payload:
			return a.writePayload(d)
		}
		a.describeDelivery(d)
		return nil
	})
	return cmd
}

// writePayload prints the body of a delivery.
func (a *admin) writePayload(d adminwire.Delivery) error {
	if d.PayloadReadError != "" {
		return fmt.Errorf("delivery %s: %s", d.DeliveryID, d.PayloadReadError)
	}
	var body string
	if json.Unmarshal(d.Payload, &body) != nil {
		body = string(d.Payload)
	}
	_, err := fmt.Fprintln(a.Stdout, body)
	return err
}

func (a *admin) describeDelivery(d adminwire.Delivery) {
	console.Pairs(a.Stdout, [2]string{"delivery", d.DeliveryID}, [2]string{"received", console.When(d.ReceivedAt)}, [2]string{"source", d.RoutingKey},
		[2]string{"event", d.Event}, [2]string{"action", console.Text(d.Action)}, [2]string{"repository", console.Text(d.RepoIdentifier)},
		[2]string{"ref", console.Text(d.Ref)}, [2]string{"status", d.Status}, [2]string{"workflows", fmt.Sprint(d.MatchedCount)},
		[2]string{"run", console.Text(d.RunID)}, [2]string{"remark", console.Text(d.ErrorMessage)},
		[2]string{"body", fmt.Sprintf("%d bytes, SHA-256 %s", d.PayloadSizeBytes, d.PayloadHash)})
}
