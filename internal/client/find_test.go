package client

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/core/adminwire"
)

// dataFolder is what a server on this machine leaves.
func dataFolder(t *testing.T, url string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"server.json": `{"url":"` + url + `"}`, "admin.token": "local-token\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConnectFindsServerAndToken(t *testing.T) {
	dir := dataFolder(t, "http://127.0.0.1:4100")
	empty := t.TempDir()
	tests := []struct {
		name        string
		where       Where
		env         map[string]string
		base, token string // "" expects the error
		err         string
	}{
		{"local files", Where{DataDir: dir}, nil, "http://127.0.0.1:4100", "local-token", ""},
		{"data folder of the environment", Where{}, map[string]string{"KICI_DATA_DIR": dir}, "http://127.0.0.1:4100", "local-token", ""},
		{"variables", Where{DataDir: empty}, map[string]string{"KICI_ADMIN_URL": "https://ci.example.org/", "KICI_ADMIN_TOKEN": "v"}, "https://ci.example.org", "v", ""},
		{"flags win", Where{URL: "http://a:1", Token: "f", DataDir: dir}, map[string]string{"KICI_ADMIN_URL": "http://b:1", "KICI_ADMIN_TOKEN": "v"}, "http://a:1", "f", ""},
		{"another name of this machine", Where{URL: "http://localhost:4100/", DataDir: dir}, nil, "http://localhost:4100", "local-token", ""},
		{"local token stays here", Where{URL: "http://ci.example.org:4100", DataDir: dir}, nil, "", "", "no admin token for http://ci.example.org:4100"},
		{"local token stays with its port", Where{URL: "http://127.0.0.1:4200", DataDir: dir}, nil, "", "", "no admin token"},
		{"no server", Where{DataDir: empty}, nil, "", "", "no server runs with the data folder"},
		{"no URL at all", Where{URL: "ci.example.org", Token: "x", DataDir: empty}, nil, "", "", "it must look like http://127.0.0.1:4000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.where.Env = func(name string) string { return tt.env[name] }
			c, err := Connect(tt.where)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "local-token") {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || c.base != tt.base || c.token != tt.token {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

func TestErrorsHoldTheServersWordsAndNeverTheToken(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter){
		"/api/v1/admin/runs/refused": func(w http.ResponseWriter) {
			w.WriteHeader(400)
			_, _ = w.Write([]byte(`{"error":"Validation error","details":[{"path":"a.b","message":"is wrong"}]}`))
		},
		"/api/v1/admin/runs/proxy":   func(w http.ResponseWriter) { w.WriteHeader(502); _, _ = w.Write([]byte("<html>")) },
		"/api/v1/admin/runs/strange": func(w http.ResponseWriter) { _, _ = w.Write([]byte("hello")) },
		"/api/v1/admin/runs/a%2Fb": func(w http.ResponseWriter) {
			w.WriteHeader(404)
			_, _ = w.Write([]byte(`{"error":"Run a/b not found"}`))
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answers[r.URL.EscapedPath()](w) }))
	c, err := New(server.URL, "planted-token")
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"refused": "HTTP 400: Validation error\n  a.b: is wrong",
		"proxy":   "HTTP 502: Bad Gateway",
		"strange": "is not what this release expects",
		"a/b":     "HTTP 404: Run a/b not found",
	} {
		_, err := c.Run(t.Context(), id)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v, want %q", id, err, want)
		}
		if NotFound(err) != (id == "a/b") {
			t.Errorf("%s: not found = %v", id, NotFound(err))
		}
	}
	server.Close()
	if _, err := c.Run(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "the server at "+server.URL+" does not answer") {
		t.Errorf("server that is away: %v", err)
	}
}

func TestPathsAreEscaped(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.URL.EscapedPath() + " " + r.Header.Get("Authorization")
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	c, err := New(server.URL+"/base/", "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetSecret(t.Context(), "default", "aws/prod", "K", "v"); err != nil {
		t.Fatal(err)
	}
	if got != "PUT /base/api/v1/admin/secrets/default/aws%2Fprod/K Bearer t" {
		t.Error(got)
	}
	if _, err := c.CreateSource(t.Context(), adminwire.SourceSettings{OrgID: "default"}); err != nil || got != "POST /base/api/v1/admin/generic-sources Bearer t" {
		t.Error(got, err)
	}
}
