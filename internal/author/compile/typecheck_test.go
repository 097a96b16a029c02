package compile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/testenv"
)

// fakeTypeScript installs a compiler of types that prints a text and ends with a code.
func fakeTypeScript(t *testing.T, root, text, code string) {
	t.Helper()
	path := filepath.Join(root, "node_modules/.bin/tsc")
	lay(t, root, map[string]string{"node_modules/.bin/tsc": "#!/bin/sh\ncat <<'END'\n" + text + "END\nexit " + code + "\n"})
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestTypeErrorsAreMistakesLikeOthers(t *testing.T) {
	testenv.Need(t, "sh")
	tests := []struct {
		name, text, code, want string
	}{
		{"nothing", "", "0", ""},
		{"errors with a place, with more lines, and without a place", ".kici/workflows/ci.ts(2,16): error TS2345: Argument of type 'number' is not assignable.\n  Type 'number' is no text.\n.kici/lib/x.ts(7,1): error TS1005: ';' expected.\nerror TS18003: No inputs were found.\n", "2",
			"error [TS18003]: No inputs were found.\n" +
				".kici/lib/x.ts:7:1 error [TS1005]: ';' expected.\n" +
				".kici/workflows/ci.ts:2:16 error [TS2345]: Argument of type 'number' is not assignable.\n    Type 'number' is no text.\n    export default workflow('ci', { on: push({ branches: 'main' }), jobs: [job('a', { runsOn: 'linux', steps: [step('s', async () => {})] })] });\n                   ^"},
		{"it cannot start", "out of memory\n", "134", "check types: exit status 134: out of memory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := repository(t, map[string]string{".kici/workflows/ci.ts": strings.ReplaceAll(oneJob, "%s", "ci"), ".kici/tsconfig.json": "{}"})
			fakeTypeScript(t, root, tt.text, tt.code)
			res, err := Compile(t.Context(), Options{Dir: root, Typecheck: true})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, err := os.Stat(filepath.Join(root, ".kici", LockName)); (err == nil) != (tt.want == "") {
				t.Errorf("lock file: %v, changed %v", err, res.Changed)
			}
		})
	}
}

func TestMissingTypeScriptIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	root := repository(t, map[string]string{".kici/workflows/ci.ts": strings.ReplaceAll(oneJob, "%s", "ci")})
	for _, want := range []string{
		"check types: there is no .kici/tsconfig.json: run `kici init --force` to make one",
		"check types: TypeScript is neither installed for the workflows nor on PATH as tsc: run `npm install --save-dev typescript`",
	} {
		_, err := Compile(t.Context(), Options{Dir: root, Typecheck: true})
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		lay(t, root, map[string]string{".kici/tsconfig.json": "{}"})
	}
}

// The real compiler of types, and the declarations that `kici init` writes.
func TestTypecheckFindsWhatEvaluationCannot(t *testing.T) {
	modules := filepath.Join(packages(t), "node_modules")
	root := t.TempDir()
	if _, err := Init(t.Context(), InitOptions{Dir: root}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(root, "node_modules")); err != nil {
		t.Fatal(err)
	}
	lay(t, root, map[string]string{".kici/workflows/slip.ts": "import { workflow, job } from '@kici-dev/sdk';\n\nexport default workflow('slip', { jobs: [job('a', { runsOn: 'x', run: async ({ log }) => log.inform('x') })] });\n"})
	_, err := Compile(t.Context(), Options{Dir: root, Typecheck: true})
	var wrong Diagnostics
	if !errors.As(err, &wrong) || len(wrong) != 1 {
		t.Fatalf("got %v", err)
	}
	if want := ".kici/workflows/slip.ts:3:94 error [TS2551]"; !strings.HasPrefix(wrong[0].String(), want) || !strings.HasSuffix(wrong[0].Frame, "^") {
		t.Errorf("got %s, want %s", wrong[0], want)
	}
}
