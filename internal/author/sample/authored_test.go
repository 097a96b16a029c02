package sample

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
)

func TestAuthoredFixturesBecomeEvents(t *testing.T) {
	s := Settings{Branch: "main", SHA: strings.Repeat("2", 40), Repo: "acme/app"}
	tests := []struct {
		name, options string
		files         []string
		want          ci.Event // but for the payload of a built-in event
	}{
		{"a built-in event", `{"event": "push", "branch": "dev", "changedFiles": ["a"]}`, nil,
			ci.Event{Type: "push", TargetBranch: "dev", SourceRepo: "acme/app", ChangedFiles: []string{"a"}, ChangedFilesStatus: ci.FilesFetched}},
		{"files of the command line win", `{"event": "push", "changedFiles": ["a"]}`, []string{"b"},
			ci.Event{Type: "push", TargetBranch: "main", SourceRepo: "acme/app", ChangedFiles: []string{"b"}, ChangedFilesStatus: ci.FilesFetched}},
		{"a payload of its own", `{"event": "push", "payload": {"ref": "refs/heads/x", "repository": {"full_name": "a/b"}}}`, nil,
			ci.Event{Type: "push", TargetBranch: "x", SourceRepo: "a/b", ChangedFilesStatus: ci.FilesUnavailable,
				Payload: json.RawMessage(`{"ref": "refs/heads/x", "repository": {"full_name": "a/b"}}`)}},
		{"a whole event", `{"event": {"type": "pull_request", "action": "opened", "targetBranch": "main", "sourceBranch": "x", "payload": {"n": 1}}}`, nil,
			ci.Event{Type: "pull_request", Action: "opened", TargetBranch: "main", SourceBranch: "x", SourceRepo: "acme/app", ChangedFilesStatus: ci.FilesUnavailable,
				Payload: json.RawMessage(`{"n": 1}`)}},
		{"a whole event with little in it", `{"event": {"type": "push"}}`, nil,
			ci.Event{Type: "push", TargetBranch: "main", SourceRepo: "acme/app", ChangedFilesStatus: ci.FilesUnavailable, Payload: json.RawMessage(`{}`)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := ParseAuthored(json.RawMessage(tt.options))
			if err != nil {
				t.Fatal(err)
			}
			got, err := a.Envelope(s, tt.files)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want.Payload == nil {
				got.Payload = nil
			}
			got.Provider, got.SenderUsername, got.SenderUserID = "", "", "" // of whom the payload tells
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuthoredFixturesThatSayNothing(t *testing.T) {
	for options, want := range map[string]string{
		`{}`:                                 "event must be the name",
		`{"event": 3}`:                       "event must be the name",
		`{"event": {}}`:                      "needs a type",
		`{"event": "push", "brnch": "x"}`:    `unknown field "brnch"`,
		`{"event": {"type": "a", "ref": 1}}`: `event: unknown field "ref"`,
		`{"event": {"type": "a"}, "branch": "x"}`:     "are for built-in events",
		`{"event": "push", "inputs": {"a": [1]}}`:     `input "a" must be`,
		`{"event": "push", "changedFiles": "src/**"}`: "changedFiles",
	} {
		if _, err := ParseAuthored(json.RawMessage(options)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", options, err, want)
		}
	}
	a, err := ParseAuthored(json.RawMessage(`{"event": "nothing"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Envelope(Settings{}, nil); err == nil || !strings.Contains(err.Error(), `no built-in event is called "nothing"`) {
		t.Error(err)
	}
}
