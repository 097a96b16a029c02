package forge_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/lockfile"
	"kici/internal/decide/envelope"
	"kici/internal/decide/trigger"
	"kici/internal/server/forge"
	"kici/internal/vectors"
)

var update = flag.Bool("update", false, "write golden files")

// listeners are the workflows that the recorded deliveries are matched with.
const listeners = `[
	{"name": "main", "triggers": [{"_type": "push", "branches": [{"type": "glob", "pattern": "main"}], "paths": []}]},
	{"name": "scripts", "triggers": [{"_type": "push", "branches": [], "paths": ["**/*.sh", "!vendor/**"]}]},
	{"name": "tags", "triggers": [{"_type": "tag", "patterns": [{"type": "glob", "pattern": "v*"}]}]},
	{"name": "pulls", "triggers": [{"_type": "pr", "events": ["opened", "synchronize", "synchronized"], "targetBranches": [{"type": "glob", "pattern": "main"}], "sourceBranches": [], "paths": []}]}
]`

// What a Gitea really sends is verified, read, made an event and matched, as its source would have it.
func TestRecordedGiteaDeliveriesStartWorkflows(t *testing.T) {
	dialect, ok := envelope.Preset("gitea")
	if !ok {
		t.Fatal("no such preset")
	}
	lock, parseErr := lockfile.Load([]byte(`{"schemaVersion": 29, "workflows": `+listeners+`}`), "acme/app", "main")
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	var out strings.Builder
	for i, d := range recorded(t, "gitea.jsonl") {
		if !forge.VerifyGitHub([]byte(d.RawBody), d.Headers["x-hub-signature-256"], "s3cret") {
			t.Errorf("delivery %d: GitHub's signature does not verify", i)
		}
		v := forge.Verification{Method: forge.MethodHMAC, Secret: "s3cret", Header: "x-gitea-signature"}
		if !v.Passes(forge.Request{Body: []byte(d.RawBody), Headers: d.Headers}) {
			t.Errorf("delivery %d: Gitea's signature does not verify", i)
		}
		n, err := envelope.Normalize(envelope.Delivery{
			Kind: envelope.Git, Event: d.Headers[strings.ToLower(dialect.EventHeader)], Dialect: dialect,
			Payload: forge.ParseBody([]byte(d.RawBody), d.Headers["content-type"]),
		})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s of %s at %.7s\n", d.Headers["x-gitea-event"], n.Repo, n.Ref)
		tell(t, &out, n, lock)
	}
	golden(t, "gitea.golden", out.String())
}

type recording struct {
	Headers map[string]string
	RawBody string
}

// recorded reads deliveries with the names of headers in lower case.
func recorded(t *testing.T, name string) (all []recording) {
	file, err := os.Open(vectors.Samples("webhooks", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		d := arg[recording](t, lines.Bytes())
		for name, value := range d.Headers {
			delete(d.Headers, name)
			d.Headers[strings.ToLower(name)] = value
		}
		all = append(all, d)
	}
	if err := lines.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%d deliveries, %v", len(all), err)
	}
	return all
}

func tell(t *testing.T, out *strings.Builder, n envelope.Normalized, lock *lockfile.File) {
	if n.Event == nil {
		out.WriteString("  starts nothing\n")
		return
	}
	ev := *n.Event
	ev.ChangedFiles, ev.ChangedFilesStatus, ev.SourceRepo = n.ChangedFiles, n.ChangedFilesStatus, n.Repo
	shown := ev
	shown.Payload = nil
	raw, err := json.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(out, "  %s\n  to the default branch: %v\n", strings.Replace(string(raw), `"payload":null,`, "", 1), n.DefaultBranchPush)
	for _, w := range lock.Workflows {
		d, err := trigger.Match(w, ev, trigger.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "  %s: %s\n", w.Name, strings.Join(trigger.Explain(d), "; "))
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
