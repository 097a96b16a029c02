package runs

import (
	"context"
	"errors"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
)

func (a *admin) watchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch RUN",
		Short: "Show a run while it goes on; ends with it, and well only if it ended well",
		Long: "Shows a run's jobs and steps with their states, times and last log lines, drawn again while they change. Where the output\n" +
			"is no terminal, a line for every change and every log line; with --json each message of the server's stream as one line,\n" +
			"every log line in one of them, once and in order, and a log.gap where lines are nowhere any more.\n" +
			"A connection that breaks is taken up again. The exit code is 0 for a run that succeeded, else 1.",
		Example: "  kici admin runs watch latest\n  kici admin runs watch latest --json | jq -r 'select(.type == \"observe.log\").lines[]'",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: a.ofRun(a.watch),
	}
}

// watch shows a run until it has ended. An interrupt ends the watching, not the run.
func (a *admin) watch(ctx context.Context, c *client.Client, id string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w := &watcher{c: c.Patient(), id: id, from: map[stepKey]int64{}, reasons: map[string]ci.Reason{}}
	if a.JSON {
		w.print = func(m adminwire.Observed) error { return a.PrintLine(m) }
		w.take = w.tell
	} else {
		w.screen = a.Screen()
		_, w.brief = console.Terminal(a.Stdout)
		w.take = w.show
	}
	status, err := w.follow(ctx)
	if w.screen != nil {
		w.screen.Close()
	}
	if err == nil && status != ci.RunSuccess {
		err = &console.ExitError{Code: console.ExitFailure}
	}
	return err
}

// The pace of coming back after a broken connection, and for how long it is tried.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 5 * time.Second
	tries      = 12
)

// redrawEvery is how often a terminal's tree is drawn again while nothing changes: its times go on.
const redrawEvery = 250 * time.Millisecond

// watcher follows the stream of one run.
type watcher struct {
	c    *client.Client
	id   string
	take func(ctx context.Context, m adminwire.Observed) error

	run  adminwire.RunDetail
	jobs []adminwire.Job
	from map[stepKey]int64 // lines shown; −1 of a step whose job has ended and which is shown whole

	// For programs: print is nil for people.
	print    func(adminwire.Observed) error
	sequence int64 // of the last message

	// For people: screen is nil for programs.
	screen  console.Screen
	brief   bool                 // only the last lines matter
	reasons map[string]ci.Reason // what waiting jobs wait for
	asked   time.Time            // when the reasons were asked for
}

// follow takes messages until the run has ended, over as many connections as it takes, and gives how it ended. The
// reading has a goroutine of its own, which ends before follow does, so that times go on while nothing comes.
func (w *watcher) follow(ctx context.Context) (ci.RunStatus, error) {
	ctx, cancel := context.WithCancel(ctx)
	messages, ended := make(chan adminwire.Observed, 16), make(chan error, 1)
	var reading sync.WaitGroup
	reading.Go(func() { ended <- w.read(ctx, messages) })
	defer reading.Wait()
	defer cancel()
	return w.consume(ctx, messages, ended)
}

func (w *watcher) consume(ctx context.Context, messages <-chan adminwire.Observed, ended <-chan error) (ci.RunStatus, error) {
	redraw := time.NewTicker(redrawEvery)
	defer redraw.Stop()
	for {
		select {
		case m := <-messages:
			if err := w.take(ctx, m); err != nil {
				return "", err
			}
			if m.Type == adminwire.ObserveComplete {
				return ci.RunStatus(m.Status), nil
			}
		case err := <-ended:
			if err != nil {
				return "", err
			}
			ended = nil // the last message is still to come
		case <-redraw.C:
			if w.run.RunID == "" {
				continue // nothing to show yet, or nobody to show it to
			}
			if err := w.refresh(ctx); err != nil {
				return "", err
			}
		}
	}
}

// read reads the stream, and begins again where it broke off.
func (w *watcher) read(ctx context.Context, messages chan<- adminwire.Observed) error {
	pass := func(m adminwire.Observed) error {
		select {
		case messages <- m:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	last, wait, failed := "", firstPause, 0
	for {
		reached, err := w.c.Watch(ctx, w.id, last, pass)
		if refused, ok := errors.AsType[*client.Error](err); err == nil || ctx.Err() != nil || ok && refused.Status < 500 {
			return err
		}
		if reached != last {
			last, wait, failed = reached, firstPause, 0
		}
		if failed++; failed > tries {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, lastPause)
	}
}
