package trigger

import (
	"strings"

	"kici/internal/core/lockfile"
)

// trigger evaluates one entry. A null entry and a type from a later release match nothing and leave no trace.
func (t *trace) trigger(w *lockfile.Trigger) bool {
	if rule, ok := rules[w.Type]; ok {
		return rule(t, w) && t.err == nil
	}
	return false
}

// rules are the checks of each trigger type, in the order in which they are made. The order shows in the trace, since a
// failed check is the last one.
var rules = map[string]func(t *trace, w *lockfile.Trigger) bool{
	"pr": func(t *trace, w *lockfile.Trigger) bool {
		ev := &t.matcher.event
		return t.event("pull_request") && t.oneOf("action", w.Events, said(ev.Action)) &&
			t.names("target branch", w.TargetBranches, said(ev.TargetBranch)) &&
			t.sourceBranch(w.SourceBranches) && t.paths(w.Paths) && t.repos(w.Repos)
	},
	"push": func(t *trace, w *lockfile.Trigger) bool {
		return t.event("push") && t.names("branch", w.Branches, said(t.matcher.event.TargetBranch)) &&
			t.paths(w.Paths) && t.repos(w.Repos)
	},
	"tag": func(t *trace, w *lockfile.Trigger) bool {
		return t.event("tag") && t.names("tag pattern", w.Patterns, said(t.matcher.event.TargetBranch)) && t.repos(w.Repos)
	},
	"comment": func(t *trace, w *lockfile.Trigger) bool {
		return t.event("comment") && t.action(w.Actions) && t.equal("source", w.Source, t.commentedOn()) &&
			t.body(w.BodyMatch) && t.repos(w.Repos)
	},
	"review": func(t *trace, w *lockfile.Trigger) bool {
		return t.event("review") && t.action(w.Actions) && t.oneOf("state", w.States, t.field("review", "state")) &&
			t.repos(w.Repos)
	},
	"review_comment": withActions,
	"release":        withActions,
	"star":           withActions,
	"watch":          withActions,
	"dispatch": func(t *trace, w *lockfile.Trigger) bool {
		return t.event("dispatch") && t.oneOf("dispatch type", w.Types, said(t.matcher.event.Action)) && t.repos(w.Repos)
	},
	"create": withRefs,
	"delete": withRefs,
	"status": func(t *trace, w *lockfile.Trigger) bool {
		return t.event("status") && t.names("context", globs(w.Contexts), t.field("context")) &&
			t.oneOf("state", w.States, t.field("state")) && t.repos(w.Repos)
	},
	"workflow_run": func(t *trace, w *lockfile.Trigger) bool {
		return t.event("workflow_run") && t.action(w.Actions) &&
			t.oneOf("workflow name", w.Workflows, t.field("workflow_run", "name")) &&
			t.oneOf("conclusion", w.Conclusions, t.field("workflow_run", "conclusion").or("")) && t.repos(w.Repos)
	},
	"fork": func(t *trace, w *lockfile.Trigger) bool { return t.event("fork") && t.repos(w.Repos) },
	"webhook": func(t *trace, w *lockfile.Trigger) bool {
		return t.event(w.Events...) && t.action(w.Actions) && t.repos(w.Repos)
	},
	"kici_event":        customEvent,
	"workflow_complete": workflowComplete,
	"job_complete":      jobComplete,
	"generic_webhook":   genericWebhook,
	"schedule": func(t *trace, w *lockfile.Trigger) bool {
		return t.event("schedule") && t.oneOf("cron expression", []string{w.CronExpression}, t.field("cronExpression"))
	},
	"lifecycle": func(t *trace, w *lockfile.Trigger) bool {
		return t.event("lifecycle") && t.oneOf("lifecycle event", w.Events, t.field("lifecycleEvent")) &&
			t.oneOf("source", w.Sources, t.field("sourceRepo"))
	},
}

// withActions is the rule of types that bear the name of their event.
func withActions(t *trace, w *lockfile.Trigger) bool {
	return t.event(w.Type) && t.action(w.Actions) && t.repos(w.Repos)
}

func withRefs(t *trace, w *lockfile.Trigger) bool {
	return t.event(w.Type) && t.oneOf("ref type", w.RefTypes, t.field("ref_type")) &&
		t.names("ref pattern", w.Patterns, t.field("ref")) && t.repos(w.Repos)
}

