package compile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"kici/internal/core/lockfile"
)

// archive reads a txtar archive of a repository's files, whose last member, want, is what a test compares.
func archive(t *testing.T, path string) (a *txtar.Archive, files map[string]string, want string) {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for _, f := range a.Files {
		files[f.Name] = string(f.Data)
	}
	if last := len(a.Files) - 1; last < 1 || a.Files[last].Name != "want" {
		t.Fatalf("%s does not end with the member want", path)
	}
	want = files["want"]
	delete(files, "want")
	return a, files, want
}

// compareWant compares with the archive's want, or writes it with -update.
func compareWant(t *testing.T, path string, a *txtar.Archive, want, got string) {
	t.Helper()
	if *update {
		a.Files[len(a.Files)-1].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCorpus compiles small workflows, each of which shows one thing that an author can write and the lock file it
// makes, to the byte.
func TestCorpus(t *testing.T) {
	archives, err := filepath.Glob("testdata/corpus/*.txtar")
	if err != nil || len(archives) < 60 {
		t.Fatalf("%d archives: %v", len(archives), err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, files, want := archive(t, path)
			res, err := Compile(t.Context(), Options{Dir: repository(t, files)})
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Warnings) > 0 {
				t.Errorf("warnings: %v", Diagnostics(res.Warnings))
			}
			checkHash(t, res.Lock)
			if _, bad := lockfile.Load(res.Lock, "", ""); bad != nil {
				t.Error(bad)
			}
			compareWant(t, path, a, want, string(res.Lock)+"\n")
		})
	}
}
