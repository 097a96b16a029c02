package envelope

import (
	"encoding/json"
	"slices"
	"strings"

	"kici/internal/core/ci"
)

// Dialect says how a forge names its events and where its payloads keep what matters. Paths are names with dots
// between, with or without a leading `$.`.
type Dialect struct {
	EventHeader    string
	Push           []string // raw names of push events, of branches and tags
	PullRequest    []string
	Repo, Ref, SHA string
	DefaultBranch  string
}

// Preset gives the dialect of a known kind of forge: forgejo, gitea, gogs, github-repo or gitlab-repo.
func Preset(name string) (Dialect, bool) {
	d := Dialect{
		Push: []string{"push"}, PullRequest: []string{"pull_request"}, Repo: "repository.full_name", Ref: "ref",
		SHA: "after", DefaultBranch: "repository.default_branch",
	}
	switch name {
	case "forgejo", "gitea":
		d.EventHeader = "X-Gitea-Event"
	case "gogs":
		d.EventHeader = "X-Gogs-Event"
	case "github-repo":
		d.EventHeader = "X-GitHub-Event"
	case "gitlab-repo":
		d.EventHeader = "X-Gitlab-Event"
		d.Push = []string{"Push Hook", "push", "Tag Push Hook"}
		d.PullRequest = []string{"Merge Request Hook", "merge_request"}
		d.Repo, d.DefaultBranch = "project.path_with_namespace", "project.default_branch"
	default:
		return Dialect{}, false
	}
	return d, true
}

func dotPath(path string) []string {
	return strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, "$"), "."), ".")
}

func (p payload) at(path string) string {
	if path == "" {
		return ""
	}
	return p.text(dotPath(path)...)
}

func normalizeGit(d Delivery, p payload) Normalized {
	n := Normalized{Repo: p.at(d.Dialect.Repo), Ref: "HEAD", ChangedFiles: []string{}, ChangedFilesStatus: ci.FilesUnavailable}
	ev := &ci.Event{
		Action: p.text("action"), Provider: "generic",
		SenderUsername: p.first([]string{"sender", "login"}, []string{"user_username"}),
		SenderUserID:   p.id("sender", "id"),
	}
	if ev.SenderUserID == "" {
		ev.SenderUserID = p.id("user_id")
	}
	fallback := p.at(d.Dialect.DefaultBranch)
	switch {
	case slices.Contains(d.Dialect.Push, d.Event):
		ev.Type = "push"
		n.Event = pushEvent(ev, p.at(d.Dialect.Ref))
		if sha := p.at(d.Dialect.SHA); sha != "" {
			n.Ref = sha
		}
		n.ChangedFiles, n.ChangedFilesStatus = pushedFiles(p)
	case slices.Contains(d.Dialect.PullRequest, d.Event):
		ev.Type = "pull_request"
		n.Event = gitPullRequest(ev, p, fallback)
		if sha := p.first([]string{"pull_request", "head", "sha"}, []string{mergeRequest, "last_commit", "id"}); sha != "" {
			n.Ref = sha
		}
	}
	n.DefaultBranchPush = isDefaultBranchPush(n.Event, fallback)
	return n
}

// mergeRequest is where GitLab keeps what others call pull_request.
const mergeRequest = "object_attributes"

func gitPullRequest(ev *ci.Event, p payload, fallback string) *ci.Event {
	ev.TargetBranch = p.first([]string{"pull_request", "base", "ref"}, []string{mergeRequest, "target_branch"})
	if ev.TargetBranch == "" {
		ev.TargetBranch = fallback
	}
	if ev.TargetBranch == "" {
		return nil
	}
	ev.BaseBranch = ev.TargetBranch
	ev.SourceBranch = p.first([]string{"pull_request", "head", "ref"}, []string{mergeRequest, "source_branch"})
	if ev.Action == "" {
		ev.Action = p.text(mergeRequest, "action")
	}
	ev.IsForkPR = isFork(p)
	// GitLab names the two projects by number only.
	source, target := p.id(mergeRequest, "source_project_id"), p.id(mergeRequest, "target_project_id")
	if source != "" && target != "" && source != target {
		*ev.IsForkPR = true
	}
	return ev
}

// pushedFiles collects what the commits of a push added, modified and removed. The list is unavailable when the commits
// do not tell all: a branch that is new or gone has no base to compare with, and forges post only the first few commits
// of a long push.
func pushedFiles(p payload) ([]string, string) {
	v, ok := p.get("commits")
	commits, isList := v.([]any)
	if !ok || !isList {
		return []string{}, ci.FilesUnavailable
	}
	seen := map[string]bool{}
	names := []string{}
	for _, kind := range []string{"added", "modified", "removed"} {
		for _, commit := range commits {
			list, _ := payload{commit}.get(kind)
			entries, _ := list.([]any)
			for _, entry := range entries {
				if name, ok := entry.(string); ok && !seen[name] {
					seen[name] = true
					names = append(names, name)
				}
			}
		}
	}
	if zeroSHA(p.text("before")) || zeroSHA(p.text("after")) || moreCommits(p, len(commits)) {
		return names, ci.FilesUnavailable
	}
	return names, ci.FilesFetched
}

func zeroSHA(sha string) bool { return sha != "" && strings.Trim(sha, "0") == "" }

// moreCommits compares with the number that Gitea and GitLab give beside the list.
func moreCommits(p payload, listed int) bool {
	for _, name := range []string{"total_commits", "total_commits_count"} {
		if v, ok := p.get(name); ok {
			if number, ok := v.(json.Number); ok {
				if n, err := number.Int64(); err == nil && n > int64(listed) {
					return true
				}
			}
		}
	}
	return false
}
