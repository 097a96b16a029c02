package agent

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Run is an agent as a program: it serves until ctx ends or a signal says so. SIGTERM and SIGINT end it gracefully, a
// second one at once; SIGUSR1 drains it. An error is an *ExitError with the exit code, nil is exit code 0.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	a, err := New(cfg, log)
	if err != nil {
		return &ExitError{Code: 1, Err: err}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	force := make(chan struct{})
	signals := make(chan os.Signal, 4) // one more than matter: stop, stop again, drain
	signal.Notify(signals, append([]os.Signal{syscall.SIGTERM, syscall.SIGINT}, drainSignals...)...)
	done := make(chan struct{})
	defer func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}()
	go func() {
		defer close(done)
		stops := 0
		for s := range signals {
			if slices.Contains(drainSignals, s) {
				a.Drain()
				continue
			}
			stops++
			switch stops {
			case 1:
				cancel()
			case 2:
				close(force)
			}
		}
	}()
	return a.serveUntil(ctx, force)
}
