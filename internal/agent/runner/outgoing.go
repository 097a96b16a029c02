package runner

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"kici/internal/kit/redact"
)

// outgoing writes messages to the agent. All that leaves the runner passes here, whichever host made it, so masking is
// done once and for both.
type outgoing struct {
	mask *redact.Redactor
	lost func(error) // called once when the agent no longer takes messages
	last func()      // called before the job's result leaves: the agent may end this process as soon as it has it

	mu       sync.Mutex
	w        *bufio.Writer
	failed   bool
	complete bool // job.complete has been sent
	silenced bool // the script has been ended: what it says of its own end is not to be heard
	step     int  // index of the step that started last, for output that says nothing about where it belongs
}

// newOutgoing writes to the agent's pipe; lost hears when that is no more.
func newOutgoing(w io.Writer, lost func(error)) *outgoing {
	return &outgoing{mask: redact.New(nil), w: bufio.NewWriterSize(w, 64<<10), lost: lost, last: func() {}, step: JobLog}
}

// send writes a message of the runner script, masked where it may hold text of the author's making.
func (o *outgoing) send(m Message) error {
	out, err := o.masked(m)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.silenced {
		return nil
	}
	switch v := out.(type) {
	case *StepStart:
		if v.State != "pending" {
			o.step = v.StepIndex
		}
	case *JobComplete:
		o.complete = true
		o.last()
	}
	o.writeLocked(out)
	o.flushLocked()
	return nil
}

// silence drops what the script still sends. The host has ended it and says why.
func (o *outgoing) silence() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silenced = true
}

// masked decodes the messages that carry free text and masks it; all others pass as they are.
func (o *outgoing) masked(m Message) (any, error) {
	switch m.Type {
	case TypeLogLine:
		v := &LogLine{}
		err := m.Decode(v)
		v.Line = o.mask.String(v.Line)
		return v, err
	case TypeStepStart:
		v := &StepStart{}
		return v, m.Decode(v)
	case TypeStepComplete:
		v := &StepComplete{}
		err := m.Decode(v)
		if v.Error != nil {
			v.Error.Message = o.mask.String(v.Error.Message)
		}
		v.DriftSummary = o.mask.String(v.DriftSummary)
		v.Drift = o.maskedJSON(v.Drift)
		return v, err
	case TypeJobComplete:
		v := &JobComplete{}
		err := m.Decode(v)
		v.Error = o.mask.String(v.Error)
		v.InitFailure = o.maskedJSON(v.InitFailure)
		for i := range v.StepResults {
			v.StepResults[i].Error = o.mask.String(v.StepResults[i].Error)
		}
		return v, err
	case TypeApprovalRequest:
		// What the approver reads: the reason, a drift and its summary.
		v := &Request{}
		err := m.Decode(v)
		v.Reason = o.mask.String(v.Reason)
		v.Payload = o.maskedJSON(v.Payload)
		return v, err
	case TypeArtifact:
		v := &Request{}
		err := m.Decode(v)
		v.Name = o.mask.String(v.Name) // people read it; the bytes go past here, and nothing masks them
		return v, err
	}
	return m.Raw, nil
}

// maskedJSON masks the strings of a JSON value, those of its keys too.
func (o *outgoing) maskedJSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return raw
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	out, err := json.Marshal(o.maskedValue(v))
	if err != nil {
		return nil
	}
	return out
}

func (o *outgoing) maskedValue(v any) any {
	switch v := v.(type) {
	case string:
		return o.mask.String(v)
	case []any:
		for i := range v {
			v[i] = o.maskedValue(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[o.mask.String(k)] = o.maskedValue(x)
		}
		return out
	}
	return v
}

// log writes lines of a step's output. They are flushed together, since commands write many at once.
func (o *outgoing) log(step int, lines ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, line := range lines {
		o.writeLocked(LogLine{Type: TypeLogLine, StepIndex: step, Line: o.mask.String(line)})
	}
	o.flushLocked()
}

// logHere writes lines to the step that started last: it is for output of which nothing more is known.
func (o *outgoing) logHere(lines ...string) {
	o.mu.Lock()
	step := o.step
	o.mu.Unlock()
	o.log(step, lines...)
}

// say writes a message that the host makes itself.
func (o *outgoing) say(m any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writeLocked(m)
	o.flushLocked()
}

// fail ends the job from the host's side, unless the script has ended it.
func (o *outgoing) fail(message string, results ...StepResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.complete {
		return
	}
	o.complete = true
	o.last()
	if results == nil {
		results = []StepResult{}
	}
	o.writeLocked(JobComplete{Type: TypeJobComplete, Status: "failed", Error: o.mask.String(message), StepResults: results})
	o.flushLocked()
}

// completed tells whether the job has its result, after which a crash changes nothing.
func (o *outgoing) completed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.complete
}

// writeLocked adds one line to the buffer.
func (o *outgoing) writeLocked(m any) {
	if raw, ok := m.(json.RawMessage); ok {
		if _, err := o.w.Write(append(raw, '\n')); err != nil {
			o.lostLocked(err)
		}
		return
	}
	enc := json.NewEncoder(o.w) // which ends the line
	enc.SetEscapeHTML(false)    // outputs would grow beyond what they may have
	if err := enc.Encode(m); err != nil {
		o.lostLocked(fmt.Errorf("send message: %w", err))
	}
}

func (o *outgoing) flushLocked() {
	if err := o.w.Flush(); err != nil {
		o.lostLocked(err)
	}
}

// lostLocked ends the job when the agent is gone: nobody would see its result.
func (o *outgoing) lostLocked(err error) {
	if !o.failed {
		o.failed = true
		go o.lost(err)
	}
}
