package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"kici/internal/agent/ledger"
	"kici/internal/agent/runner"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

// status reports a state that is no end.
func (j *Job) status(state ci.JobStatus) {
	j.shop.Ledger.Post(wire.JobStatus{MessageID: uuid.NewString(), RunID: j.Ref.Run, JobID: j.Ref.ID, State: state, Timestamp: time.Now().UnixMilli()},
		ledger.Entry{Keep: ledger.KeepAcked, Job: j.Ref})
}

// report sends the terminal status.
func (j *Job) report(res outcome) {
	m := wire.JobStatus{MessageID: uuid.NewString(), RunID: j.Ref.Run, JobID: j.Ref.ID, State: res.state, Timestamp: time.Now().UnixMilli()}
	if j.conf.kind().helps() {
		m.Data = object(j.helpData(res))
		j.shop.Ledger.Post(m, ledger.Entry{Keep: ledger.KeepAcked, Job: j.Ref, End: true})
		return
	}
	data := map[string]any{"durationMs": time.Since(j.started).Milliseconds()}
	if res.err != "" {
		data["error"] = res.err
	}
	if r := res.result; r != nil {
		if len(r.Outputs) > 0 {
			data["outputs"] = r.Outputs
		}
		if len(r.DroppedJobs) > 0 {
			data["droppedJobs"] = r.DroppedJobs
		}
		m.SecretOutputs = res.sealed
	}
	data["stepResults"] = j.stepResults(res.result)
	m.Data = object(data)
	if encodedSize(m) > wire.MaxAgentFrame {
		m = j.fitted(m, data, res)
	}
	j.shop.Ledger.Post(m, ledger.Entry{Keep: ledger.KeepAcked, Job: j.Ref, End: true})
}

// fitted is the end of a job in a frame that servers take. What the steps failed of has been told before, so it goes first.
// What is still too large then has come past the bounds of the runner: the job fails for it, and says which outputs are the
// largest.
func (j *Job) fitted(m wire.JobStatus, data map[string]any, res outcome) wire.JobStatus {
	steps := data["stepResults"].([]wire.StepResult)
	for i := range steps {
		steps[i].Error = nil
	}
	m.Data = object(data)
	size := encodedSize(m)
	if size <= wire.MaxAgentFrame {
		return m
	}
	largest, of := 0, "no step"
	if res.result != nil {
		for name, outputs := range res.result.Outputs {
			if len(outputs) > largest {
				largest, of = len(outputs), "step '"+name+"'"
			}
		}
	}
	text := fmt.Sprintf("The end of the job has %d bytes, more than the %d that can be sent; the largest outputs are those of %s with %d bytes",
		size, wire.MaxAgentFrame, of, largest)
	if res.err != "" {
		text = j.masked(res.err) + "; " + text
	}
	m.State, m.SecretOutputs = ci.JobFailed, nil
	delete(data, "outputs")
	data["error"] = text
	m.Data = object(data)
	return m
}

// encodedSize is how many bytes a frame has; one that cannot be encoded has none.
func encodedSize(m wire.Message) int {
	raw, _ := wire.Encode(m) // post tells of the error
	return len(raw)
}

// stepResults are the runner's, or, when it gave none, what it had reported until then.
func (j *Job) stepResults(result *runner.JobComplete) []wire.StepResult {
	j.mu.Lock()
	defer j.mu.Unlock()
	if result == nil {
		return append([]wire.StepResult{}, j.steps...)
	}
	steps := make([]wire.StepResult, 0, len(result.StepResults))
	for _, r := range result.StepResults {
		s := wire.StepResult{Name: r.Name, Status: ci.StepStatus(r.Status), DurationMs: float64(r.DurationMs)}
		if r.Error != "" {
			s.Error = text(j.mask.String(r.Error))
		}
		steps = append(steps, s)
	}
	return steps
}

