package trigger

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/vectors"
)

var update = flag.Bool("update", false, "write golden files")

// traces are one workflow each; the golden file has what its author reads.
var traces = []struct{ name, triggers, event string }{
	{"a branch that no pattern takes", `[{"_type":"push","branches":[{"type":"glob","pattern":"main"},{"type":"glob","pattern":"release/*"}]}]`,
		`{"type":"push","targetBranch":"feat/x"}`},
	{"a branch that one takes", `[{"_type":"push","branches":[{"type":"glob","pattern":"main"},{"type":"glob","pattern":"release/*"}]}]`,
		`{"type":"push","targetBranch":"main"}`},
	{"a single pattern", `[{"_type":"tag","patterns":[{"type":"glob","pattern":"v*"}]}]`, `{"type":"tag","targetBranch":"beta"}`},
	{"an expression with a bar stays whole", `[{"_type":"tag","patterns":[{"type":"regex","pattern":"^(v|r)"}]}]`, `{"type":"tag","targetBranch":"x"}`},
	{"no filter at all", `[{"_type":"push","branches":[],"paths":[]}]`, `{"type":"push","targetBranch":"x"}`},
	{"no trigger", `[]`, `{"type":"push","targetBranch":"x"}`},
	{"the second trigger", `[{"_type":"pr","events":["opened"]},{"_type":"push"}]`, `{"type":"push","targetBranch":"x"}`},
	{"a type of a later release", `[{"_type":"telepathy"}]`, `{"type":"push","targetBranch":"x"}`},
	{"paths that no file is in", `[{"_type":"push","paths":["src/**","!**/*.md"]}]`, `{"type":"push","targetBranch":"x","changedFiles":["src/a.md"]}`},
	{"paths that a file is in", `[{"_type":"push","paths":["src/**"]}]`, `{"type":"push","targetBranch":"x","changedFiles":["a","src/b"]}`},
	{"paths without a list of files", `[{"_type":"push","paths":["src/**"]}]`, `{"type":"push","targetBranch":"x","changedFilesStatus":"unavailable"}`},
	{"paths with an empty list", `[{"_type":"push","paths":["src/**"]}]`, `{"type":"push","targetBranch":"x","changedFilesStatus":"fetched"}`},
	{"an action that is not asked for", `[{"_type":"pr","events":["opened","closed"]}]`, `{"type":"pull_request","action":"labeled","targetBranch":"main"}`},
	{"a pull request from no branch", `[{"_type":"pr","events":[],"sourceBranches":[{"type":"glob","pattern":"feat/*"}]}]`, `{"type":"pull_request","targetBranch":"main"}`},
	{"a comment on an issue", `[{"_type":"comment","actions":[],"source":"pr"}]`, `{"type":"comment","targetBranch":"main","payload":{"issue":{}}}`},
	{"a comment that is a command", `[{"_type":"comment","actions":["created"],"bodyMatch":{"type":"regex","pattern":"^/deploy\\b"}}]`,
		`{"type":"comment","action":"created","targetBranch":"main","payload":{"comment":{"body":"/deploy now"}}}`},
	{"a state that the event lacks", `[{"_type":"review","actions":[],"states":["approved"]}]`, `{"type":"review","targetBranch":"main","payload":{}}`},
	{"a commit status", `[{"_type":"status","contexts":["ci/*"],"states":["success"]}]`, `{"type":"status","targetBranch":"main","payload":{"context":"ci/unit","state":"failure"}}`},
	{"a run of another system", `[{"_type":"workflow_run","actions":[],"workflows":["Build"],"conclusions":["success"]}]`,
		`{"type":"workflow_run","targetBranch":"main","payload":{"workflow_run":{"name":"Build","conclusion":null}}}`},
	{"a ref that is created", `[{"_type":"create","refTypes":["tag"],"patterns":[{"type":"glob","pattern":"v*"}]}]`, `{"type":"create","targetBranch":"v1","payload":{"ref":"v1","ref_type":"tag"}}`},
	{"a repository that is excluded", `[{"_type":"push","repos":[{"type":"glob","pattern":"acme/*"},{"type":"glob","pattern":"!acme/secret"}]}]`,
		`{"type":"push","targetBranch":"main","sourceRepo":"acme/secret"}`},
	{"an event of no repository", `[{"_type":"push","repos":[{"type":"glob","pattern":"acme/*"}]}]`, `{"type":"push","targetBranch":"main"}`},
	{"a payload that holds it", `[{"_type":"kici_event","eventName":"deployed","match":{"$.env":"/^prod/"}}]`,
		`{"type":"kici_event","targetBranch":"main","payload":{"eventName":"deployed","payload":{"env":"prod-eu"}}}`},
	{"a payload that does not", `[{"_type":"kici_event","eventName":"deployed","match":{"$.env":["prod","stage"]}}]`,
		`{"type":"kici_event","targetBranch":"main","payload":{"eventName":"deployed","payload":{"env":"dev"}}}`},
	{"a payload that is ruled out", `[{"_type":"kici_event","eventName":"deployed","not":{"dry":true}}]`,
		`{"type":"kici_event","targetBranch":"main","payload":{"eventName":"deployed","payload":{"dry":true}}}`},
	{"a job that ended", `[{"_type":"job_complete","workflow":"ci","job":"test","status":["failed"]}]`,
		`{"type":"job_complete","targetBranch":"main","payload":{"workflowName":"ci","jobName":"test","status":"success"}}`},
	{"another source", `[{"_type":"generic_webhook","source":"argocd","events":["sync"]}]`, `{"type":"generic_webhook","targetBranch":"__generic__","payload":{"source":"stripe"}}`},
	{"another schedule", `[{"_type":"schedule","cronExpression":"0 3 * * *","timezone":"UTC"}]`, `{"type":"schedule","targetBranch":"main","payload":{"cronExpression":"0 4 * * *"}}`},
	{"signs that would break a line", `[{"_type":"push","branches":[{"type":"glob","pattern":"main"}]}]`, `{"type":"push","targetBranch":"a\n\u001b[31mb\u0060c"}`},
}

func TestTracesReadAsSentences(t *testing.T) {
	var out strings.Builder
	for _, tt := range traces {
		var triggers []lockfile.Trigger
		var ev ci.Event
		vectors.Decode(t, []byte(tt.triggers), &triggers)
		vectors.Decode(t, []byte(tt.event), &ev)
		d, err := Match(workflow(triggers...), ev, Options{})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		fmt.Fprintf(&out, "# %s\n%s\n\n", tt.name, strings.Join(Explain(d), "\n"))
	}
	path := filepath.Join("testdata", "traces.golden")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
