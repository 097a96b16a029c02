package bundle

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write what the tests get as what they want")

// A stale library would not be used, but made again in every process.
func TestPrebuiltLibrariesAreCurrent(t *testing.T) {
	for program := range programs {
		l, err := makeLibrary(program)
		if err != nil {
			t.Fatal(err)
		}
		want, err := prebuiltText(l)
		if err != nil {
			t.Fatal(err)
		}
		path := "prebuilt/" + program + ".js"
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not made of the embedded modules as they are: run `go generate ./internal/author/bundle` (%v)", path, err)
		}
	}
}
