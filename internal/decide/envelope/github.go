package envelope

import (
	"encoding/json"

	"kici/internal/core/ci"
)

// gitHubTypes maps GitHub's event names. Events that are not here start nothing.
var gitHubTypes = map[string]string{
	"push": "push", "pull_request": "pull_request", "pull_request_review": "review",
	"pull_request_review_comment": "review_comment", "issue_comment": "comment", "repository_dispatch": "dispatch",
	"release": "release", "create": "create", "delete": "delete", "status": "status", "workflow_run": "workflow_run",
	"fork": "fork", "star": "star", "watch": "watch",
}

func normalizeGitHub(d Delivery, p payload) Normalized {
	n := Normalized{Event: gitHubEvent(d, p), Repo: gitHubRepo(p), Ref: gitHubRef(d.Event, p)}
	if v, ok := p.get("installation", "id"); ok {
		if number, ok := v.(json.Number); ok {
			if id, err := number.Int64(); err == nil {
				n.InstallationID = &id
			}
		}
	}
	n.DefaultBranchPush = isDefaultBranchPush(n.Event, p.text("repository", "default_branch"))
	return n
}

// isDefaultBranchPush goes by the normalised type, so that it holds for every forge's name of a push.
func isDefaultBranchPush(ev *ci.Event, branch string) bool {
	return ev != nil && ev.Type == "push" && branch != "" && ev.TargetBranch == branch
}

func gitHubEvent(d Delivery, p payload) *ci.Event {
	kind, ok := gitHubTypes[d.Event]
	if !ok {
		return nil
	}
	ev := &ci.Event{
		Type: kind, Action: p.text("action"), Provider: "github",
		SenderUsername: p.text("sender", "login"), SenderUserID: p.id("sender", "id"),
	}
	fallback := p.text("repository", "default_branch")
	if fallback == "" {
		fallback = mainBranch
	}
	switch kind {
	case "push":
		return pushEvent(ev, p.text("ref"))
	case "pull_request":
		if p.text("pull_request", "base", "ref") == "" {
			return nil
		}
		return pullRequestEvent(ev, p, fallback)
	case "review", "review_comment":
		return pullRequestEvent(ev, p, fallback)
	}
	where := map[string][]string{
		"release": {"release", "target_commitish"}, "create": {"ref"}, "delete": {"ref"},
		"status": {"branches", "0", "name"}, "workflow_run": {"workflow_run", "head_branch"},
	}
	ev.TargetBranch = fallback
	if path, ok := where[kind]; ok {
		if branch := p.text(path...); branch != "" {
			ev.TargetBranch = branch
		}
	}
	return ev
}

// pushEvent tells tags from branches by the ref; any other ref is kept whole. Without a ref nothing was pushed.
func pushEvent(ev *ci.Event, ref string) *ci.Event {
	if ref == "" {
		return nil
	}
	ev.TargetBranch = shortRef(ref)
	if len(ref) > len("refs/tags/") && ref[:len("refs/tags/")] == "refs/tags/" {
		ev.Type = "tag"
	}
	return ev
}

func pullRequestEvent(ev *ci.Event, p payload, fallback string) *ci.Event {
	ev.TargetBranch = p.text("pull_request", "base", "ref")
	if ev.TargetBranch == "" {
		ev.TargetBranch = fallback
	}
	ev.BaseBranch = ev.TargetBranch
	ev.SourceBranch = p.text("pull_request", "head", "ref")
	ev.IsForkPR = isFork(p)
	return ev
}

// isFork compares the two repositories of a pull request. A fork that was deleted since has no name and does not count,
// so trust must not rest on this alone.
func isFork(p payload) *bool {
	head, base := p.text("pull_request", "head", "repo", "full_name"), p.text("pull_request", "base", "repo", "full_name")
	fork := head != "" && base != "" && head != base
	return &fork
}

func gitHubRef(event string, p payload) string {
	path := map[string][]string{
		"push": {"after"}, "pull_request": {"pull_request", "head", "sha"},
		"pull_request_review":         {"pull_request", "head", "sha"},
		"pull_request_review_comment": {"pull_request", "head", "sha"},
		"status":                      {"sha"}, "release": {"release", "target_commitish"},
	}[event]
	if ref := p.text(path...); path != nil && ref != "" {
		return ref
	}
	return "HEAD"
}

func gitHubRepo(p payload) string {
	if name := p.text("repository", "full_name"); name != "" {
		return name
	}
	return ownerAndName(p)
}

func ownerAndName(p payload) string {
	owner, name := p.text("repository", "owner", "login"), p.text("repository", "name")
	if owner == "" || name == "" {
		return ""
	}
	return owner + "/" + name
}
