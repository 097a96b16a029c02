package compile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestInputsAreTheFilesThatTheLockFileIsMadeOf(t *testing.T) {
	root := repository(t, map[string]string{
		".kici/workflows/ci.ts": "import { n } from '../../lib/n';\nimport { workflow, job } from '@kici-dev/sdk';\nexport default workflow('ci', { hashFiles: ['data/*'], jobs: [job('a', { runsOn: n, run: async () => {} })] });\n",
		"lib/n.ts":              "export const n = 'linux';\n",
		"data/seed.txt":         "x",
		"other.txt":             "x",
		"yarn.lock":             "# yarn\n",
	})
	res, err := Compile(t.Context(), Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{".kici/pnpm-lock.yaml", ".kici/workflows/ci.ts", "data/seed.txt", "lib/n.ts", "pnpm-lock.yaml", "yarn.lock"}
	if diff := cmp.Diff(want, res.Inputs); diff != "" {
		t.Errorf("inputs (-want +got):\n%s", diff)
	}
}

// TestWatchCompilesAfterEachChange changes one file after the other. The test says when the watcher
// looks, which is once for each.
func TestWatchCompilesAfterEachChange(t *testing.T) {
	root := repository(t, map[string]string{
		".kici/workflows/ci.ts": "import { n } from '../../lib/n';\nimport { workflow, job } from '@kici-dev/sdk';\nexport default workflow('ci', { hashFiles: ['data/*', 'deep/**/*.txt', 'absent/*'], jobs: [job('a', { runsOn: n, run: async () => {} })] });\n",
		"lib/n.ts":              "export const n = 'linux';\n",
		"data/seed.txt":         "x",
		"deep/other/a.md":       "x",
	})
	changes := []struct {
		name, file, text string
		wrong            bool
	}{
		{"a file that is imported from elsewhere", "lib/n.ts", "export const n = 'linux-arm64';\n", false},
		{"a mistake in it", "lib/n.ts", "export const n = ;\n", true},
		{"its correction", "lib/n.ts", "export const n = 'mac';\n", false},
		{"a file of hashFiles", "data/seed.txt", "more", false},
		{"a new file of hashFiles", "data/second.txt", "y", false},
		{"a file of hashFiles in a folder that had none", "deep/other/b.txt", "b", false},
		{"one in a folder that was not there", "absent/c.txt", "c", false},
		{"a new workflow", ".kici/workflows/two.ts", fmt.Sprintf(oneJob, "two"), false},
		{"a package manager's lock file", "pnpm-lock.yaml", "lockfileVersion: '9.0'\n", false},
		{"its change", ".kici/workflows/two.ts", fmt.Sprintf(oneJob, "three-and-more"), false},
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	type outcome struct {
		Result
		err error
	}
	outcomes, ended, ticks := make(chan outcome), make(chan error, 1), make(chan time.Time)
	go func() {
		ended <- watch(ctx, Options{Dir: root}, ticks, func(r Result, err error) { outcomes <- outcome{r, err} })
	}()
	if first := <-outcomes; first.err != nil || !first.Changed {
		t.Fatalf("first compilation: changed %v, %v", first.Changed, first.err)
	}
	for _, c := range changes {
		t.Log(c.name) // the last one told is the one that was not seen, when this hangs
		lay(t, root, map[string]string{c.file: c.text})
		// It may have looked while the change was half made, and then once more.
		for seen := false; !seen; {
			select {
			case ticks <- time.Time{}:
			case got := <-outcomes:
				var wrong Diagnostics
				seen = c.wrong && errors.As(got.err, &wrong) || !c.wrong && got.Changed
			}
		}
	}
	again := 0
	for range 5 {
		select {
		case ticks <- time.Time{}:
		case got := <-outcomes:
			if again++; again > 1 {
				t.Fatalf("compiled again without a change: %v", got.err)
			}
		}
	}
	stop := errors.New("enough")
	cancel(stop)
	if err := <-ended; !errors.Is(err, stop) {
		t.Errorf("ended with %v", err)
	}
}
