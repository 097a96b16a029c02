package vectors

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A room that is said to check a kind has a test that names it.
func TestEveryKindIsCheckedWhereItIsSaidToBe(t *testing.T) {
	for file, kinds := range rooms {
		for kind, room := range kinds {
			paths, err := filepath.Glob(filepath.Join(root(), "internal", filepath.FromSlash(room), "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			checked := false
			for _, path := range paths {
				raw, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				text := string(raw)
				checked = checked || strings.Contains(text, `"`+file+`"`) && strings.Contains(text, `"`+kind+`"`)
			}
			if !checked {
				t.Errorf("no test of %s names kind %q of %s", room, kind, file)
			}
		}
	}
}
