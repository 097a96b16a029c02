package servertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/core/lockfile"
)

// Commit makes a commit with that lock file in a repository of the local source, which is made when it is absent, and
// points the branches at it. The result is the commit's id.
func (h *Home) Commit(t testing.TB, repo string, lock []byte, branches ...string) string {
	t.Helper()
	dir := filepath.Join(h.Repos, filepath.FromSlash(repo))
	if _, err := os.Stat(dir); err != nil {
		git(t, h.Repos, "init", "-q", "-b", "main", dir)
	}
	path := filepath.Join(dir, lockfile.Path)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, lock, 0o644))
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "test")
	for _, b := range branches {
		if b != "main" {
			git(t, dir, "branch", "-f", b)
		}
	}
	return git(t, dir, "rev-parse", "HEAD")
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// PushBody is the payload of a push to a branch.
func PushBody(repo, branch, sha string) string {
	return fmt.Sprintf(`{"ref":"refs/heads/%s","after":%q,"repository":{"full_name":%q},"sender":{"login":"octo"},"head_commit":{"message":"test"}}`,
		branch, sha, repo)
}

// Answer is what the sender of a delivery is told.
type Answer struct {
	Status     int
	DeliveryID string `json:"deliveryId"`
	Duplicate  bool   `json:"duplicate"`
	Reason     string `json:"reason"`
	Error      string `json:"error"`
}

// Deliver posts a push to a source. A mark that is not empty names the delivery, so that sending it again is a
// duplicate. The error is that of the connection.
func (h *Home) Deliver(ctx context.Context, source, body, mark string, headers ...string) (Answer, error) {
	url := h.URL() + "/webhook/" + Org + "/generic/" + source
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("X-Event-Type", "push")
	if mark != "" {
		req.Header.Set("X-Delivery-Id", mark)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: resp.StatusCode}
	return a, json.Unmarshal(raw, &a)
}

// Push posts a push to the home's source and requires that it is accepted. The result is the delivery's id.
func (h *Home) Push(t testing.TB, repo, branch, sha string) string {
	t.Helper()
	a, err := h.Deliver(t.Context(), Source, PushBody(repo, branch, sha), "")
	must(t, err)
	if a.Status != http.StatusAccepted || a.Duplicate {
		t.Fatalf("push to %s: %+v", branch, a)
	}
	return a.DeliveryID
}

// Lock is a lock file with one workflow "ci" that runs on pushes to main and has these jobs. A job is written as
// "name", "name:label" for a label other than linux, and "name<upstream" for one need.
func Lock(jobs ...string) []byte {
	var parts []string
	for _, j := range jobs {
		name, upstream, _ := strings.Cut(j, "<")
		name, label, ok := strings.Cut(name, ":")
		if !ok {
			label = "linux"
		}
		needs := "[]"
		if upstream != "" {
			needs = fmt.Sprintf("[%q]", upstream)
		}
		parts = append(parts, fmt.Sprintf(`{"_type":"static","name":%q,"runsOn":[{"kind":"exact","value":%q}],"needs":%s,"steps":[{"name":"s","hasOutputs":false}]}`,
			name, label, needs))
	}
	return fmt.Appendf(nil, `{"schemaVersion":29,"source":{"file":".kici/workflows/ci.ts","export":"#default"},"contentHash":"x","workflows":[
{"name":"ci","source":{"file":".kici/workflows/ci.ts","export":"#default"},"contentHash":"h","compileSchemaVersion":5,
"triggers":[{"_type":"push","branches":[{"type":"glob","pattern":"main"}],"paths":[]}],"jobs":[%s]}]}`, strings.Join(parts, ","))
}
