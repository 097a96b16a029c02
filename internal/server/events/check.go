package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"kici/internal/core/ci"
)

const (
	// maxPayload bounds the payload of an event that a job or a person emits, in bytes.
	maxPayload = 256 << 10
	// maxTargets bounds the repositories that one event names.
	maxTargets = 100
)

// What the server itself tells of.
const (
	jobComplete      = "__job_complete"
	workflowComplete = "__workflow_complete"
	workflowRerun    = "workflow.rerun"
)

// reservedPrefixes begin the names that only the server may use, and reservedNames are more of them: a workflow that
// could tell of the end of another, or of a registration, could start what waits for it.
var (
	reservedPrefixes = []string{"__", "kici."}
	reservedNames    = []string{workflowRerun, "registration.updated"}
)

// reserved tells whether the name is the server's own.
func reserved(name string) bool {
	return slices.Contains(reservedNames, name) ||
		slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// check finds what is wrong with an event that somebody other than the server emits.
func (e Event) check() error {
	switch {
	case e.Name == "":
		return refuse("Event name is empty")
	case e.Name != ci.CleanText(e.Name):
		return refuse("Event name is not valid text")
	case utf8.RuneCountInString(e.Name) > ci.MaxName:
		return refuse(fmt.Sprintf("Event name is longer than %d characters", ci.MaxName))
	case reserved(e.Name):
		return refuse("Event name is reserved")
	case len(e.Payload) > maxPayload:
		return refuse(fmt.Sprintf("Event payload is %d bytes, the limit is %d", len(e.Payload), maxPayload))
	case len(e.Payload) > 0 && !isObject(e.Payload):
		return refuse("Event payload is not a JSON object")
	case len(e.TargetRepos) > maxTargets:
		return refuse(fmt.Sprintf("Event target names %d repositories, the limit is %d", len(e.TargetRepos), maxTargets))
	}
	for _, repo := range e.TargetRepos {
		if repo == "" || utf8.RuneCountInString(repo) > ci.MaxRepository {
			return refuse(fmt.Sprintf("Event target holds %.40q, which is not the name of a repository", repo))
		}
	}
	return nil
}

func isObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) && json.Valid(raw)
}
