package wire

import (
	"encoding/json"
	"reflect"

	"kici/internal/core/ci"
)

// JobData is what a job.status carries in its data. Agents of every age send it, so reading it is lenient: a member of
// another kind than expected counts as absent.
type JobData struct {
	DurationMs  int64
	Error       string
	Outputs     json.RawMessage // object: step name to outputs
	StepResults []StepResult
	DroppedJobs []string
	InitFailure *ci.InitFailure

	// The results of jobs that work for others. Exactly one of the flags is set on their success.
	BuildComplete   bool
	InitComplete    bool
	InitResult      json.RawMessage
	DynamicComplete bool
	DynamicJobs     json.RawMessage
}

// StepResult is the end of one step in a JobData.
type StepResult struct {
	Name       string          `json:"name" wire:"opt,null"`
	Status     ci.StepStatus   `json:"status" wire:"opt,null"`
	DurationMs float64         `json:"durationMs" wire:"opt,null"`
	Error      json.RawMessage `json:"error,omitempty" wire:"opt"`
}

// ParseJobData reads the data of a job.status; nil gives the zero value.
func ParseJobData(raw json.RawMessage) JobData {
	var d JobData
	m := members(raw)
	d.DurationMs = number(m["durationMs"])
	lenient(m["error"], &d.Error)
	d.Outputs = object(m["outputs"])
	lenient(m["stepResults"], &d.StepResults)
	lenient(m["droppedJobs"], &d.DroppedJobs)
	d.InitFailure = initFailure(m["initFailure"])
	lenient(m["buildComplete"], &d.BuildComplete)
	lenient(m["initComplete"], &d.InitComplete)
	d.InitResult = object(m["initResult"])
	lenient(m["dynamicComplete"], &d.DynamicComplete)
	d.DynamicJobs = m["dynamicJobs"]
	return d
}

// StepData is what a step.status carries in its data, read as leniently as JobData.
type StepData struct {
	DurationMs   int64
	Error        string
	ExitCode     *int64
	StepType     string // hook:…, cache:restore, cache:save, init:<n>; "" = the frame's own
	CheckOutcome string // skipped, applied, declined, dry-run, no_check
	DriftSummary string
	Drift        json.RawMessage
	CacheOutcome string // hit, miss, saved, skipped, error
	Key          string // of the cache
	MatchedKey   string
	Bytes        int64
}

// ParseStepData reads the data of a step.status; nil gives the zero value.
func ParseStepData(raw json.RawMessage) StepData {
	var d StepData
	m := members(raw)
	d.DurationMs = number(m["durationMs"])
	d.Error, d.ExitCode = stepError(m["error"])
	lenient(m["step_type"], &d.StepType)
	lenient(m["checkOutcome"], &d.CheckOutcome)
	lenient(m["driftSummary"], &d.DriftSummary)
	d.Drift = m["drift"]
	lenient(m["cacheOutcome"], &d.CacheOutcome)
	lenient(m["key"], &d.Key)
	lenient(m["matchedKey"], &d.MatchedKey)
	d.Bytes = number(m["bytes"])
	return d
}

// stepError reads an error in either of its forms: a text, or an object with message and exitCode.
func stepError(raw json.RawMessage) (text string, exitCode *int64) {
	if lenient(raw, &text) {
		return text, nil
	}
	m := members(raw)
	lenient(m["message"], &text)
	if m["exitCode"] != nil {
		var code float64
		if lenient(m["exitCode"], &code) {
			n := int64(code)
			exitCode = &n
		}
	}
	return text, exitCode
}

// initFailure is read by the library: it comes once in a while, and any of its members may be missing.
func initFailure(raw json.RawMessage) *ci.InitFailure {
	var f *ci.InitFailure
	if len(raw) == 0 || json.Unmarshal(raw, &f) != nil {
		return nil
	}
	return f
}

// members gives the members of an object as parts of its text.
func members(raw json.RawMessage) map[string]json.RawMessage {
	d := decoder{s: string(raw)}
	if d.peek() != '{' {
		return nil
	}
	m := map[string]json.RawMessage{}
	err := d.members(func(name string) error {
		d.peek()
		start := d.pos
		err := d.skip()
		m[name] = raw[start:d.pos:d.pos]
		return err
	})
	if err != nil || d.end() != nil {
		return nil
	}
	return m
}

// lenient decodes into v and reports whether that went well; otherwise it leaves v at its zero value.
func lenient[T any](raw json.RawMessage, v *T) bool {
	if len(raw) == 0 {
		return false
	}
	d := decoder{s: string(raw)}
	var read T
	if readerOf(reflect.TypeFor[T](), rules{})(&d, reflect.ValueOf(&read).Elem()) != nil || d.end() != nil {
		return false
	}
	*v = read
	return true
}

func number(raw json.RawMessage) int64 {
	var f float64
	lenient(raw, &f)
	return int64(min(max(f, -maxSafe), maxSafe))
}

func object(raw json.RawMessage) json.RawMessage {
	if members(raw) == nil {
		return nil
	}
	return raw
}
