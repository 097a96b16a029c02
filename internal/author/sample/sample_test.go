package sample

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/trigger"
	"kici/internal/vectors"
)

var settings = Settings{Branch: "main", SHA: strings.Repeat("2", 40), Repo: "acme/app"}

func made(t *testing.T, name string) ci.Event {
	t.Helper()
	d, ok, err := Make(name, settings)
	if err != nil || !ok {
		t.Fatalf("%s: %v, %v", name, ok, err)
	}
	ev, err := d.Envelope(nil)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// Every event that can be made starts a workflow that asks for it.
func TestMadeEventsStartTheirTriggers(t *testing.T) {
	branches := []lockfile.BranchPattern{{Type: "glob", Pattern: "main"}}
	triggers := map[string]lockfile.Trigger{
		"push":                     {Type: "push", Branches: branches},
		"tag":                      {Type: "tag", Patterns: []lockfile.BranchPattern{{Type: "glob", Pattern: "v*"}}},
		"tag:rel-2":                {Type: "tag", Patterns: []lockfile.BranchPattern{{Type: "glob", Pattern: "rel-*"}}},
		"pr":                       {Type: "pr", Events: []string{"opened"}, TargetBranches: branches},
		"pull_request:sync":        {Type: "pr", Events: []string{"synchronize"}},
		"pr:labeled":               {Type: "pr", Events: []string{"labeled"}},
		"comment":                  {Type: "comment", Actions: []string{"created"}, Source: "pr"},
		"review":                   {Type: "review", Actions: []string{"submitted"}, States: []string{"approved"}},
		"review_comment":           {Type: "review_comment", Actions: []string{"created"}},
		"release:created":          {Type: "release", Actions: []string{"created"}},
		"dispatch:deploy":          {Type: "dispatch", Types: []string{"deploy"}},
		"create":                   {Type: "create", RefTypes: []string{"branch"}, Patterns: branches},
		"delete:tag":               {Type: "delete", RefTypes: []string{"tag"}, Patterns: []lockfile.BranchPattern{{Type: "glob", Pattern: "v*"}}},
		"status:failure":           {Type: "status", States: []string{"failure"}, Contexts: []string{"build"}},
		"workflow_run":             {Type: "workflow_run", Actions: []string{"completed"}, Workflows: []string{"ci"}},
		"fork":                     {Type: "fork"},
		"star":                     {Type: "star", Actions: []string{"created"}},
		"watch":                    {Type: "watch", Actions: []string{"started"}},
		"kici_event:shipped":       {Type: "kici_event", EventName: "shipped", Source: "acme/app"},
		"workflow_complete:failed": {Type: "workflow_complete", Name: "ci", Status: []string{"failed"}},
		"job_complete:skipped":     {Type: "job_complete", Job: "test", Status: []string{"skipped"}, Source: "acme/app"},
		"generic_webhook:alerts":   {Type: "generic_webhook", Source: "alerts"},
		"webhook:gollum":           {Type: "webhook", Events: []string{"gollum"}},
		"schedule:0 4 * * *":       {Type: "schedule", CronExpression: "0 4 * * *"},
		"lifecycle:job_failed":     {Type: "lifecycle", Events: []string{"job_failed"}},
	}
	tried := map[string]bool{}
	for name, tr := range triggers {
		d, err := trigger.Match(lockfile.Workflow{Name: "w", Triggers: []lockfile.Trigger{tr}}, made(t, name), trigger.Options{})
		if err != nil || !d.Matched {
			t.Errorf("%s: %v, %v", name, trigger.Explain(d), err)
		}
		kind, _, _ := strings.Cut(name, ":")
		tried[kind] = true
	}
	for _, k := range Kinds() {
		if !tried[k.Name] {
			t.Errorf("%s is tried by nothing", k.Name)
		}
	}
}

func TestMadeEventsCarryTheSettings(t *testing.T) {
	d, _, err := Make("push", Settings{Branch: `we"ird`, SHA: "abc", Repo: "acme/app"})
	if err != nil {
		t.Fatal(err)
	}
	ev, err := d.Envelope([]string{"src/a.go"})
	if err != nil {
		t.Fatal(err)
	}
	if ev.TargetBranch != `we"ird` || ev.SourceRepo != "acme/app" || ev.ChangedFiles[0] != "src/a.go" || ev.ChangedFilesStatus != ci.FilesFetched {
		t.Errorf("%+v", ev)
	}
	if got := made(t, "push").ChangedFilesStatus; got != ci.FilesUnavailable {
		t.Errorf("changed files are %s", got)
	}
}

func TestNamesThatStandForNothing(t *testing.T) {
	if _, ok, err := Make("pushed", settings); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	for _, name := range []string{"push:x", "webhook", "pr:", "fork:mine"} {
		if _, ok, err := Make(name, settings); !ok || err == nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}

func TestFilesOfEvents(t *testing.T) {
	tests := []struct {
		name, file           string
		event                string // "" when it is none
		forge                string
		wrong, envelopeWrong bool
	}{
		{"fixture", `{"event": "push", "payload": {"ref": "refs/heads/dev"}}`, "push", "", false, false},
		{"recorded on GitHub", `{"headers": {"x-github-event": "push"}, "body": {"ref": "refs/heads/dev"}}`, "push", "github", false, false},
		{"recorded on GitLab", `{"headers": {"X-Gitlab-Event": "Push Hook"}, "rawBody": "{\"ref\": \"refs/heads/dev\"}"}`, "Push Hook", "gitlab-repo", false, false},
		{"recorded without an event", `{"headers": {"User-Agent": "x"}, "body": {}}`, "", "", true, false},
		{"recorded body that is no JSON", `{"headers": {"X-GitHub-Event": "push"}, "rawBody": "a=b"}`, "", "", true, false},
		{"payload alone", `{"ref": "refs/heads/dev"}`, "", "", false, false},
		{"payload with names of ours", `{"event": {"id": 1}, "payload": []}`, "", "", false, false},
		{"no object", `[1]`, "", "", true, false},
		{"no JSON", `{`, "", "", true, false},
		{"unknown event", `{"event": "gollum", "payload": {}}`, "gollum", "", false, true},
		{"unknown forge", `{"event": "push", "forge": "svn", "payload": {}}`, "push", "svn", false, true},
		{"push of nothing", `{"event": "push", "payload": {}}`, "push", "", false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, ok, err := Parse([]byte(tt.file))
			if ok != (tt.event != "") || (err != nil) != tt.wrong || d.Event != tt.event || d.Forge != tt.forge {
				t.Fatalf("%+v, %v, %v", d, ok, err)
			}
			if !ok {
				return
			}
			ev, err := d.Envelope(nil)
			if (err != nil) != tt.envelopeWrong {
				t.Fatal(err)
			}
			if err == nil && (ev.Type != "push" || ev.TargetBranch != "dev") {
				t.Errorf("%+v", ev)
			}
		})
	}
}

// Deliveries of a real forge are events as they were recorded.
func TestRecordedDeliveriesAreEvents(t *testing.T) {
	f, err := os.Open(vectors.Samples("webhooks", "gitea.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	types := map[string]int{}
	for lines.Scan() {
		d, ok, err := Parse(lines.Bytes())
		if err != nil || !ok || d.Forge != "gitea" {
			t.Fatalf("%+v, %v, %v", d.Forge, ok, err)
		}
		if ev, err := d.Envelope(nil); err == nil {
			types[ev.Type]++
		}
	}
	if types["push"] == 0 || types["pull_request"] == 0 {
		t.Errorf("types %v", types)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"event":"push","payload":{}}`, `{"headers":{"X-GitHub-Event":"push"},"rawBody":"{}"}`, `{}`, `[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, ok, _ := Parse(raw)
		if ok && !json.Valid(d.Payload) {
			t.Errorf("payload %q", d.Payload)
		}
		if ok {
			_, _ = d.Envelope(nil) // it must not panic
		}
	})
}