func customEvent(t *trace, w *lockfile.Trigger) bool {
	if !t.event("kici_event") || !t.oneOf("event name", []string{w.EventName}, t.field("eventName")) {
		return false
	}
	inner := t.document("payload")
	return t.jsonMap("jsonpath match", w.Match, false, inner) && t.jsonMap("jsonpath not", w.Not, true, inner) &&
		t.equal("source", w.Source, t.field("sourceRepo"))
}

func workflowComplete(t *trace, w *lockfile.Trigger) bool {
	return t.event("workflow_complete") && t.equal("workflow name", w.Name, t.field("workflowName")) &&
		t.oneOf("status", w.Status, t.field("status")) && t.equal("source", w.Source, t.field("sourceRepo"))
}

func jobComplete(t *trace, w *lockfile.Trigger) bool {
	return t.event("job_complete") && t.equal("workflow name", w.Workflow, t.field("workflowName")) &&
		t.equal("job name", w.Job, t.field("jobName")) && t.oneOf("status", w.Status, t.field("status")) &&
		t.equal("source", w.Source, t.field("sourceRepo"))
}

// genericWebhook compares the source that took the delivery in. The paths look at the sender's body as it came.
func genericWebhook(t *trace, w *lockfile.Trigger) bool {
	source, eventType := t.field("source"), t.field("eventType").or(t.matcher.event.Action)
	if known := t.matcher.opts.Source; known != nil {
		source, eventType = said(known.Name), said(known.EventType)
		if known.EventType == "" {
			eventType = said(t.matcher.event.Action)
		}
	}
	if !t.event("generic_webhook") || !t.oneOf("source", []string{w.Source}, source) {
		return false
	}
	whole := t.document()
	return t.oneOf("event type filter", w.Events, eventType) && t.jsonMap("jsonpath match", w.Match, false, whole) &&
		t.jsonMap("jsonpath not", w.Not, true, whole)
}

// document is the payload, or the part at the path, for JSON paths; a missing one is an empty object.
func (t *trace) document(path ...string) any {
	v, ok, err := t.matcher.lookup(path...)
	if err != nil {
		t.err = err
	}
	if !ok || v == nil {
		return map[string]any{}
	}
	return v
}

// sourceBranch needs a branch when it is filtered by: a pull request event without one is not from any branch.
func (t *trace) sourceBranch(patterns []lockfile.BranchPattern) bool {
	branch := t.matcher.event.SourceBranch
	if branch != "" || len(patterns) == 0 {
		return t.names("source branch", patterns, said(branch))
	}
	texts := make([]string, len(patterns))
	for i, p := range patterns {
		texts[i] = p.Pattern
	}
	t.record("source branch", texts, said(missing), false)
	t.checks[len(t.checks)-1].Reason = "Event has no sourceBranch but trigger requires source branch filtering"
	return false
}

// commentedOn tells pull requests from issues, as GitHub does, by a key of the issue.
func (t *trace) commentedOn() subject {
	if _, ok, err := t.matcher.lookup("issue", "pull_request"); ok {
		return said("pr")
	} else if err != nil {
		t.err = err
	}
	return said("issue")
}

// body matches the comment's text: a glob covers all of it, an expression is searched for.
func (t *trace) body(m *lockfile.BranchPattern) bool {
	if m == nil || t.err != nil {
		return t.err == nil
	}
	kind := "regex"
	if m.Type == "glob" {
		kind = "glob"
	}
	text := t.field("comment", "body").or("")
	passed := t.name(*m, text.text)
	return t.err == nil && t.record("bodyMatch ("+kind+")", []string{m.Pattern}, text, passed)
}

func globs(texts []string) []lockfile.BranchPattern {
	patterns := make([]lockfile.BranchPattern, len(texts))
	for i, text := range texts {
		patterns[i] = lockfile.BranchPattern{Type: "glob", Pattern: text}
	}
	return patterns
}

// splitPaths parts path patterns into those that include and those that, by a leading !, exclude.
func splitPaths(patterns []string) (in, out []string) {
	for _, p := range patterns {
		if rest, excluded := strings.CutPrefix(p, "!"); excluded {
			out = append(out, rest)
		} else {
			in = append(in, p)
		}
	}
	return in, out
}
