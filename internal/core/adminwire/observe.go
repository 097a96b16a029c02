package adminwire

import "kici/internal/core/ci"

// The types of messages of a run's live stream.
const (
	ObserveSnapshot = "observe.snapshot" // the whole picture; what was known before is replaced by it
	ObserveStatus   = "observe.status"   // the run, or with a job name one job, has changed
	ObserveStep     = "observe.step"     // a step has changed
	ObserveLog      = "observe.log"      // a step has written lines
	ObserveGap      = "log.gap"          // lines were left out here; they are in the step's log
	ObserveComplete = "observe.complete" // the run has ended, and with it the stream
)

// Observed is one message of a run's live stream. Which members a message has depends on its type; Run, Job and Step are
// what has changed as the other routes show it. Lines of a step may come after its end, and never after that of its job.
type Observed struct {
	Type      string `json:"type"`
	Sequence  int64  `json:"sequence"` // grows by one with every message about the run
	RunID     string `json:"runId"`
	Timestamp Time   `json:"timestamp"`

	JobID     string        `json:"jobId,omitempty"`
	JobName   string        `json:"jobName,omitempty"`
	StepIndex *int          `json:"stepIndex,omitempty"` // OwnLogIndex for what the job itself says
	StepName  string        `json:"stepName,omitempty"`
	Status    string        `json:"status,omitempty"` // of the run or job
	State     ci.StepStatus `json:"state,omitempty"`  // of the step

	DurationMs       *int64   `json:"durationMs,omitempty"`
	Lines            []string `json:"lines,omitempty"`
	From             *int64   `json:"from,omitempty"` // number of the first of the lines, or of those left out, counted from 0
	DroppedLineCount int64    `json:"droppedLineCount,omitempty"`

	Run     *RunDetail  `json:"run,omitempty"`
	Job     *Job        `json:"job,omitempty"` // without its steps
	Step    *Step       `json:"step,omitempty"`
	Jobs    []Job       `json:"jobs,omitempty"` // of a snapshot, with their steps
	Summary *RunSummary `json:"summary,omitempty"`
}

// RunSummary counts the jobs of an ended run by how they ended.
type RunSummary struct {
	Jobs       int                  `json:"jobs"`
	ByStatus   map[ci.JobStatus]int `json:"byStatus"`
	DurationMs *int64               `json:"durationMs"`
}
