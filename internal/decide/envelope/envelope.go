package trigger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"kici/internal/core/ci"
)

// Kinds of sources that deliveries come from.
const (
	SourceGitHub  = "github"
	SourceGit     = "universal-git" // Gitea, Forgejo, Gogs, GitLab and others that post git events
	SourceGeneric = "generic"
	SourceLocal   = "local"
)

// Branches that stand for none.
const (
	localBranch   = "__local__"
	genericBranch = "__generic__"
	mainBranch    = "main"
)

// Delivery is what a sender posted, already verified.
type Delivery struct {
	Kind    string // one of the Source constants
	Event   string // raw name of the event, from a header
	Action  string // "" when there is none
	Payload json.RawMessage
	Dialect GitDialect // of SourceGit
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
}

// Normalize makes the envelope of a delivery. Its error is a payload that is not JSON, or an unknown kind.
func Normalize(d Delivery) (Normalized, error) {
	p, err := decodePayload(d.Payload)
	if err != nil {
		return Normalized{}, err
	}
	var n Normalized
	switch d.Kind {
	case SourceGitHub:
		n = normalizeGitHub(d, p)
	case SourceGit:
		n = normalizeGit(d, p)
	case SourceLocal:
		n = normalizeLocal(d, p)
	case SourceGeneric:
		n = normalizeGeneric(d)
	default:
		return Normalized{}, fmt.Errorf("normalize delivery: unknown kind of source %q", d.Kind)
	}
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

// Type gives the trigger type that a raw GitHub event name, or a normalised event type, is registered under.
func Type(event string) string {
	names := map[string]string{
		"pull_request": "pr", "pull_request_review": "review", "pull_request_review_comment": "review_comment",
		"issue_comment": "comment", "repository_dispatch": "dispatch",
	}
	if name, ok := names[event]; ok {
		return name
	}
	return event
}

func shortRef(ref string) string {
	if tag, ok := strings.CutPrefix(ref, "refs/tags/"); ok {
		return tag
	}
	return strings.TrimPrefix(ref, "refs/heads/")
}

// payload is a decoded body. Numbers stay as written, since ids may be beyond what a float holds.
type payload struct{ root any }

func decodePayload(raw json.RawMessage) (payload, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return payload{map[string]any{}}, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var p payload
	if err := d.Decode(&p.root); err != nil {
		return payload{}, fmt.Errorf("read payload: %w", err)
	}
	return p, nil
}

// get follows names, and numbers into lists.
func (p payload) get(names ...string) (any, bool) {
	v := p.root
	for _, name := range names {
		switch at := v.(type) {
		case map[string]any:
			member, ok := at[name]
			if !ok {
				return nil, false
			}
			v = member
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// text gives the text at the names, "" for anything else.
func (p payload) text(names ...string) string {
	v, _ := p.get(names...)
	s, _ := v.(string)
	return s
}

// first gives the first text that is not empty.
func (p payload) first(paths ...[]string) string {
	for _, names := range paths {
		if s := p.text(names...); s != "" {
			return s
		}
	}
	return ""
}

// id gives a number in decimal or a text as it is.
func (p payload) id(names ...string) string {
	v, _ := p.get(names...)
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return v.String()
		}
		if f, err := v.Float64(); err == nil && !math.IsInf(f, 0) {
			return formatNumber(f)
		}
	}
	return ""
}
