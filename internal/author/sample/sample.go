// Package sample gives the events that authors try their workflows with: made ones of every kind, and those that were
// kept in a file.
package sample

import (
	_ "embed" // the payloads
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kici/internal/kit/jsontree"
)

// Settings fill in what a made event is about.
type Settings struct {
	Branch string // that is pushed to, or that a pull request is for
	SHA    string // of the commit
	Repo   string // owner/name
}

// Kind is a sort of event that can be made.
type Kind struct {
	Name     string // as in `kici preview NAME`
	Variants string // what may follow after a colon, for people; "" for nothing
	About    string
	event    string // as its sender names it; "" when it is the name
	variant  string // used when none is given
	short    map[string]string
}

// kinds are in the order in which people look for them.
var kinds = []Kind{
	{Name: "push", About: "a push to a branch"},
	{Name: "tag", Variants: "the name", About: "a push of a tag", event: "push", variant: "v1.0.0"},
	{Name: "pr", Variants: "open, sync, close, reopen or any other action", About: "a pull request", event: "pull_request", variant: "opened",
		short: map[string]string{"open": "opened", "sync": "synchronize", "close": "closed", "reopen": "reopened"}},
	{Name: "comment", Variants: "created, edited, deleted", About: "a comment on a pull request", event: "issue_comment", variant: "created"},
	{Name: "review", Variants: "submitted, edited, dismissed", About: "a review of a pull request", event: "pull_request_review", variant: "submitted"},
	{Name: "review_comment", Variants: "created, edited, deleted", About: "a comment in a review", event: "pull_request_review_comment", variant: "created"},
	{Name: "release", Variants: "published, created, …", About: "a release", variant: "published"},
	{Name: "dispatch", Variants: "the type", About: "a call from outside", event: "repository_dispatch", variant: "dispatch"},
	{Name: "create", Variants: "branch, tag", About: "a new branch or tag", variant: "branch"},
	{Name: "delete", Variants: "branch, tag", About: "a branch or tag that is gone", variant: "branch"},
	{Name: "status", Variants: "success, failure, error, pending", About: "a status of a commit", variant: "success"},
	{Name: "workflow_run", Variants: "requested, in_progress, completed", About: "a run of a GitHub workflow", variant: "completed"},
	{Name: "fork", About: "a fork of the repository"},
	{Name: "star", Variants: "created, deleted", About: "a star", variant: "created"},
	{Name: "watch", Variants: "started", About: "somebody who watches", variant: "started"},
	{Name: "kici_event", Variants: "the name", About: "an event that a workflow emits", variant: "event"},
	{Name: "workflow_complete", Variants: "success, failed, cancelled", About: "the end of another workflow", variant: "success"},
	{Name: "job_complete", Variants: "success, failed, cancelled, skipped", About: "the end of a job", variant: "success"},
	{Name: "generic_webhook", Variants: "the source", About: "a delivery of a generic source", variant: "source"},
	{Name: "webhook", Variants: "the event", About: "any other event of a forge"},
	{Name: "schedule", Variants: "the cron expression", About: "a schedule that is due", variant: "0 0 * * *"},
	{Name: "lifecycle", Variants: "workflow_complete, job_complete, job_failed, registration_updated", About: "news of the server", variant: "workflow_complete"},
}

// Kinds lists what can be made.
func Kinds() []Kind { return slices.Clone(kinds) }

//go:embed samples.json
var payloads []byte

// Make makes the event that a name such as push, pr:open or schedule:0 4 * * * stands for; ok is false for a name that
// stands for none. pull_request is another name of pr. The error is one of the part behind the colon.
func Make(name string, s Settings) (d Delivery, ok bool, err error) {
	name, variant, given := strings.Cut(name, ":")
	if name == "pull_request" {
		name = "pr"
	}
	at := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if at < 0 {
		return Delivery{}, false, nil
	}
	k := kinds[at]
	switch {
	case given && (k.Variants == "" || variant == ""):
		return Delivery{}, true, fmt.Errorf("event %q takes nothing after a colon", name)
	case !given && name == "webhook":
		return Delivery{}, true, fmt.Errorf("event webhook needs the name of the forge's event, as in webhook:gollum")
	case !given:
		variant = k.variant
	case k.short[variant] != "":
		variant = k.short[variant]
	}
	return k.make(variant, s)
}

func (k Kind) make(variant string, s Settings) (Delivery, bool, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(payloads, &all); err != nil {
		return Delivery{}, true, fmt.Errorf("read the payloads of samples: %w", err)
	}
	d := Delivery{Event: k.event}
	switch {
	case k.Name == "webhook":
		d.Event, d.Forge = variant, forgeLocal
	case d.Event == "":
		d.Event = k.Name
	}
	d.Payload = json.RawMessage(s.fill(string(all[k.Name]), variant))
	return d, true, nil
}

// fill puts the settings into a payload, each within the quotes of a JSON text.
func (s Settings) fill(text, variant string) string {
	inner := func(value string) string {
		quoted := jsontree.Quote(value)
		return quoted[1 : len(quoted)-1]
	}
	ref := s.Branch
	if variant == "tag" {
		ref = "v1.0.0"
	}
	return strings.NewReplacer("@BRANCH@", inner(s.Branch), "@SHA@", inner(s.SHA), "@REPO@", inner(s.Repo), "@REF@", inner(ref),
		"@VARIANT@", inner(variant)).Replace(text)
}
