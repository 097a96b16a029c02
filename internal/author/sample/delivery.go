package sample

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/decide/envelope"
)

// Delivery is an event as its sender posts it. It is the form of a fixture file.
type Delivery struct {
	Event   string          `json:"event"`           // as the sender names it: push, pull_request, issue_comment
	Forge   string          `json:"forge,omitempty"` // github, gitea, forgejo, gogs, gitlab-repo or local; "" is github
	Payload json.RawMessage `json:"payload"`
}

// The forges that are no dialect of git events.
const (
	forgeGitHub = "github"
	forgeLocal  = "local"
)

// Parse reads an event from a file: a fixture, or a delivery as it was recorded, {"headers": …, "body": …}, whose body may
// be the text "rawBody". ok is false for another JSON object, which may be a payload without its event.
func Parse(raw []byte) (d Delivery, ok bool, err error) {
	var file struct {
		Delivery
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body"`
		RawBody string            `json:"rawBody"`
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return d, false, errors.New("it holds no JSON object")
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			return d, false, nil // a payload whose members have names of ours
		}
		return d, false, fmt.Errorf("it is no JSON: %w", err)
	}
	if file.RawBody != "" {
		file.Body = json.RawMessage(file.RawBody)
	}
	switch {
	case file.Event != "" && len(file.Payload) > 0:
		return file.Delivery, true, nil
	case len(file.Headers) == 0 || len(file.Body) == 0:
		return d, false, nil
	case !json.Valid(file.Body):
		return d, false, errors.New("the body of the recorded delivery is no JSON")
	}
	d, err = recorded(file.Headers, file.Body)
	return d, err == nil, err
}

// recorded tells the forge by the header that only it sends: Gitea, for one, sends those of GitHub and of Gogs, too.
func recorded(headers map[string]string, body json.RawMessage) (Delivery, error) {
	given := http.Header{}
	for name, value := range headers {
		given.Set(name, value)
	}
	for _, forge := range []string{"gitlab-repo", "forgejo", "gitea", "gogs", forgeGitHub} {
		for _, header := range eventHeaders[forge] {
			if event := given.Get(header); event != "" {
				return Delivery{Event: event, Forge: forge, Payload: body}, nil
			}
		}
	}
	return Delivery{}, errors.New("no header of the recorded delivery names its event (X-GitHub-Event, X-Gitea-Event, …)")
}

var eventHeaders = map[string][]string{
	"gitlab-repo": {"X-Gitlab-Event"}, "forgejo": {"X-Forgejo-Event"}, "gitea": {"X-Gitea-Event"}, "gogs": {"X-Gogs-Event"},
	forgeGitHub: {"X-GitHub-Event"},
}

// own are the events that come from a server and not from a forge.
var own = []string{"workflow_complete", "job_complete", "schedule", "lifecycle", "kici_event", "generic_webhook"}

// Envelope is the event as triggers, rules and steps see it. files are the changed files; nil leaves what the payload tells
// of them, which may be that they are not known.
func (d Delivery) Envelope(files []string) (ci.Event, error) {
	if slices.Contains(own, d.Event) && (d.Forge == "" || d.Forge == forgeGitHub) {
		return d.internal()
	}
	n, err := d.normalize()
	if err != nil {
		return ci.Event{}, fmt.Errorf("event %q: %w", d.Event, err)
	}
	if n.Event == nil {
		return ci.Event{}, fmt.Errorf("event %q starts no workflow: it is none that kici knows, or its payload lacks what makes it one", d.Event)
	}
	ev := *n.Event
	ev.SourceRepo, ev.ChangedFiles, ev.ChangedFilesStatus = n.Repo, n.ChangedFiles, n.ChangedFilesStatus
	switch {
	case files != nil:
		ev.ChangedFiles, ev.ChangedFilesStatus = files, ci.FilesFetched
	case ev.ChangedFilesStatus == "":
		ev.ChangedFilesStatus = ci.FilesUnavailable
	}
	return ev, nil
}

func (d Delivery) normalize() (envelope.Normalized, error) {
	delivery := envelope.Delivery{Event: d.Event, Payload: d.Payload}
	switch d.Forge {
	case "", forgeGitHub:
		delivery.Kind = envelope.GitHub
	case forgeLocal:
		delivery.Kind = envelope.Local
	default:
		dialect, known := envelope.Preset(d.Forge)
		if !known {
			return envelope.Normalized{}, fmt.Errorf("forge %q is unknown: github, gitea, forgejo, gogs, gitlab-repo or local", d.Forge)
		}
		delivery.Kind, delivery.Dialect = envelope.Git, dialect
	}
	return envelope.Normalize(delivery)
}

// internal takes the payload as a server makes it.
func (d Delivery) internal() (ci.Event, error) {
	var payload struct{ SourceRepo string }
	if err := json.Unmarshal(d.Payload, &payload); err != nil {
		return ci.Event{}, fmt.Errorf("event %q: its payload is no JSON object: %w", d.Event, err)
	}
	if d.Event == "generic_webhook" {
		n, err := envelope.Normalize(envelope.Delivery{Kind: envelope.Generic, Payload: d.Payload})
		if err != nil {
			return ci.Event{}, fmt.Errorf("event %q: %w", d.Event, err)
		}
		n.Event.Action = ""
		return *n.Event, nil
	}
	if d.Event == "kici_event" { // its payload is the wrapped one already
		return ci.Event{Type: d.Event, TargetBranch: "main", Payload: d.Payload, SourceRepo: payload.SourceRepo}, nil
	}
	ev, err := envelope.Internal("__"+strings.TrimPrefix(d.Event, "__"), d.Payload, payload.SourceRepo, "")
	if err != nil {
		return ci.Event{}, fmt.Errorf("event %q: %w", d.Event, err)
	}
	return ev, nil
}
