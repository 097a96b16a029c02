package envelope

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/vectors"
)

func TestGitDialects(t *testing.T) {
	tests := []struct {
		name, preset, event, payload string
		wantType, wantTarget, wantID string
		fork, defaultPush            bool
		status                       string
	}{
		{
			name: "GitLab push to the default branch registers", preset: "gitlab-repo", event: "Push Hook",
			payload:  `{"ref":"refs/heads/main","before":"a","after":"b","project":{"default_branch":"main"},"user_id":5,"commits":[]}`,
			wantType: "push", wantTarget: "main", wantID: "5", defaultPush: true, status: ci.FilesFetched,
		},
		{
			name: "GitLab tag", preset: "gitlab-repo", event: "Tag Push Hook",
			payload:  `{"ref":"refs/tags/v1","before":"0000","after":"b","commits":[]}`,
			wantType: "tag", wantTarget: "v1", status: ci.FilesUnavailable,
		},
		{
			name: "GitLab merge request of another project", preset: "gitlab-repo", event: "Merge Request Hook",
			payload:  `{"object_attributes":{"target_branch":"main","source_project_id":1,"target_project_id":2}}`,
			wantType: "pull_request", wantTarget: "main", fork: true, status: ci.FilesUnavailable,
		},
		{
			name: "commits that the forge left out", preset: "gitea", event: "push",
			payload:  `{"ref":"refs/heads/x","before":"a","after":"b","total_commits":9,"commits":[{"added":["f"]}]}`,
			wantType: "push", wantTarget: "x", status: ci.FilesUnavailable,
		},
		{
			name: "new branch", preset: "forgejo", event: "push",
			payload:  `{"ref":"refs/heads/x","before":"0000000","after":"b","commits":[{"added":["f"]}]}`,
			wantType: "push", wantTarget: "x", status: ci.FilesUnavailable,
		},
		{
			name: "ids beyond a float's reach", preset: "gogs", event: "push",
			payload:  `{"ref":"refs/heads/x","before":"a","after":"b","sender":{"id":9007199254740993},"commits":[]}`,
			wantType: "push", wantTarget: "x", wantID: "9007199254740993", status: ci.FilesFetched,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dialect, ok := Preset(tt.preset)
			if !ok {
				t.Fatal("no such preset")
			}
			n, err := Normalize(Delivery{
				Kind: Git, Event: tt.event, Payload: json.RawMessage(tt.payload), Dialect: dialect,
			})
			if err != nil || n.Event == nil {
				t.Fatal(n, err)
			}
			got := []any{n.Event.Type, n.Event.TargetBranch, n.Event.SenderUserID, n.DefaultBranchPush, n.ChangedFilesStatus,
				n.Event.IsForkPR != nil && *n.Event.IsForkPR}
			want := []any{tt.wantType, tt.wantTarget, tt.wantID, tt.defaultPush, tt.status, tt.fork}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestInternalEvents(t *testing.T) {
	body := json.RawMessage(`{"workflowName":"ci"}`)
	tests := []struct{ stored, wantType, wantPayload string }{
		{"__workflow_complete", "workflow_complete", `{"workflowName":"ci"}`},
		{"__schedule_fire", "schedule", `{"workflowName":"ci"}`},
		{"__lifecycle", "lifecycle", `{"workflowName":"ci"}`},
		{
			"deployed", "kici_event",
			`{"eventName":"deployed","payload":{"workflowName":"ci"},"sourceRepo":"o/r","sourceRoutingKey":"github:1"}`,
		},
	}
	for _, tt := range tests {
		ev, err := Internal(tt.stored, body, "o/r", "github:1")
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type != tt.wantType || ev.TargetBranch != "main" || string(ev.Payload) != tt.wantPayload {
			t.Errorf("%s: %+v with %s", tt.stored, ev, ev.Payload)
		}
	}
}

func TestNormalizeRefusesWhatIsNoDelivery(t *testing.T) {
	for _, payload := range []string{`{`, `{} {}`, `{}]`} {
		if _, err := Normalize(Delivery{Kind: GitHub, Event: "push", Payload: []byte(payload)}); err == nil {
			t.Errorf("%s is taken", payload)
		}
	}
	if _, err := Normalize(Delivery{Kind: "carrier-pigeon"}); err == nil {
		t.Error("an unknown kind is taken")
	}
}

func TestEveryEventOfARefHasATarget(t *testing.T) {
	gitea, _ := Preset("gitea")
	for ref, want := range map[string]string{
		"refs/heads/a/b": "a/b", "refs/tags/v1": "v1", "refs/heads/": "refs/heads/", "refs/tags/": "refs/tags/",
		"refs/heads/refs/tags/x": "refs/tags/x", "refs/pull/1/head": "refs/pull/1/head", "main": "main",
	} {
		for _, kind := range []string{Local, GitHub, Git} {
			n, err := Normalize(Delivery{Kind: kind, Event: "push", Payload: []byte(`{"ref":"` + ref + `"}`), Dialect: gitea})
			if err != nil || n.Event == nil || n.Event.TargetBranch != want {
				t.Errorf("%s of %s: %+v, %v, want %s", ref, kind, n.Event, err, want)
			}
		}
	}
}

func FuzzNormalize(f *testing.F) {
	presets := []string{"", "forgejo", "gitea", "gogs", "github-repo", "gitlab-repo"}
	for _, c := range vectors.LoadKind(f, "triggers.json", "normalize") {
		d := vectorDelivery(f, c)
		for preset := range presets {
			f.Add(d.Kind, byte(preset), d.Event, string(d.Payload))
		}
	}
	f.Fuzz(func(t *testing.T, kind string, preset byte, event, payload string) {
		dialect, _ := Preset(presets[int(preset)%len(presets)])
		n, err := Normalize(Delivery{Kind: kind, Event: event, Payload: []byte(payload), Dialect: dialect})
		if err != nil {
			return
		}
		if n.Ref == "" {
			t.Error("no ref")
		}
		if n.Event == nil {
			return
		}
		if n.Event.TargetBranch == "" || n.Event.Type == "" && kind != Local || !json.Valid(n.Event.Payload) {
			t.Errorf("an event without what all have: %+v", n.Event)
		}
		if _, err := json.Marshal(n.Event); err != nil {
			t.Errorf("it does not write: %v", err)
		}
	})
}

func FuzzParseBody(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `[1]`, `5`, "a=1&b=x+y&a=2", "hello", "%zz=1"} {
		f.Add(s, "application/json")
		f.Add(s, "application/x-www-form-urlencoded")
	}
	f.Fuzz(func(t *testing.T, text, contentType string) {
		if raw := ParseBody(text, contentType); !json.Valid(raw) {
			t.Errorf("not JSON: %s", raw)
		}
	})
}
