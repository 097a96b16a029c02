package workspace

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/testenv"
)

// lay writes files and links (a text that begins with "-> ") below a folder.
func lay(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		target, link := strings.CutPrefix(text, "-> ")
		write := func() error { return os.WriteFile(path, []byte(text), 0o644) }
		if link {
			write = func() error { return os.Symlink(target, path) }
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
}

// packed lists the files and links of what a function packs, after it was unpacked into another folder.
func packed(t *testing.T, pack func(context.Context, string) (*os.File, Packed, error)) []string {
	t.Helper()
	f, p, err := pack(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Unpack(t.Context(), f, dir); err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != p.Size || len(p.Hash) != 64 {
		t.Errorf("packed %+v, on disk %d bytes", p, info.Size())
	}
	var list []string
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err == nil && !d.IsDir() {
			list = append(list, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestSourceIsPackedWithoutPackages(t *testing.T) {
	w := openWorkspace(t, Options{})
	lay(t, w.Dir(), map[string]string{"a.txt": "a", ".kici/workflows/ci.ts": "x", ".kici/kici.lock.json": "{}", ".kici/link": "-> workflows/ci.ts",
		".kici/node_modules/m/i.js": "x", ".kici/tools/node_modules/n/i.js": "x"})
	want := []string{".kici/kici.lock.json", ".kici/link", ".kici/workflows/ci.ts"}
	if d := cmp.Diff(want, packed(t, w.PackSource)); d != "" {
		t.Error(d)
	}
}

func TestDependenciesArePackedAsTheirPackageManagerLaysThem(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"nothing installed", nil, nil},
		{"npm", map[string]string{".kici/node_modules/m/i.js": "x", "node_modules/other/i.js": "x"}, []string{".kici/node_modules/m/i.js"}},
		{"pnpm", map[string]string{"pnpm-lock.yaml": "", "node_modules/.pnpm/m@1/node_modules/m/i.js": "x", "node_modules/top/i.js": "x",
			".kici/node_modules/m": "-> ../../node_modules/.pnpm/m@1/node_modules/m"},
			[]string{".kici/node_modules/m", "node_modules/.pnpm/m@1/node_modules/m/i.js"}},
		{"yarn", map[string]string{"yarn.lock": "", "node_modules/top/i.js": "x", ".kici/node_modules/.yarn-state.yml": "x"},
			[]string{".kici/node_modules/.yarn-state.yml", "node_modules/top/i.js"}},
		{"neighbours", map[string]string{".kici/node_modules/@acme/one": "-> ../../../packages/one", ".kici/node_modules/gone": "-> ../../nowhere",
			".kici/node_modules/out": "-> /etc", "packages/one/dist/i.js": "x", "packages/one/node_modules/two": "-> ../../two",
			"packages/two/dist/i.js": "x", "packages/two/node_modules/one": "-> ../../one", "packages/three/i.js": "x"},
			[]string{".kici/node_modules/@acme/one", ".kici/node_modules/gone", ".kici/node_modules/out", "packages/one/dist/i.js",
				"packages/one/node_modules/two", "packages/two/dist/i.js", "packages/two/node_modules/one"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := openWorkspace(t, Options{})
			lay(t, w.Dir(), tt.files)
			if d := cmp.Diff(tt.want, packed(t, w.PackDependencies)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestTimesAndModesSurviveAnArchive(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	lay(t, from, map[string]string{"run.sh": "x"})
	when := time.Unix(1_600_000_000, 0)
	must(t, os.Chmod(filepath.Join(from, "run.sh"), 0o750))
	must(t, os.Chtimes(filepath.Join(from, "run.sh"), when, when))
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	must(t, err)
	defer f.Close()
	_, err = Pack(t.Context(), f, []Tree{{Path: from, Name: "in"}, {Path: filepath.Join(from, "missing"), Name: "missing"}})
	must(t, err)
	_, err = f.Seek(0, 0)
	must(t, err)
	must(t, Unpack(t.Context(), f, to))
	info, err := os.Stat(filepath.Join(to, "in", "run.sh"))
	must(t, err)
	if info.Mode().Perm() != 0o750 || !info.ModTime().Equal(when) {
		t.Errorf("unpacked as %v of %v", info.Mode(), info.ModTime())
	}
}

func TestPackingEndsWithItsContext(t *testing.T) {
	w := openWorkspace(t, Options{})
	lay(t, w.Dir(), map[string]string{".kici/a": "x"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := w.PackSource(ctx, ""); err == nil {
		t.Error("a cancelled job was packed")
	}
}

func TestUploadNamesTheHostAlone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	defer server.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	must(t, err)
	defer f.Close()
	for _, url := range []string{server.URL + "/x?sig=geheim", gone.URL + "/x?sig=geheim", "http://host/%zz?sig=geheim"} {
		if err := Upload(t.Context(), http.DefaultClient, url, f); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestDependenciesOutsideOfTheRepositoryAreRefused(t *testing.T) {
	tests := []struct {
		files map[string]string
		where string
		want  string // "" for none
	}{
		{nil, "^1.0.0", ""},
		{nil, "npm:other@1", ""},
		{nil, "file:../lib", "is not in the repository"},
		{map[string]string{"lib/package.json": "{}"}, "file:../lib", ""},
		{nil, "link:../../elsewhere", "is outside of the repository"},
		{nil, "portal:/opt/lib", "is outside of the repository"},
		{nil, "workspace:*", "needs a workspace"},
		{map[string]string{"pnpm-workspace.yaml": ""}, "workspace:*", ""},
		{map[string]string{"package.json": `{"workspaces":[".kici"]}`}, "workspace:^", ""},
	}
	for _, tt := range tests {
		root := t.TempDir()
		lay(t, root, map[string]string{".kici/package.json": `{"dependencies":{"lib":"` + tt.where + `"}}`})
		lay(t, root, tt.files)
		err := checkNeighbours(root, filepath.Join(root, ".kici"))
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.where, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), `dependency "lib" of .kici/package.json (`+tt.where+") "+tt.want)):
			t.Errorf("%s: %v, want %s", tt.where, err, tt.want)
		}
	}
}

// TestNeighboursAreBuiltWithoutCredentials uses the real package manager, which makes the link.
func TestNeighboursAreBuiltWithoutCredentials(t *testing.T) {
	testenv.Need(t, "npm")
	w := openWorkspace(t, Options{})
	lay(t, w.Dir(), map[string]string{".kici/package.json": `{"dependencies":{"lib":"file:../lib"}}`,
		"lib/package.json": `{"name":"lib","version":"1.0.0","scripts":{"build":"echo \"token ${EXTRA:-none}\" && echo built > out.js"}}`})
	var log []string
	err := w.InstallDependencies(t.Context(), "", Install{JobID: "1", Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()},
		Secrets: map[string]string{"EXTRA": "extra-secret"}, Log: func(line string) { log = append(log, line) }})
	must(t, err)
	if read(t, w, "lib/out.js") != "built\n" || !slices.Contains(log, "token none") {
		t.Errorf("log %q", log)
	}
	if got := packed(t, w.PackDependencies); !slices.Contains(got, "lib/out.js") || !slices.Contains(got, ".kici/node_modules/lib") {
		t.Errorf("packed %q", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
