// Package envelope turns what senders post into the event that triggers, rules and expressions see.
package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"kici/internal/core/ci"
)

// Kinds of sources that deliveries come from.
const (
	GitHub  = "github"
	Git     = "universal-git" // Gitea, Forgejo, Gogs, GitLab and others that post git events
	Generic = "generic"
	Local   = "local"
)

// Branches that stand for none.
const (
	localBranch   = "__local__"
	genericBranch = "__generic__"
	mainBranch    = "main"
)

// Delivery is what a sender posted, already verified.
type Delivery struct {
	Kind    string // one of the kinds above
	Event   string // raw name of the event, from a header
	Payload json.RawMessage
	Dialect Dialect // of Git
}

// Normalized is a delivery in the product's words.
type Normalized struct {
	Event *ci.Event // nil for events that no workflow can start from; that is no error
	Repo  string    // owner/name, "" when unknown
	Ref   string    // what to read the lock file at and to check out; HEAD when the event names none

	InstallationID    *int64 // GitHub: whose token reads the repository
	DefaultBranchPush bool   // registers the repository's workflows

	// The changed files as far as the payload tells them; a GitHub source asks the forge instead.
	ChangedFiles       []string
	ChangedFilesStatus string // "" for sources whose payload has no such list

	payload payload
}

// Text gives the text that the payload has at the names of members, "" for anything else.
func (n Normalized) Text(names ...string) string { return n.payload.text(names...) }

// Normalize makes the envelope of a delivery. Its error is a payload that is not JSON, or an unknown kind.
func Normalize(d Delivery) (Normalized, error) {
	p, err := decodePayload(d.Payload)
	if err != nil {
		return Normalized{}, err
	}
	var n Normalized
	switch d.Kind {
	case GitHub:
		n = normalizeGitHub(d, p)
	case Git:
		n = normalizeGit(d, p)
	case Local:
		n = normalizeLocal(d, p)
	case Generic:
		n = normalizeGeneric(d)
	default:
		return Normalized{}, fmt.Errorf("normalize delivery: unknown kind of source %q", d.Kind)
	}
	n.payload = p
	if n.Event != nil {
		n.Event.Payload = d.Payload
		if len(bytes.TrimSpace(d.Payload)) == 0 {
			n.Event.Payload = json.RawMessage("{}")
		}
	}
	return n, nil
}

// normalizeLocal takes any event type as it comes.
func normalizeLocal(d Delivery, p payload) Normalized {
	branch := localBranch
	if ref := p.text("ref"); ref != "" {
		branch = shortRef(ref)
	}
	return Normalized{
		Event: &ci.Event{Type: d.Event, Action: p.text("action"), TargetBranch: branch, Provider: "local"},
		Repo:  p.text("repository", "full_name"), Ref: gitHubRef(d.Event, p),
	}
}

// normalizeGeneric knows nothing of repositories: a workflow must ask for the source by name.
func normalizeGeneric(d Delivery) Normalized {
	ev := &ci.Event{Type: "generic_webhook", TargetBranch: genericBranch, Provider: "generic"}
	if d.Event != defaultEventType {
		ev.Action = d.Event
	}
	return Normalized{Event: ev, Ref: "HEAD"}
}

// Internal makes the envelope of an event that came from here: name is as stored, with two leading underscores for the
// product's own events and without for those that workflows emit.
func Internal(name string, body json.RawMessage, sourceRepo, sourceRoutingKey string) (ci.Event, error) {
	if kind, ok := strings.CutPrefix(name, "__"); ok {
		if kind == "schedule_fire" {
			kind = "schedule"
		}
		return ci.Event{Type: kind, TargetBranch: mainBranch, Payload: body, SourceRepo: sourceRepo}, nil
	}
	if len(body) == 0 {
		body = json.RawMessage("{}")
	}
	raw, err := json.Marshal(struct {
		EventName        string          `json:"eventName"`
		Payload          json.RawMessage `json:"payload"`
		SourceRepo       string          `json:"sourceRepo"`
		SourceRoutingKey string          `json:"sourceRoutingKey"`
	}{name, body, sourceRepo, sourceRoutingKey})
	if err != nil {
		return ci.Event{}, fmt.Errorf("wrap payload of event %q: %w", name, err)
	}
	return ci.Event{Type: "kici_event", TargetBranch: mainBranch, Payload: raw, SourceRepo: sourceRepo}, nil
}

// TriggerType gives the trigger type that a raw GitHub event name, or a normalised event type, is registered under.
func TriggerType(event string) string {
	names := map[string]string{
		"pull_request": "pr", "pull_request_review": "review", "pull_request_review_comment": "review_comment",
		"issue_comment": "comment", "repository_dispatch": "dispatch",
	}
	if name, ok := names[event]; ok {
		return name
	}
	return event
}

// shortRef is the name of a branch or tag. A ref of another kind, or without a name, is kept whole.
func shortRef(ref string) string {
	for _, prefix := range []string{"refs/tags/", "refs/heads/"} {
		if name, ok := strings.CutPrefix(ref, prefix); ok && name != "" {
			return name
		}
	}
	return ref
}
