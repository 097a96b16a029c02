package lockfile

import "encoding/json"

// Step is one entry of a job's steps: an ordinary step, or a parallel group with Children (Kind "parallel").
type Step struct {
	Kind            string          `json:"kind,omitempty"` // "", "sequential" or "parallel"
	Name            string          `json:"name"`
	HasOutputs      bool            `json:"hasOutputs"`
	ContinueOnError *bool           `json:"continueOnError,omitempty"`
	TimeoutMs       int64           `json:"timeout,omitempty"` // 0: the agent's default
	Retry           *Retry          `json:"retry,omitempty"`
	Cache           []CacheSpec     `json:"cache,omitempty"`
	SourceLocation  *SourceLocation `json:"sourceLocation,omitempty"`
	HasRules        bool            `json:"hasRules,omitempty"`
	Rules           []Rule          `json:"rules,omitempty"`
	HasOnCancel     bool            `json:"hasOnCancel,omitempty"`
	HasCleanup      bool            `json:"hasCleanup,omitempty"`
	HasCheck        bool            `json:"hasCheck,omitempty"`
	HasWhenInSync   bool            `json:"hasWhenInSync,omitempty"`
	Approval        *Approval       `json:"approval,omitempty"`

	FailFast    *bool  `json:"failFast,omitempty"`    // parallel groups only; absent: true
	MaxParallel int    `json:"maxParallel,omitempty"` // parallel groups only; 0: no bound
	Children    []Step `json:"children,omitempty"`    // parallel groups only
}

// Retry is a step's retry policy; delays in milliseconds.
type Retry struct {
	MaxAttempts int     `json:"maxAttempts"`
	DelayMs     float64 `json:"delayMs"`
	Backoff     string  `json:"backoff"` // "fixed" or "exponential"
	MaxDelayMs  float64 `json:"maxDelayMs"`
}

// SourceLocation is where the author wrote a step; line and column count from 1 and 0 as the compiler did.
type SourceLocation struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// Parallel tells whether the entry is a group of steps.
func (s Step) Parallel() bool { return s.Kind == "parallel" }

// Flatten lists the steps in the order of their indices: a group takes none, its children take the next ones. The index
// in the result is the stepIndex of every step row, status frame and log line.
func Flatten(steps []Step) []Step {
	var flat []Step
	for _, s := range steps {
		if s.Parallel() {
			flat = append(flat, s.Children...)
			continue
		}
		flat = append(flat, s)
	}
	return flat
}

// MarshalJSON writes an ordinary step or a group, each with its own members.
func (s Step) MarshalJSON() ([]byte, error) {
	if s.Parallel() {
		return json.Marshal(struct {
			Kind        string `json:"kind"`
			Name        string `json:"name"`
			FailFast    *bool  `json:"failFast,omitempty"`
			MaxParallel int    `json:"maxParallel,omitempty"`
			Children    []Step `json:"children"`
		}{s.Kind, s.Name, s.FailFast, s.MaxParallel, orEmpty(s.Children)})
	}
	type plain Step
	s.FailFast, s.MaxParallel, s.Children = nil, 0, nil
	return json.Marshal(plain(s))
}

// orEmpty makes a missing list an empty one, since the document writes required lists always.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
