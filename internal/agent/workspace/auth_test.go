package workspace

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeGit puts a program named git in front of PATH that records how it was called and fails as told.
func fakeGit(t *testing.T, stderr string) (environ []string, record func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	script := "#!/bin/bash\n{ echo \"argv: $*\"; env; set -- $GIT_SSH_COMMAND; for f in \"$3\" ${9#UserKnownHostsFile=}; do [ -f \"$f\" ] && { stat -c 'mode %a' \"$f\"; cat \"$f\"; }; done; } >>" + log +
		"\necho '" + stderr + "' >&2\nexit 128\n"
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return append(os.Environ(), "KICI_AGENT_TOKEN=kat_agent", "GIT_DIR=/elsewhere"), func() string {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

func TestPasswordsReachGitByTheEnvironmentOnly(t *testing.T) {
	tests := []struct {
		name, url, header string
		auth              *Auth
	}{
		{"token", "https://git.example.test/a/b.git", "eC1hY2Nlc3MtdG9rZW46czNjcmV0LXRva2Vu",
			&Auth{Kind: "basic", Secret: "s3cret-token"}},
		{"user and password", "https://git.example.test/a/b.git", "bWU6czNjcmV0LXRva2Vu",
			&Auth{Kind: "basic", User: "me", Secret: "s3cret-token"}},
		{"in the URL", "https://me:s3cret-token@git.example.test/a/b.git", "bWU6czNjcmV0LXRva2Vu", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			environ, record := fakeGit(t, "fatal: unable to access with s3cret-token and "+tt.header)
			w := openWorkspace(t, Options{Environ: environ})
			err := w.Clone(context.Background(), CloneSpec{URL: tt.url, Ref: "main", Auth: tt.auth})
			if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), tt.header) {
				t.Errorf("err = %v, want one without the secret", err)
			}
			calls := record()
			for line := range strings.Lines(calls) {
				if strings.HasPrefix(line, "argv:") && (strings.Contains(line, "s3cret") || strings.Contains(line, tt.header)) {
					t.Errorf("the secret stands in %q", line)
				}
			}
			for _, want := range []string{"GIT_CONFIG_KEY_0=http.https://git.example.test/.extraHeader\n",
				"GIT_CONFIG_VALUE_0=Authorization: Basic " + tt.header + "\n", "GIT_TERMINAL_PROMPT=0\n"} {
				if !strings.Contains(calls, want) {
					t.Errorf("git was not given %q", want)
				}
			}
			for _, not := range []string{"kat_agent", "/elsewhere"} {
				if strings.Contains(calls, not) {
					t.Errorf("git was given %q", not)
				}
			}
			if tree := grepTree(t, w.Dir(), "s3cret"); tree != "" {
				t.Errorf("the secret stands in %s", tree)
			}
		})
	}
}

// grepTree names a file that holds the text, or is "".
func grepTree(t *testing.T, dir, text string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			found = path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSSHKeysLieInPrivateFilesAndAreRemoved(t *testing.T) {
	tests := []struct {
		name, policy, hosts string
		want                []string
	}{
		{"accept-new", "accept-new", "", []string{"-o StrictHostKeyChecking=accept-new", "-o IdentitiesOnly=yes", "-o BatchMode=yes"}},
		{"pinned", "pinned", "git.example.test ssh-ed25519 AAAA\n", []string{"-o StrictHostKeyChecking=yes", "git.example.test ssh-ed25519 AAAA"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			environ, record := fakeGit(t, "no")
			tmp := t.TempDir()
			w := openWorkspace(t, Options{Environ: environ, TempDir: tmp})
			auth := &Auth{Kind: "ssh", Secret: "PRIVATE KEY", HostKeyPolicy: tt.policy, KnownHosts: tt.hosts}
			if err := w.Clone(context.Background(), CloneSpec{URL: "git@git.example.test:a/b.git", Ref: "main", Auth: auth}); err == nil {
				t.Fatal("no error")
			}
			calls := record()
			for _, want := range append(tt.want, "GIT_SSH_COMMAND=ssh -i ", "PRIVATE KEY\n", "mode 600") {
				if !strings.Contains(calls, want) {
					t.Errorf("git was not given %q:\n%s", want, calls)
				}
			}
			left, _ := os.ReadDir(tmp)
			if len(left) != 1 { // the workspace alone
				t.Errorf("left in the temp folder: %v", left)
			}
		})
	}
	err := openWorkspace(t, Options{}).Clone(context.Background(),
		CloneSpec{URL: "git@git.example.test:a/b.git", Auth: &Auth{Kind: "ssh", Secret: "K", HostKeyPolicy: "pinned"}})
	if err == nil || !strings.Contains(err.Error(), "known hosts") {
		t.Errorf("pinned without known hosts: %v", err)
	}
}
