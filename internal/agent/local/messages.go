//go:build unix

package local

import (
	"fmt"

	"kici/internal/agent/runner"
	"kici/internal/core/wire"
)

// handle deals with one message of the runner and returns the job's result when it is that. A message that breaks its
// shape is passed over, as a line that is no message is.
func (w *worker) handle(proc *runner.Process, m runner.Message) *runner.JobComplete {
	switch m.Type {
	case runner.TypeLogLine:
		var v runner.LogLine
		if m.Decode(&v) == nil {
			w.tell(func() { w.r.line(w.j, v.StepIndex, v.Line) })
		}
	case runner.TypeStepStart:
		var v runner.StepStart
		if m.Decode(&v) == nil && !w.helps {
			w.tell(func() { w.r.stepStarted(w.j, v) })
		}
	case runner.TypeStepComplete:
		var v runner.StepComplete
		if m.Decode(&v) == nil && !w.helps {
			w.tell(func() { w.r.stepEnded(w.j, v) })
		}
	case runner.TypeConcurrency:
		w.respond(proc, runner.ConcurrencyAck{Type: runner.TypeConcurrencyAck, Action: wire.ConcurrencyProceed})
	case runner.TypeEventEmit, runner.TypeAPIRequest, runner.TypeCacheRequest, runner.TypeProvenance,
		runner.TypeArtifact, runner.TypeApprovalRequest:
		var v runner.Request
		if m.Decode(&v) == nil {
			answer := w.answer(v)
			answer.Type, answer.RequestID = answerTypes[v.Type], v.RequestID
			w.respond(proc, answer)
		}
	case runner.TypeJobComplete:
		var v runner.JobComplete
		if m.Decode(&v) == nil {
			return &v
		}
	}
	return nil
}

var answerTypes = map[string]string{
	runner.TypeEventEmit:       runner.TypeEventEmitResponse,
	runner.TypeAPIRequest:      runner.TypeAPIResponse,
	runner.TypeCacheRequest:    runner.TypeCacheResponse,
	runner.TypeProvenance:      runner.TypeProvenanceResponse,
	runner.TypeArtifact:        runner.TypeArtifactResponse,
	runner.TypeApprovalRequest: runner.TypeApprovalResolved,
}

// respond gives the runner an answer. One that has gone needs none: its end is the next message.
func (w *worker) respond(proc *runner.Process, answer any) { _ = proc.Send(answer) }

// answer is given in the place of the server that this run has not. What goes on without one says so in the log; what needs
// one fails in the author's hands.
func (w *worker) answer(r runner.Request) runner.Response {
	switch {
	case r.Type == runner.TypeArtifact:
		return w.r.artifacts.answer(w.j.state.Name, r)
	case r.Type == runner.TypeEventEmit:
		w.say(fmt.Sprintf("Event '%s' is not delivered: a local run has no server. Its payload: %s", r.EventName, r.Payload))
		return runner.Response{DeliveryID: "local"}
	case r.Type == runner.TypeApprovalRequest:
		w.say(fmt.Sprintf("Step '%s' asks for an approval, which who runs it here has given", r.StepName))
		return runner.Response{Outcome: "approved"}
	case r.Type == runner.TypeCacheRequest && r.Op == "restore":
		return runner.Response{} // a miss
	case r.Type == runner.TypeCacheRequest:
		return runner.Response{Skip: true}
	}
	what := r.Method
	if what == "" {
		what = "provenance"
	}
	return runner.Response{Error: what + " needs a server, and a local run has none"}
}
