package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
)

// maxInbound bounds the messages from the agent that the script has not taken; the pipe is not read beyond it.
const maxInbound = 256

// station is the runner's process: it serves one job, or several one after another.
type station struct {
	inbound chan Message
	gone    chan struct{} // closed when the agent has closed its end
	signals chan os.Signal
	stdout  io.Writer
	stderr  io.Writer
}

// Main is the runner: it says ready, waits for an execute message on stdin, runs the job and gives the exit code; after
// a job that is to be followed by another it begins anew instead. SIGTERM and SIGINT abort the job as an abort message
// does. It is to be the last thing its process does: the reader of stdin ends with the process only.
func Main(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) int {
	// One job's worth of garbage: collecting it late costs some megabytes and saves a good part of the start.
	debug.SetGCPercent(400)
	s := &station{
		inbound: make(chan Message, maxInbound),
		gone:    make(chan struct{}),
		signals: make(chan os.Signal, 4),
		stdout:  stdout,
		stderr:  stderr,
	}
	signal.Notify(s.signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(s.signals)
	go s.readInput(stdin)
	for {
		code, again := s.serve(ctx)
		if !again {
			return code
		}
	}
}

// serve is the life of one job, with an engine and a state of its own.
func (s *station) serve(ctx context.Context) (code int, again bool) {
	ctx, end := context.WithCancelCause(ctx)
	c := s.newChild(end)
	var abort sync.WaitGroup
	defer abort.Wait()
	defer c.close()
	defer end(nil)
	c.out.say(map[string]string{"type": TypeReady})
	vm, err := c.newVM(ctx)
	if err != nil {
		fmt.Fprintln(s.stderr, err)
		return exitException, false
	}
	defer vm.Close()
	order, code := s.await(ctx)
	if order == nil {
		return code, false
	}
	abort.Go(func() { s.abortOn(ctx) })
	code = c.execute(ctx, vm, *order)
	return code, order.Again && c.out.completed() && ctx.Err() == nil
}

func (s *station) newChild(end context.CancelCauseFunc) *child {
	c := &child{
		stderr:   s.stderr,
		inbound:  s.inbound,
		end:      end,
		sleeping: map[string]context.CancelFunc{},
		woken:    map[string]bool{},
	}
	c.out = newOutgoing(s.stdout, func(err error) { end(fmt.Errorf("%w: %w", errAgentGone, err)) })
	c.out.last = c.dirs.removeAll
	c.shells = newShells(c.out)
	c.guard = &guard{fire: func(t *stuck) { end(t) }}
	return c
}

// close ends what the job has left at work in this process. What still speaks afterwards is not heard: it could be
// taken for the next job.
func (c *child) close() {
	c.guard.disarm()
	c.shells.close()
	c.dirs.removeAll()
	c.out.close()
	_ = os.Chdir("/") // the folder of the job goes away
}

// await waits for the order to run a job. Without one it gives the exit code. Answers to the job before may still come
// in, and mean nothing.
func (s *station) await(ctx context.Context) (order *Execute, code int) {
	for {
		select {
		case m := <-s.inbound:
			if m.Type != TypeExecute {
				continue
			}
			order = &Execute{}
			if err := m.Decode(order); err != nil {
				order.Request = nil // refused like any request that cannot be read
			}
			return order, 0
		case <-s.gone:
			return nil, exitSuccess // the agent has no use for this runner
		case <-s.signals:
			return nil, exitFailed
		case <-ctx.Done():
			return nil, exitFailed
		}
	}
}

// readInput passes the agent's messages on. When the script does not take them the queue fills and the pipe is not read.
func (s *station) readInput(stdin io.Reader) {
	readLines(stdin, maxLine, false, func(line []byte) bool {
		if m, ok := parseMessage(line); ok {
			s.inbound <- m
		}
		return true
	})
	// The agent's end is an abort without hooks: nobody would see what they do.
	s.inbound <- Message{Type: TypeAbort, Raw: json.RawMessage(`{"type":"abort","force":true}`)}
	close(s.gone)
}

// abortOn makes a signal what an abort message is. The queue is full only when the script no longer looks at it; then a
// signal more or less changes nothing.
func (s *station) abortOn(ctx context.Context) {
	for {
		select {
		case <-s.signals:
			select {
			case s.inbound <- Message{Type: TypeAbort, Raw: json.RawMessage(`{"type":"abort"}`)}:
			default:
			}
		case <-ctx.Done():
			return
		}
	}
}

var errAgentGone = errors.New("the agent has gone")
