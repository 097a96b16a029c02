package bundle

import (
	"flag"
	"os"
	"testing"

	"kici/internal/author/sdk"
	"kici/internal/kit/script"
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
		files := map[string]string{"prebuilt/" + program + ".js": want}
		if program == "run" {
			code, err := script.Compile(l.standalone())
			if err != nil {
				t.Fatal(err)
			}
			files["prebuilt/run.code"] = sdk.Digest() + "\n" + string(code)
		}
		for path, want := range files {
			check(t, path, want)
		}
	}
}

func check(t *testing.T, path, want string) {
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not made of the embedded modules as they are: run `go generate ./internal/author/bundle` (%v)", path, err)
	}
}
