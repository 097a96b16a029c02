package compile

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/lockfile"
	"kici/internal/testenv"
	"kici/internal/vectors"
)

// repository makes a repository of files by path and gives its root.
func repository(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	lay(t, root, files)
	return root
}

// lay puts files down by their path in the repository.
func lay(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		// Put in place whole: somebody may be watching.
		half := filepath.Join(t.TempDir(), "half")
		if err := errors.Join(os.WriteFile(half, []byte(text), 0o644), os.Rename(half, path)); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// withoutPlaces indents a lock file again without its source locations and without the hash that covers them. The order
// of keys stays, so that it is compared, too.
func withoutPlaces(t *testing.T, lock string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(lock))
	dec.UseNumber()
	var b bytes.Buffer
	if err := json.Indent(&b, rewrite(t, dec), "", "  "); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// rewrite copies one JSON value without the members sourceLocation, and without contentHash where lockfileHash or
// schemaVersion stand beside it.
func rewrite(t *testing.T, dec *json.Decoder) []byte {
	t.Helper()
	token, err := dec.Token()
	if err != nil {
		t.Fatal(err)
	}
	delim, ok := token.(json.Delim)
	if !ok {
		raw, err := encode(token)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	var parts [][]byte
	top := false
	for dec.More() {
		if delim == '[' {
			parts = append(parts, rewrite(t, dec))
			continue
		}
		key, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		value := rewrite(t, dec)
		top = top || key == "schemaVersion"
		if key == "sourceLocation" || key == "contentHash" && top {
			continue
		}
		name, err := encode(key)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, append(append(name, ':'), value...))
	}
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	closer := map[json.Delim]byte{'{': '}', '[': ']'}[delim]
	return append(append([]byte{byte(delim)}, bytes.Join(parts, []byte(","))...), closer)
}

// TestSampleWorkflowsCompileToTheSampleLocks compiles workflows of which another compiler of the same format made lock
// files, and compares all but the places, which that compiler counts in transpiled text. The repository has zod
// installed, but no package.json and no lock file of a package manager. A sample that is put beside the others is
// compiled without a word here: NAME.lock.json says itself of which files it was made, a file by itself is NAME.ts.
func TestSampleWorkflowsCompileToTheSampleLocks(t *testing.T) {
	sampleLocks(t, func(t *testing.T, root string) { installZod(t, root) })
}

// The embedded schema builder answers to `zod` where that is not installed, and leads to the same lock files.
func TestSampleWorkflowsCompileWithoutAnInstallation(t *testing.T) {
	sampleLocks(t, func(*testing.T, string) {})
}

func sampleLocks(t *testing.T, prepare func(*testing.T, string)) {
	locks, err := filepath.Glob(vectors.Samples("locks", "*.lock.json"))
	if err != nil || len(locks) == 0 {
		t.Skipf("no sample locks: %v", err)
	}
	root := t.TempDir()
	prepare(t, root)
	for _, lock := range locks {
		name := strings.TrimSuffix(filepath.Base(lock), ".lock.json")
		t.Run(name, func(t *testing.T) {
			if name == "init-runner" || name == "generator-drift" {
				testenv.Need(t, "node") // these import node's own modules
			}
			want := read(t, lock)
			fill(t, root, sampleFiles(t, name, want))
			got, err := Compile(t.Context(), Options{Dir: root})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Warnings) > 0 {
				t.Errorf("warnings: %v", Diagnostics(got.Warnings))
			}
			checkHash(t, got.Lock)
			if onDisk := read(t, got.Path); onDisk != string(got.Lock) {
				t.Error("the file on disk differs from the result")
			}
			have := string(got.Lock)
			if name == "capture" {
				want, have = withoutStaleHashes(want), withoutStaleHashes(have)
			}
			if diff := cmp.Diff(withoutPlaces(t, want), withoutPlaces(t, have)); diff != "" {
				t.Errorf("lock (-want +got):\n%s", diff)
			}
		})
	}
}

// fill leaves nothing but the files and node_modules in a repository.
func fill(t *testing.T, root string, files map[string]string) {
	t.Helper()
	old, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range old {
		if e.Name() != "node_modules" {
			if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	lay(t, root, files)
}

// sampleFiles are the files of which a sample lock was made, by their path in the repository.
func sampleFiles(t *testing.T, name, lock string) map[string]string {
	t.Helper()
	var doc struct {
		Workflows []struct{ Source struct{ File string } }
	}
	if err := json.Unmarshal([]byte(lock), &doc); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, w := range doc.Workflows {
		files[w.Source.File] = filepath.Base(w.Source.File)
	}
	for path, source := range files {
		if len(files) == 1 {
			source = name + filepath.Ext(source) // its lock may have been made under another file name
		}
		files[path] = read(t, vectors.Samples("workflows", source))
	}
	if name == "build-caches" {
		files[".kici/package.json"] = read(t, vectors.Samples("workflows", "build-caches.package.json"))
		files[".kici/package-lock.json"] = read(t, vectors.Samples("workflows", "build-caches.package-lock.json"))
		files[".kici/node_modules/ms/package.json"] = `{"name":"ms","main":"index.js"}`
		files[".kici/node_modules/ms/index.js"] = `module.exports = (text) => parseInt(text, 10)`
		files["data/seed.txt"] = "seed\n"
	}
	return files
}

// withoutStaleHashes drops the hashes of the workflows: the sample was made of several states of its source.
func withoutStaleHashes(lock string) string {
	var b strings.Builder
	for line := range strings.Lines(lock) {
		if !strings.HasPrefix(line, `      "contentHash"`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func checkHash(t *testing.T, lock []byte) {
	t.Helper()
	var doc struct{ ContentHash string }
	if err := json.Unmarshal(lock, &doc); err != nil {
		t.Fatal(err)
	}
	want, err := lockfile.FileHash(lock)
	if err != nil || doc.ContentHash != want {
		t.Errorf("contentHash %s, want %s (%v)", doc.ContentHash, want, err)
	}
}
