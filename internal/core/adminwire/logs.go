package adminwire

// LogPage is a part of a step's log. Each line's value is the stored record, a JSON object with ts, level and msg.
type LogPage struct {
	RunID      string      `json:"runId"`
	JobID      string      `json:"jobId"`
	StepIndex  int         `json:"stepIndex"`
	TotalLines int64       `json:"totalLines"`
	Lines      []Untrusted `json:"lines"`
	NextCursor *string     `json:"nextCursor"`
	Expired    bool        `json:"expired,omitempty"` // there were lines, and they were deleted since their time was up
}

// LogSearch is what was found in a step's log. A cursor is there while a part of the log has not been searched yet, since
// there were enough matches or the time was up.
type LogSearch struct {
	RunID      string     `json:"runId"`
	JobID      string     `json:"jobId"`
	StepIndex  int        `json:"stepIndex"`
	TotalLines int64      `json:"totalLines"`
	Matches    []LogMatch `json:"matches"`
	NextCursor *string    `json:"nextCursor"`
	Expired    bool       `json:"expired,omitempty"`
}

// LogMatch is a line that was found.
type LogMatch struct {
	Line int64     `json:"line"` // counted from 0, as cursors of the log are
	TS   string    `json:"ts"`
	Text Untrusted `json:"text"` // without ANSI codes; a very long line is cut around the place
}

// CodeLogExpired is the error code of a log that was deleted since its time was up.
const CodeLogExpired = "log_expired"
