package compile

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the tests get as what they want")

// withoutLine are the mistakes of which there is no line to show: a value that is no error does not know where it was
// thrown, and what is open at the end of a file has nothing to stand below.
var withoutLine = []string{"no such region", "Unterminated string literal"}

// TestMistakesAreNamedWithTheirPlace compiles broken repositories. Each archive holds the files and, under the name
// want, what the author reads.
func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	archives, err := filepath.Glob("testdata/broken/*.txtar")
	if err != nil || len(archives) < 70 {
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
			for _, d := range wrong {
				if (d.Line == 0 || d.Column == 0 || d.Frame == "") && !slices.Contains(withoutLine, d.Text) {
					t.Errorf("no line is shown for: %s", d)
				}
			}
			compareWant(t, path, a, want, wrong.Error()+"\n")
		})
	}
}
