package compile

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			a, files, want := archive(t, path)
			root := repository(t, files)
			_, err := Compile(t.Context(), Options{Dir: root})
			var wrong Diagnostics
			if !errors.As(err, &wrong) {
				t.Fatalf("got %v, want diagnostics", err)
			}
			if _, err := os.Stat(filepath.Join(root, ".kici", LockName)); err == nil {
				t.Error("a lock file was written")
			}
			compareWant(t, path, a, want, wrong.Error()+"\n")
		})
	}
}