// event puts an entry on the run's timeline; 0 is no duration.
func (j *Job) event(kind string, took time.Duration, metadata map[string]any) {
	m := wire.RunEvent{RunID: j.Ref.Run, JobID: j.Ref.ID, EventType: kind, TimestampMs: time.Now().UnixMilli(), SourceService: "agent"}
	if took > 0 {
		ms := took.Milliseconds()
		m.DurationMs = &ms
	}
	if metadata != nil {
		m.Metadata = object(metadata)
	}
	j.shop.Ledger.Post(m, ledger.Entry{Keep: ledger.KeepWritten, Job: j.Ref})
}

// handle deals with one message of the runner and returns the job's result when it is that.
func (j *Job) handle(m runner.Message) *runner.JobComplete {
	j.progress.Add(1)
	switch m.Type {
	case runner.TypeLogLine:
		if v, ok := decode[runner.LogLine](j, m); ok {
			j.logs.Add(j.logIndex(v.StepIndex), v.Line)
		}
	case runner.TypeStepStart:
		if v, ok := decode[runner.StepStart](j, m); ok {
			j.stepStarted(v)
		}
	case runner.TypeStepComplete:
		if v, ok := decode[runner.StepComplete](j, m); ok {
			j.stepEnded(v)
		}
	case runner.TypeSecretMount:
		if v, ok := decode[runner.SecretMount](j, m); ok {
			meta := map[string]any{"stepIndex": v.StepIndex, "sources": v.Sources, "target": v.Target, "kind": v.Kind}
			if v.EnvVar != "" {
				meta["envVar"] = v.EnvVar
			}
			j.event("step.secret_mount", 0, meta)
		}
	case runner.TypeConcurrency:
		if v, ok := decode[runner.ConcurrencyReport](j, m); ok {
			j.reportConcurrency(v)
		}
	case runner.TypeEventEmit, runner.TypeAPIRequest, runner.TypeCacheRequest, runner.TypeProvenance,
		runner.TypeArtifact, runner.TypeApprovalRequest:
		if v, ok := decode[runner.Request](j, m); ok {
			j.relay(v)
		}
	case runner.TypeJobComplete:
		if v, ok := decode[runner.JobComplete](j, m); ok {
			return &v
		}
	}
	return nil
}

// decode reads a message; one that breaks its shape is passed over, as a line that is no message is.
func decode[T any](j *Job, m runner.Message) (v T, ok bool) {
	if err := m.Decode(&v); err != nil {
		j.log.Warn("message of the runner ignored", "err", err)
		return v, false
	}
	return v, true
}

func (j *Job) stepStarted(v runner.StepStart) {
	if j.conf.kind().helps() {
		return // its one step is the agent's to report
	}
	state := ci.StepRunning
	if v.State == string(ci.StepPending) {
		state = ci.StepPending
	}
	m := j.stepStatus(v.StepIndex, v.StepName, state)
	m.ConcurrencyKind, m.GroupID = v.ConcurrencyKind, v.GroupID
	if v.StepType != "" {
		m.Data = object(map[string]any{"step_type": v.StepType})
	}
	j.postStep(m)
	j.extendForHook(v.StepType, true)
	j.mark("step")
	j.note(v.StepIndex, v.StepType, wire.StepResult{Name: v.StepName, Status: state})
}

func (j *Job) stepEnded(v runner.StepComplete) {
	if j.conf.kind().helps() {
		return
	}
	j.logs.Flush(v.StepIndex) // a reader sees what the step said before its end
	state := ci.StepStatus(v.Status)
	name := v.StepName
	if name == "" {
		name = j.stepName(v.StepIndex)
	}
	m := j.stepStatus(v.StepIndex, name, state)
	m.ConcurrencyKind, m.GroupID = v.ConcurrencyKind, v.GroupID
	m.SecretsAccessed = v.SecretsAccessed
	streamed := j.logs.Streamed(v.StepIndex)
	m.LogBytesStreamed = &streamed
	m.Data = object(j.stepData(v))
	j.postStep(m)
	j.shop.Metrics.StepEnded(state, time.Duration(v.DurationMs)*time.Millisecond)
	j.extendForHook(v.StepType, false)
	r := wire.StepResult{Name: name, Status: state, DurationMs: float64(v.DurationMs)}
	if v.Error != nil {
		r.Error = text(j.masked(v.Error.Message))
	}
	j.note(v.StepIndex, v.StepType, r)
	j.mirrorCache(v)
}

