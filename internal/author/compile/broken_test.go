package compile

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what the tests get as what they want")

// TestMistakesAreNamedWithTheirPlace compiles broken repositories. Each archive holds the files and, under the name
// want, what the author reads.
func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	archives, err := filepath.Glob("testdata/broken/*.txtar")
	if err != nil || len(archives) < 20 {
		t.Fatalf("%d archives: %v", len(archives), err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files, want := map[string]string{}, ""
			for _, f := range archive.Files {
				if f.Name == "want" {
					want = string(f.Data)
				} else {
					files[f.Name] = string(f.Data)
				}
			}
			root := repository(t, files)
			_, err = Compile(t.Context(), Options{Dir: root})
			var wrong Diagnostics
			if !errors.As(err, &wrong) {
				t.Fatalf("got %v, want diagnostics", err)
			}
			if _, err := os.Stat(filepath.Join(root, ".kici", LockName)); err == nil {
				t.Error("a lock file was written")
			}
			got := wrong.Error() + "\n"
			if *update {
				archive.Files[len(archive.Files)-1].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
		})
	}
}
