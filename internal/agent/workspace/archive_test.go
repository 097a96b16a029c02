package workspace

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/testenv"
)

type file struct {
	name, content, link string
	kind                byte
}

func tarball(t testing.TB, files ...file) []byte {
	t.Helper()
	var out bytes.Buffer
	gz := gzip.NewWriter(&out)
	w := tar.NewWriter(gz)
	for _, f := range files {
		kind := f.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: f.name, Typeflag: kind, Size: int64(len(f.content)), Mode: 0o644, Linkname: f.link}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), gz.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// serve offers bytes by HTTP; the first failures requests fail.
func serve(t *testing.T, content []byte, failures int) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if failures > 0 {
			failures--
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write(content)
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/x?signature=s3cret"
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func TestRestoreUnpacksAnArchive(t *testing.T) {
	w := openWorkspace(t, Options{})
	raw := tarball(t, file{name: ".kici/", kind: tar.TypeDir}, file{name: "./.kici/a.ts", content: "a"},
		file{name: ".kici/deep/b.ts", content: "b"}, file{name: ".kici/link", link: "a.ts", kind: tar.TypeSymlink})
	if err := w.Restore(context.Background(), http.DefaultClient, "", Archive{URL: serve(t, raw, 2), Hash: hash(raw)}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{".kici/a.ts": "a", ".kici/deep/b.ts": "b", ".kici/link": "a"} {
		if got := read(t, w, name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	good := tarball(t, file{name: "a", content: "a"})
	tests := []struct {
		name, want string
		raw        []byte
		hash       string
		failures   int
	}{
		{"a path that leads out", "leads out", tarball(t, file{name: "../evil", content: "x"}), "", 0},
		{"an absolute path", "leads out", tarball(t, file{name: "/evil", content: "x"}), "", 0},
		{"a link that leads out", "unpack", tarball(t, file{name: "l", link: "../..", kind: tar.TypeSymlink}, file{name: "l/evil", content: "x"}), "", 0},
		{"other bytes than announced", "hash mismatch", good, hash([]byte("other")), 0},
		{"what is no archive", "unpack", []byte("plain"), "", 0},
		{"a server that fails three times", "502", good, "", 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			parent := t.TempDir()
			w := openWorkspace(t, Options{TempDir: parent})
			err := w.Restore(context.Background(), http.DefaultClient, "", Archive{URL: serve(t, tt.raw, tt.failures), Hash: tt.hash})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("err = %v, want it to contain %q and no signature", err, tt.want)
			}
			var mismatch *HashError
			if errors.As(err, &mismatch) != (tt.want == "hash mismatch") {
				t.Errorf("err = %#v", err)
			}
			if evil, _ := filepath.Glob(filepath.Join(parent, "evil")); evil != nil {
				t.Error("a file was written outside")
			}
			if left, _ := os.ReadDir(parent); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestDependenciesAreMovedIntoPlace(t *testing.T) {
	w := openWorkspace(t, Options{})
	if err := os.MkdirAll(filepath.Join(w.Dir(), ".kici/node_modules/old"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.Dir(), ".kici/package.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !w.HasPackage("") {
		t.Error("the package was not seen")
	}
	raw := tarball(t, file{name: ".kici/node_modules/new/i.js", content: "x"})
	if err := w.RestoreDependencies(context.Background(), http.DefaultClient, "", Archive{URL: serve(t, raw, 0), Hash: hash(raw)}); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(filepath.Join(w.Dir(), ".kici"))
	if len(entries) != 2 || read(t, w, ".kici/node_modules/new/i.js") != "x" {
		t.Errorf("entries = %v", entries)
	}
	if _, err := os.Stat(filepath.Join(w.Dir(), ".kici/node_modules/old")); err == nil {
		t.Error("the old dependencies are still there")
	}
}

func TestThePackageManagerIsFoundByTheRepository(t *testing.T) {
	tests := []struct {
		files map[string]string
		want  string
	}{
		{nil, "npm"},
		{map[string]string{"package.json": `{"packageManager":"pnpm@9"}`}, "pnpm"},
		{map[string]string{"yarn.lock": ""}, "yarn"},
		{map[string]string{".kici/pnpm-lock.yaml": "", ".kici/package.json": "{}"}, "pnpm"},
		{map[string]string{"package-lock.json": "", ".kici/yarn.lock": ""}, "npm"},
	}
	for _, tt := range tests {
		root := t.TempDir()
		for name, text := range tt.files {
			path := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if got := packageManager(root); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.files, got, tt.want)
		}
	}
}

// fakeNpm records how it was called and prints its token.
func fakeNpm(t *testing.T, exit string) (record string) {
	t.Helper()
	dir := t.TempDir()
	record = filepath.Join(dir, "calls")
	script := "#!/bin/bash\n{ echo \"argv: $*\"; env; cat .npmrc 2>/dev/null; } >" + record +
		"\necho \"token is $KICI_NPM_TOKEN_12345678_0\"\nmkdir -p node_modules\nexit " + exit + "\n"
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return record
}

func TestInstallKeepsRegistryTokensOutOfFilesAndOutput(t *testing.T) {
	for _, exit := range []string{"0", "1"} {
		record := fakeNpm(t, exit)
		w := openWorkspace(t, Options{})
		kici := filepath.Join(w.Dir(), ".kici")
		if err := errors.Join(os.MkdirAll(kici, 0o755), os.WriteFile(filepath.Join(kici, ".npmrc"), []byte("committed=true"), 0o644)); err != nil {
			t.Fatal(err)
		}
		var log []string
		err := w.InstallDependencies(context.Background(), "", Install{
			JobID: "1234567890", Env: []string{"PATH=" + os.Getenv("PATH")}, Secrets: map[string]string{"EXTRA": "extra-secret"},
			Registries: []Registry{{URL: "https://npm.example.test/x/", Scope: "@acme", AlwaysAuth: true, Token: "npm-secret"}},
			Log:        func(line string) { log = append(log, line) },
		})
		if (err == nil) != (exit == "0") {
			t.Errorf("exit %s: err = %v", exit, err)
		}
		raw, _ := os.ReadFile(record)
		calls := string(raw)
		for _, want := range []string{"install --cache ", "--no-audit --no-fund --ignore-scripts", "KICI_NPM_TOKEN_12345678_0=npm-secret", "EXTRA=extra-secret",
			"committed=true\n@acme:registry=https://npm.example.test/x/\n//npm.example.test/x/:_authToken=${KICI_NPM_TOKEN_12345678_0}\nalways-auth=true\n"} {
			if !strings.Contains(calls, want) {
				t.Errorf("npm was not given %q:\n%s", want, calls)
			}
		}
		if text := strings.Join(log, "\n"); strings.Contains(text, "npm-secret") || !strings.Contains(text, "token is ***REDACTED***") {
			t.Errorf("log = %s", text)
		}
		if got := read(t, w, ".kici/.npmrc"); got != "committed=true" {
			t.Errorf(".npmrc = %q", got)
		}
	}
}

func TestInstallWithTheRealPackageManager(t *testing.T) {
	testenv.Need(t, "npm")
	w := openWorkspace(t, Options{})
	for name, text := range map[string]string{".kici/package.json": `{"dependencies":{"local":"file:./local"}}`,
		".kici/local/package.json": `{"name":"local","version":"1.0.0"}`} {
		path := filepath.Join(w.Dir(), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	err := w.InstallDependencies(context.Background(), "", Install{Env: os.Environ(), Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	read(t, w, ".kici/node_modules/local/package.json")
}

func sealOverlay(t *testing.T, plain []byte) (sealed []byte, o Overlay) {
	t.Helper()
	cli, err1 := ecdh.X25519().GenerateKey(rand.Reader)
	server, err2 := ecdh.X25519().GenerateKey(rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	shared, err := cli.ECDH(server.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	key, err := hkdf.Key(sha256.New, shared, nil, "kici-upload-encryption", 32)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := aes.NewCipher(key)
	gcm, _ := cipher.NewGCM(block)
	iv := make([]byte, 12)
	box := gcm.Seal(nil, iv, plain, nil)
	sealed = append(append(iv, box[len(box)-16:]...), box[:len(box)-16]...)
	public, err1 := x509.MarshalPKIXPublicKey(cli.PublicKey())
	private, err2 := x509.MarshalPKCS8PrivateKey(server)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return sealed, Overlay{PublicKey: base64.StdEncoding.EncodeToString(public), PrivateKey: base64.StdEncoding.EncodeToString(private)}
}

func TestAnOverlayReplacesAndDeletesFiles(t *testing.T) {
	manifest := func(sums map[string]string, deletions ...string) string {
		raw, _ := json.Marshal(map[string]any{"sha": "x", "deletions": deletions, "checksums": sums})
		return string(raw)
	}
	sumB := hash([]byte("new"))
	tests := []struct{ name, manifest, want string }{
		{"good", manifest(map[string]string{"b.txt": sumB}, "a.txt", "dir"), ""},
		{"wrong checksum", manifest(map[string]string{"b.txt": hash([]byte("x"))}), "checksum differs"},
		{"a deletion outside", manifest(nil, "../kept"), "escapes"},
		{"no manifest", "", "manifest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			parent := t.TempDir()
			w := openWorkspace(t, Options{TempDir: parent})
			for _, name := range []string{"a.txt", "b.txt", "dir/c.txt", "../kept"} {
				path := filepath.Join(w.Dir(), name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("old"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			files := []file{{name: "b.txt", content: "new"}}
			if tt.manifest != "" {
				files = append(files, file{name: overlayDir + "/manifest.json", content: tt.manifest})
			}
			sealed, o := sealOverlay(t, tarball(t, files...))
			o.URL = serve(t, sealed, 0)
			err := w.ApplyOverlay(context.Background(), http.DefaultClient, "", o)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("err = %v, want %q", err, tt.want)
				}
				if _, err := os.Stat(filepath.Join(parent, "kept")); err != nil {
					t.Error("a file outside was deleted")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if read(t, w, "b.txt") != "new" {
				t.Error("b.txt was not replaced")
			}
			out, _ := exec.Command("ls", "-A", w.Dir()).Output()
			if string(out) != "b.txt\n" {
				t.Errorf("left: %s", out)
			}
		})
	}
	sealed, o := sealOverlay(t, []byte("x"))
	sealed[20] ^= 1
	o.URL = serve(t, sealed, 0)
	if err := openWorkspace(t, Options{}).ApplyOverlay(context.Background(), http.DefaultClient, "", o); err == nil || !strings.Contains(err.Error(), "decrypted") {
		t.Errorf("tampered: %v", err)
	}
}