// stepData is everything of the step's end that has no member of its own in the frame. What the runner put into data
// has the last word.
func (j *Job) stepData(v runner.StepComplete) map[string]any {
	data := map[string]any{"durationMs": v.DurationMs}
	if v.Error != nil {
		e := map[string]any{"message": j.masked(v.Error.Message)}
		if v.Error.ExitCode != nil {
			e["exitCode"] = *v.Error.ExitCode
		}
		if v.Error.Signal != "" {
			e["signal"] = v.Error.Signal
		}
		data["error"] = e
	}
	for key, value := range map[string]string{"step_type": v.StepType, "checkOutcome": v.CheckOutcome,
		"driftSummary": j.mask.String(v.DriftSummary)} {
		if value != "" {
			data[key] = value
		}
	}
	if len(v.Drift) > 0 {
		data["drift"] = json.RawMessage(j.mask.String(string(v.Drift)))
	}
	var own map[string]json.RawMessage
	if json.Unmarshal(v.Data, &own) == nil {
		for key, value := range own {
			data[key] = value
		}
	}
	return data
}

func (j *Job) stepStatus(index int, name string, state ci.StepStatus) wire.StepStatus {
	return wire.StepStatus{MessageID: uuid.NewString(), RunID: j.Ref.Run, JobID: j.Ref.ID, StepIndex: index, StepName: name,
		State: state, Timestamp: time.Now().UnixMilli()}
}

// postStep reports a step. What it says beside its state goes when that would make the frame too large.
func (j *Job) postStep(m wire.StepStatus) {
	if size := encodedSize(m); size > wire.MaxAgentFrame {
		m.Data = object(map[string]any{"error": map[string]any{"message": fmt.Sprintf(
			"What the step reports has %d bytes, more than the %d that can be sent", size, wire.MaxAgentFrame)}})
	}
	j.shop.Ledger.Post(m, ledger.Entry{Keep: ledger.KeepAcked, Job: j.Ref})
}

// note remembers the latest state of a real step, for the report of a job whose runner gives none. Hooks and caches are
// no steps of the job.
func (j *Job) note(index int, stepType string, r wire.StepResult) {
	if stepType != "" && stepType != "step" {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	at, ok := j.stepAt[index]
	if !ok {
		j.stepAt[index] = len(j.steps)
		j.steps = append(j.steps, r)
		return
	}
	j.steps[at] = r
}

func (j *Job) stepName(index int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if at, ok := j.stepAt[index]; ok {
		return j.steps[at].Name
	}
	return ""
}

// mirrorCache puts the work of the user cache on the timeline.
func (j *Job) mirrorCache(v runner.StepComplete) {
	kind := map[string]string{"cache:restore": "cache.restore", "cache:save": "cache.save"}[v.StepType]
	if kind == "" {
		return
	}
	var d struct{ CacheOutcome, Key, MatchedKey string }
	_ = json.Unmarshal(v.Data, &d) // without it the entry says less
	about := map[string]any{"stepIndex": v.StepIndex, "outcome": d.CacheOutcome, "key": d.Key}
	if d.MatchedKey != "" {
		about["matchedKey"] = d.MatchedKey
	}
	j.event(kind, 0, about)
}

// masked prepares an error text for the wire: without secrets and of bounded size.
func (j *Job) masked(s string) string {
	s = j.mask.String(s)
	if len(s) <= jobErrorSize {
		return s
	}
	end := jobErrorSize
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + " [cut]"
}

// object encodes a map of values that are known to be encodable. A value that is not (raw JSON from a broken runner)
// leaves an empty object rather than no report.
func object(m map[string]any) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // outputs would grow beyond what they may have
	if err := enc.Encode(m); err != nil {
		return json.RawMessage("{}")
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func text(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always encodes
	return raw
}
