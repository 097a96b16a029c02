package ci

import "encoding/json"

// Event is the normalised envelope of something that happened in a repository. Triggers, rules, steps and inline
// expressions see exactly this; the sender's own body is only at Payload. An absent field stays absent in JSON, since
// expressions see the difference between undefined and null.
type Event struct {
	Type               string          `json:"type"`
	Action             string          `json:"action,omitempty"`
	TargetBranch       string          `json:"targetBranch"`
	SourceBranch       string          `json:"sourceBranch,omitempty"`
	BaseBranch         string          `json:"baseBranch,omitempty"`
	Payload            json.RawMessage `json:"payload"` // an object, untouched
	Provider           string          `json:"provider,omitempty"`
	SourceRepo         string          `json:"sourceRepo,omitempty"`
	IsForkPR           *bool           `json:"isForkPR,omitempty"`
	ChangedFiles       []string        `json:"changedFiles,omitempty"`
	ChangedFilesStatus string          `json:"changedFilesStatus,omitempty"` // FilesFetched or FilesUnavailable
	SenderUsername     string          `json:"senderUsername,omitempty"`
	SenderUserID       string          `json:"senderUserId,omitempty"`
}

// What is known about the changed files of an event. Unavailable makes a path filter pass: better one run too many than
// a change that nobody built.
const (
	FilesFetched     = "fetched"
	FilesUnavailable = "unavailable"
)

// Display is the event as people read it: its type, with the action when there is one.
func (e Event) Display() string {
	if e.Action == "" {
		return e.Type
	}
	return e.Type + ":" + e.Action
}
