// Package lockfile is the compiled workflow document `.kici/kici.lock.json`: its types, how it is loaded and checked, how
// it is written, and the hashes that tie it to the sources. Every decision before a job reaches an agent is taken from
// this document and the event; the author's code never runs to decide what to do.
package lockfile

import "encoding/json"

// Versions that the document carries. SchemaVersion is the only one accepted; CompileSchemaVersion prefixes the text that
// a workflow's content hash covers.
const (
	SchemaVersion        = 29
	CompileSchemaVersion = 5
)

// Path is where the document lies, relative to the repository root.
const Path = ".kici/kici.lock.json"

// File is one lock document. The order of Workflows is meaningful: matching, dispatch and display follow it.
type File struct {
	SchemaVersion int        `json:"schemaVersion"`
	Source        Source     `json:"source"`      // source of the first workflow; informational
	ContentHash   string     `json:"contentHash"` // see FileHash; informational
	LockfileHash  string     `json:"lockfileHash,omitempty"`
	Workflows     []Workflow `json:"workflows"`
}

// Source names a workflow in its file: File is repo-relative, Export is `#name`, `#default` or `#default[2]`.
type Source struct {
	File   string `json:"file"`
	Export string `json:"export"`
}

// Workflow is one compiled workflow. Its name identifies it within the repository.
type Workflow struct {
	Name                 string       `json:"name"`
	Source               *Source      `json:"source,omitempty"` // Load fills it from the file when missing
	ContentHash          string       `json:"contentHash"`      // "" when the compiler had no source text
	CompileSchemaVersion int          `json:"compileSchemaVersion"`
	Triggers             []Trigger    `json:"triggers"` // empty: never starts by itself
	Jobs                 []Job        `json:"jobs"`
	Rules                []Rule       `json:"rules,omitempty"`
	Description          string       `json:"description,omitempty"`
	HashFiles            []string     `json:"hashFiles,omitempty"`         // the author's patterns
	ResolvedHashFiles    []string     `json:"resolvedHashFiles,omitempty"` // what they matched, in hash order
	Registries           []Registry   `json:"registries,omitempty"`
	InstallEnv           []string     `json:"installEnv,omitempty"` // `<context>:<secret>` references
	HasOnCancel          bool         `json:"hasOnCancel,omitempty"`
	HasCleanup           bool         `json:"hasCleanup,omitempty"`
	HasOnSuccess         bool         `json:"hasOnSuccess,omitempty"`
	HasOnFailure         bool         `json:"hasOnFailure,omitempty"`
	Concurrency          *Concurrency `json:"concurrency,omitempty"`
	TimeoutMs            int64        `json:"timeout,omitempty"` // wall clock of the whole run, milliseconds; 0: none
	Approval             *Approval    `json:"approval,omitempty"`
	Contexts             []string     `json:"contexts,omitempty"` // legacy secret contexts of the whole workflow

	// Raw is the object as it was read, for comparing two versions of a workflow. It shares memory with the document.
	Raw string `json:"-"`
	// Problems names members whose JSON type is wrong, as in `job 'test' timeout: expected a number, found text`. Such a
	// document is accepted as a whole, as every reader accepts it, but a workflow with problems must not be run: the
	// members were read as absent, and an absent approval or filter is a wider one.
	Problems []string `json:"-"`
}

// Registry is a private npm registry of a workflow. TokenSecret is a `<context>:<secret>` reference, never a token.
type Registry struct {
	URL         string `json:"url"`
	Scope       string `json:"scope,omitempty"` // `@name`
	TokenSecret string `json:"tokenSecret"`
	AlwaysAuth  *bool  `json:"alwaysAuth,omitempty"`
}

// Concurrency is the workflow's concurrency group. Its name is computed by the author's function at the agent.
type Concurrency struct {
	HasGroup         bool  `json:"hasGroup"`
	CancelInProgress *bool `json:"cancelInProgress,omitempty"` // absent: true
	Max              int   `json:"max,omitempty"`              // 0: 1
}

// Approval holds a run, a job or a step until the clauses are met. No clause means any member with the approve right.
type Approval struct {
	Clauses        []Clause `json:"clauses"` // all must be met
	Reason         string   `json:"reason,omitempty"`
	TimeoutSeconds float64  `json:"timeoutSeconds,omitempty"`
	When           string   `json:"when"` // "always", or "drift" on a step that has a check
}

// Clause is one required approver: exactly one of the fields is set.
type Clause struct {
	Team string `json:"team,omitempty"`
	User string `json:"user,omitempty"`
}

// Rule refers to a function in the source; only the agent can evaluate it.
type Rule struct {
	Type   string     `json:"_type"`
	Label  string     `json:"label"`
	Source RuleSource `json:"source"`
}

// RuleSource is the place of a rule: for job rules Index is job position × 100 + rule position, else rule position.
type RuleSource struct {
	File  string `json:"file"`
	Index int    `json:"index"`
}

// Workflow returns the workflow of that name, or nil.
func (f *File) Workflow(name string) *Workflow {
	for i := range f.Workflows {
		if f.Workflows[i].Name == name {
			return &f.Workflows[i]
		}
	}
	return nil
}

// Inline is an expression, the source text of one arrow function over the event, that stands where a constant could.
type Inline struct {
	Expression string `json:"expression"`
}

// MarshalJSON writes the tagged object of the document.
func (i Inline) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type       string `json:"_type"`
		Expression string `json:"expression"`
	}{"inline", i.Expression})
}

// Text is a constant or an inline expression.
type Text struct {
	Value  string  // the constant, when Inline is nil
	Inline *Inline // nil: constant
}

// MarshalJSON writes a text or the tagged object.
func (t Text) MarshalJSON() ([]byte, error) {
	if t.Inline != nil {
		return json.Marshal(t.Inline)
	}
	return json.Marshal(t.Value)
}
