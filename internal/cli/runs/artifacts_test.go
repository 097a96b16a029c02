package runs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"kici/internal/cli"
	"kici/internal/core/adminwire"
)

// artifactServer is a server whose run r has artifacts of these contents. The one named "spoilt" arrives otherwise than
// its job reported.
func artifactServer(t *testing.T, contents map[string]string) string {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	of := func(name string) adminwire.Artifact {
		sum := sha256.Sum256([]byte(contents[name]))
		hash := hex.EncodeToString(sum[:])
		return adminwire.Artifact{JobID: "j", Name: name, SizeBytes: int64(len(contents[name])), SHA256: &hash, CreatedAt: adminwire.At(1_767_225_600_000)}
	}
	mux.HandleFunc("GET /api/v1/admin/runs/r/artifacts", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, adminwire.ArtifactList{Artifacts: []adminwire.Artifact{of("report.html")}})
	})
	mux.HandleFunc("GET /api/v1/admin/runs/r/artifacts/download", func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		answer(w, adminwire.ArtifactLink{Artifact: of(name), DownloadURL: "/blob?sig=hunter2&name=" + name})
	})
	mux.HandleFunc("GET /blob", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token was sent with the link")
		}
		content := contents[r.URL.Query().Get("name")]
		if r.URL.Query().Get("name") == "spoilt" {
			content = strings.ToUpper(content)
		}
		fmt.Fprint(w, content)
	})
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	return web.URL
}

func TestArtifactsAreDownloaded(t *testing.T) {
	server := artifactServer(t, map[string]string{"report.html": "<html>", "../../up/x.txt": "x", ".profile": "evil", "spoilt": "abc", "..": "up"})
	t.Chdir(t.TempDir())
	if err := os.WriteFile("there", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args   string
		code   int
		stdout string // contained
		stderr string
		file   string // that holds want
		want   string
	}{
		{args: "artifacts r", stdout: "report.html | 6     | j   | 2026-01-01T00:00:00Z | -"},
		{args: "artifacts r --json", stdout: `"name": "report.html"`},
		{args: "download r report.html", stderr: "report.html: 6 bytes", file: "report.html", want: "<html>"},
		{args: "download r report.html", code: 1, stderr: "report.html exists already; name another file with -o", file: "report.html", want: "<html>"},
		{args: "download r report.html -o there", file: "there", want: "<html>"},
		{args: "download r report.html -o -", stdout: "<html>"},
		{args: "download r ../../up/x.txt", file: "x.txt", want: "x"},
		{args: "download r .profile", code: 1, stderr: "name one with -o"},
		{args: "download r ..", code: 1, stderr: "name one with -o"},
		{args: "download r spoilt -o there", code: 1, stderr: "the hash mismatches", file: "there", want: "<html>"},
		{args: "download r report.html -o none/there", code: 1, stderr: "make file"},
		{args: "download r", code: 1, stderr: "accepts 2 arg(s)"},
	}
	for _, tt := range tests {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), append([]string{"kici", "admin", "runs"}, strings.Fields(tt.args)...), cli.Process{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
			Environ: []string{"KICI_ADMIN_URL=" + server, "KICI_ADMIN_TOKEN=t"}})
		if code != tt.code || !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
			t.Errorf("%s: %d\n%s\n%s", tt.args, code, &stdout, &stderr)
		}
		if strings.Contains(stdout.String()+stderr.String(), "hunter2") {
			t.Errorf("%s: the link was shown", tt.args)
		}
		if content, err := os.ReadFile(tt.file); tt.file != "" && (err != nil || string(content) != tt.want) {
			t.Errorf("%s: %s holds %q, %v", tt.args, tt.file, content, err)
		}
	}
	if left, _ := os.ReadDir("."); len(left) != 3 {
		t.Errorf("%d files are left", len(left))
	}
}
