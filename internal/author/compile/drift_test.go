package compile

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/lockfile"
)

func TestLockfileHashIsOfTheFirstPackageLock(t *testing.T) {
	root := repository(t, map[string]string{".kici/workflows/ci.ts": fmt.Sprintf(oneJob, "ci"), "package-lock.json": "{}"})
	// Each goes before those above it. The root's lock of npm is the repository's own and never counts.
	for _, add := range []struct{ file, content, prefix string }{
		{"", "", ""},
		{".kici/package-lock.json", "{}\r\n", "npm"},
		{".kici/yarn.lock", "# yarn lockfile v1\n", "yarn-classic"},
		{"yarn.lock", "__metadata:\n  version: 8\n", "yarn-berry"},
		{".kici/pnpm-lock.yaml", "lockfileVersion: '6.0'\n", "pnpm"},
		{"pnpm-lock.yaml", "lockfileVersion: '9.0'\n", "pnpm"},
	} {
		want := ""
		if add.file != "" {
			lay(t, root, map[string]string{add.file: add.content})
			want = lockfile.DepLockHash(add.prefix, add.content)
		}
		res, err := Compile(t.Context(), Options{Dir: root})
		if err != nil {
			t.Fatal(err)
		}
		var doc struct{ LockfileHash string }
		if err := json.Unmarshal(res.Lock, &doc); err != nil {
			t.Fatal(err)
		}
		if doc.LockfileHash != want || !res.Changed {
			t.Errorf("with %s: hash %q, want %q; changed %v", add.file, doc.LockfileHash, want, res.Changed)
		}
	}
}

// TestCheckFindsDrift changes one thing at a time. What an agent would refuse, or a server decide otherwise, is drift.
func TestCheckFindsDrift(t *testing.T) {
	source := "import { label } from '../lib/label';\nimport { workflow, job } from '@kici-dev/sdk';\nexport default workflow('ci', { hashFiles: ['data/*'], jobs: [job('a', { runsOn: label, run: async () => {} })] });\n"
	tests := []struct {
		name, file, content string
		drift               bool
	}{
		{"nothing", "README.md", "text", false},
		{"a comment in the workflow", ".kici/workflows/ci.ts", source + "// more\n", true},
		{"its line ends", ".kici/workflows/ci.ts", "import { label } from '../lib/label';\r\nimport { workflow, job } from '@kici-dev/sdk';\r\nexport default workflow('ci', { hashFiles: ['data/*'], jobs: [job('a', { runsOn: label, run: async () => {} })] });\r\n", false},
		{"a file of hashFiles", "data/seed.txt", "other", true},
		{"a new file of hashFiles", "data/new.txt", "", true},
		{"an import that changes a value", ".kici/lib/label.ts", "export const label = 'mac';\n", true},
		{"an import that changes none", ".kici/lib/label.ts", "// only words\nexport const label = 'linux';\n", false},
		{"a package lock", "pnpm-lock.yaml", "x", true},
		{"the lock file itself", ".kici/" + LockName, "{}", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := repository(t, map[string]string{".kici/workflows/ci.ts": source, ".kici/lib/label.ts": "export const label = 'linux';\n", "data/seed.txt": "seed"})
			if _, err := Compile(t.Context(), Options{Dir: root}); err != nil {
				t.Fatal(err)
			}
			lay(t, root, map[string]string{tt.file: tt.content})
			before := read(t, filepath.Join(root, ".kici", LockName))
			res, err := Compile(t.Context(), Options{Dir: root, Check: true})
			if err != nil || res.Changed != tt.drift {
				t.Errorf("changed %v, want %v (%v)", res.Changed, tt.drift, err)
			}
			if read(t, filepath.Join(root, ".kici", LockName)) != before {
				t.Error("a check wrote the lock file")
			}
		})
	}
}

// A lock file that was laid out anew says what it said, so it stays as it is.
func TestTheLayoutOfALockFileIsNoDrift(t *testing.T) {
	for _, tt := range []struct {
		name    string
		layOut  func(string) string
		changed bool
	}{
		{"line ends of another system", func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }, false},
		{"a newline at the end", func(s string) string { return s + "\n" }, false},
		{"lists laid out otherwise", func(s string) string { return strings.ReplaceAll(s, "\"triggers\": []", "\"triggers\": [\n ]") }, false},
		{"a byte order mark", func(s string) string { return "\ufeff" + s }, true},
		{"other members", func(s string) string { return strings.ReplaceAll(s, "linux", "linux ") }, true},
		{"half of it", func(s string) string { return s[:len(s)/2] }, true},
	} {
		root := repository(t, map[string]string{".kici/workflows/ci.ts": "import { workflow, job } from '@kici-dev/sdk';\nexport default workflow('ci', { jobs: [job('a', { runsOn: 'linux', run: async () => {} })] });\n"})
		res, err := Compile(t.Context(), Options{Dir: root})
		if err != nil {
			t.Fatal(err)
		}
		laidOut := tt.layOut(string(res.Lock))
		if laidOut == string(res.Lock) {
			t.Fatalf("%s: nothing was changed", tt.name)
		}
		lay(t, root, map[string]string{".kici/" + LockName: laidOut})
		for _, check := range []bool{true, false} {
			if res, err = Compile(t.Context(), Options{Dir: root, Check: check}); err != nil || res.Changed != tt.changed {
				t.Errorf("%s: changed %v, want %v (%v)", tt.name, res.Changed, tt.changed, err)
			}
		}
		if left := read(t, res.Path); (left != laidOut) != tt.changed {
			t.Errorf("%s: written %v, want %v", tt.name, left != laidOut, tt.changed)
		}
	}
}

// Patterns that cover the whole folder of workflows cover the lock file, too, which would never come to rest.
func TestTheLockFileIsNoHashFileOfItsOwn(t *testing.T) {
	for _, kiciDir := range []string{".kici", "ci/[flows]"} {
		root := repository(t, map[string]string{
			kiciDir + "/workflows/ci.ts": "import { workflow } from '@kici-dev/sdk';\nexport default workflow('ci', { hashFiles: ['.kici/**', 'ci/**', '*'], jobs: [] });\n",
			kiciDir + "/tools/seed.txt":  "seed",
		})
		for _, changed := range []bool{true, false} {
			res, err := Compile(t.Context(), Options{Dir: root, KiciDir: kiciDir})
			if err != nil || res.Changed != changed {
				t.Fatalf("%s: changed %v, want %v (%v)", kiciDir, res.Changed, changed, err)
			}
			want := []string{kiciDir + "/tools/seed.txt", kiciDir + "/workflows/ci.ts"}
			if diff := cmp.Diff(want, res.Sources[0].Hashed); diff != "" {
				t.Error(diff)
			}
		}
	}
}
