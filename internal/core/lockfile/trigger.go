package lockfile

import "encoding/json"

// Trigger is one entry of a workflow's triggers. Which fields carry meaning depends on Type; an empty list means "no
// filter". The zero Trigger stands for a null entry, which is skipped but keeps its place.
type Trigger struct {
	Type string // pr, push, tag, comment, review, …; an unknown one never matches

	Events, Actions, Types, States, Contexts, Workflows, Conclusions, RefTypes, Paths, Status, Sources []string

	Branches, TargetBranches, SourceBranches, Patterns []BranchPattern
	Repos                                              []BranchPattern // makes the workflow a global one

	Source    string // of comment: "issue" or "pr"; of others the emitting repository or the webhook source
	BodyMatch *BodyMatch
	Inputs    Inputs

	EventName      string
	Match, Not     Ordered // JSON path → value
	Name           string
	Workflow, Job  string
	Path           string          // informational
	Auth           json.RawMessage // informational
	CronExpression string
	Timezone       string // "" is UTC
	Description    string
}

// BranchPattern matches branch, tag and repository names.
type BranchPattern struct {
	Type    string `json:"type"` // "glob" or "regex"
	Pattern string `json:"pattern"`
	Flags   string `json:"flags,omitempty"`
}

// BodyMatch matches the text of a comment.
type BodyMatch struct {
	Type    string `json:"type"` // "glob" or "regex"
	Pattern string `json:"pattern"`
	Flags   string `json:"flags,omitempty"`
}

// Inputs are the declared inputs of a trigger, in declaration order.
type Inputs []Input

// Input is one declared input.
type Input struct {
	Name        string
	Type        string // string, number, integer, boolean, enum, literal
	Optional    bool
	Nullable    bool
	Default     json.RawMessage // nil: none; used as is when the input is absent
	Values      []string        // for enum
	Literal     json.RawMessage // for literal
	Min, Max    *float64        // bounds of a number, or of a text's length in UTF-16 units
	Pattern     string          // regular expression source; "" with HasPattern false means none
	HasPattern  bool
	Description string
}
