package forge

import "slices"

// knownEvents are the event names that metrics tell apart.
var knownEvents = []string{
	"push", "tag", "pull_request", "comment", "review", "review_comment", "release", "dispatch", "create", "delete",
	"status", "workflow_run", "fork", "star", "watch", "issue_comment", "generic_webhook", "default",
}

// EventLabel is an event name as a metric's label. Names come from senders, so all but the known ones are one label:
// each label value is a time series that is kept for good.
func EventLabel(event string) string {
	if slices.Contains(knownEvents, event) {
		return event
	}
	return "other"
}
