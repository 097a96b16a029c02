package lockfile

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Trigger is one entry of a workflow's triggers. Which fields carry meaning depends on Type; an empty list means "no
// filter". The zero Trigger stands for a null entry, which is skipped but keeps its place.
type Trigger struct {
	Type string `json:"_type"` // pr, push, tag, comment, review, …; an unknown one never matches

	Events      []string `json:"events"`
	Actions     []string `json:"actions"`
	Types       []string `json:"types"`
	States      []string `json:"states"`
	Contexts    []string `json:"contexts"`
	Workflows   []string `json:"workflows"`
	Conclusions []string `json:"conclusions"`
	RefTypes    []string `json:"refTypes"`
	Paths       []string `json:"paths"`
	Status      []string `json:"status"`
	Sources     []string `json:"sources"`

	Branches       []BranchPattern `json:"branches"`
	TargetBranches []BranchPattern `json:"targetBranches"`
	SourceBranches []BranchPattern `json:"sourceBranches"`
	Patterns       []BranchPattern `json:"patterns"`
	Repos          []BranchPattern `json:"repos"` // makes the workflow a global one

	Source    string         `json:"source"` // of comment: "issue" or "pr"; of others the emitting repository or the webhook source
	BodyMatch *BranchPattern `json:"bodyMatch"`
	Inputs    Inputs         `json:"inputs"`

	EventName      string          `json:"eventName"`
	Match          Ordered         `json:"match"` // JSON path → value
	Not            Ordered         `json:"not"`
	Name           string          `json:"name"`
	Workflow       string          `json:"workflow"`
	Job            string          `json:"job"`
	Path           string          `json:"path"` // informational
	Auth           json.RawMessage `json:"auth"` // informational
	CronExpression string          `json:"cronExpression"`
	Timezone       string          `json:"timezone"` // "" is UTC
	Description    string          `json:"description"`
}

// BranchPattern matches the names of branches, tags and repositories, and the texts of comments.
type BranchPattern struct {
	Type    string `json:"type"` // "glob" or "regex"
	Pattern string `json:"pattern"`
	Flags   string `json:"flags,omitempty"`
}

// Inputs are the declared inputs of a trigger, in declaration order.
type Inputs []Input

// Input is one declared input.
type Input struct {
	Name        string          `json:"-"`
	Type        string          `json:"type"` // string, number, integer, boolean, enum, literal
	Optional    bool            `json:"optional"`
	Nullable    bool            `json:"nullable"`
	Default     json.RawMessage `json:"default,omitempty"` // nil: none; used as is when the input is absent
	Values      []string        `json:"values,omitempty"`  // for enum
	Literal     json.RawMessage `json:"literal,omitempty"` // for literal
	Min         *float64        `json:"min,omitempty"`     // bounds of a number, or of a text's length in UTF-16 units
	Max         *float64        `json:"max,omitempty"`
	Pattern     *string         `json:"pattern,omitempty"` // regular expression source; nil: none
	Description string          `json:"description,omitempty"`
}

// members names what each trigger type has, in the order in which compilers write it. Those with a question mark are left
// out when empty; the other lists and texts are written always.
var members = map[string]string{
	"pr":                "events targetBranches sourceBranches paths repos?",
	"push":              "branches paths repos?",
	"tag":               "patterns repos?",
	"comment":           "actions source? bodyMatch? repos?",
	"review":            "actions states repos?",
	"review_comment":    "actions repos?",
	"release":           "actions repos?",
	"star":              "actions repos?",
	"watch":             "actions repos?",
	"dispatch":          "types inputs? repos?",
	"create":            "refTypes patterns repos?",
	"delete":            "refTypes patterns repos?",
	"status":            "contexts states repos?",
	"workflow_run":      "actions workflows conclusions repos?",
	"fork":              "repos?",
	"webhook":           "events actions repos?",
	"kici_event":        "eventName match? not? source?",
	"workflow_complete": "name? status? source?",
	"job_complete":      "workflow? job? status? source?",
	"generic_webhook":   "source events? match? not? path? auth?",
	"schedule":          "cronExpression timezone description? inputs?",
	"lifecycle":         "events sources? description?",
}

// MarshalJSON writes the members of the trigger's type; the zero Trigger is null.
func (t Trigger) MarshalJSON() ([]byte, error) {
	if t.Type == "" {
		return []byte("null"), nil
	}
	keys, values := []string{"_type"}, []any{t.Type}
	places := fieldsOf(reflect.TypeFor[Trigger]())
	for word := range strings.FieldsSeq(members[t.Type]) {
		key, optional := strings.CutSuffix(word, "?")
		v := reflect.ValueOf(t).FieldByIndex(places[key])
		empty := v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
		switch {
		case empty && optional:
			continue
		case empty && v.Kind() == reflect.Slice:
			v = reflect.MakeSlice(v.Type(), 0, 0)
		}
		keys, values = append(keys, key), append(values, v.Interface())
	}
	return marshalMembers(len(keys), func(i int) (string, any) { return keys[i], values[i] })
}

// UnmarshalJSON reads one trigger.
func (t *Trigger) UnmarshalJSON(raw []byte) error { return unmarshal(raw, t) }

// MarshalJSON writes the map of declared inputs in order.
func (in Inputs) MarshalJSON() ([]byte, error) {
	return marshalMembers(len(in), func(i int) (string, any) { return in[i].Name, in[i] })
}

// UnmarshalJSON reads the map of declared inputs in order.
func (in *Inputs) UnmarshalJSON(raw []byte) error { return unmarshal(raw, in) }
