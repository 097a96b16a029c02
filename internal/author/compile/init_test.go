package compile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/lockfile"
	"kici/internal/vectors"
)

func TestInitMakesARepositoryThatCompiles(t *testing.T) {
	for _, javaScript := range []bool{false, true} {
		root := t.TempDir()
		made, err := Init(t.Context(), InitOptions{Dir: root, JavaScript: javaScript})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range made.Files {
			if _, err := os.Stat(filepath.Join(root, f)); err != nil {
				t.Error(err)
			}
		}
		if !slices.Contains(made.Files, made.Workflow) {
			t.Errorf("%s is not among %v", made.Workflow, made.Files)
		}
		res, err := Compile(t.Context(), Options{Dir: root})
		if err != nil {
			t.Fatal(err)
		}
		if res.Workflows != 1 || res.Jobs != 1 || !res.Changed || len(res.Warnings) > 0 {
			t.Errorf("result %+v", res)
		}
		if _, bad := lockfile.Load(res.Lock, "repo", "ref"); bad != nil {
			t.Error(bad)
		}
	}
}

func TestInitRefusesAnExistingFolder(t *testing.T) {
	root := repository(t, map[string]string{".kici/workflows/mine.ts": "// mine", ".kici/tsconfig.json": "{}"})
	if _, err := Init(t.Context(), InitOptions{Dir: root}); !errors.Is(err, ErrExists) {
		t.Fatalf("got %v", err)
	}
	if got := read(t, filepath.Join(root, ".kici/tsconfig.json")); got != "{}" {
		t.Errorf("a refused init changed a file: %s", got)
	}
	if _, err := Init(t.Context(), InitOptions{Dir: root, Force: true}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(root, ".kici/workflows/mine.ts")); got != "// mine" {
		t.Errorf("init changed a file that is not its own: %s", got)
	}
}

func TestInitLeavesTheTypesOfAnInstalledZodAlone(t *testing.T) {
	root := repository(t, map[string]string{"node_modules/zod/package.json": "{}"})
	made, err := Init(t.Context(), InitOptions{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(made.Files, ".kici/types/zod.d.ts") {
		t.Error("declarations hide the installed zod")
	}
}

// TestDeclarationsTypeCheck checks the scaffold and the sample workflows, which were written for another implementation
// of the same module, under tsc --strict.
func TestDeclarationsTypeCheck(t *testing.T) {
	tsc := filepath.Join(packages(t), "node_modules", ".bin", "tsc")
	root := t.TempDir()
	if _, err := Init(t.Context(), InitOptions{Dir: root}); err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Glob(vectors.Samples("workflows", "*.ts"))
	if err != nil {
		t.Fatal(err)
	}
	skip := []string{"init-runner.ts", "generator-drift.ts", "build-caches.ts"} // these import packages without types here
	for _, s := range samples {
		if !slices.Contains(skip, filepath.Base(s)) {
			if err := os.WriteFile(filepath.Join(root, ".kici/workflows", filepath.Base(s)), []byte(read(t, s)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(root, ".kici/workflows/slips.ts"), []byte(slips), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tsc, "--strict", "-p", filepath.Join(root, ".kici")).CombinedOutput()
	if diff := cmp.Diff("", string(out)); diff != "" || err != nil {
		t.Errorf("tsc: %v %s", err, diff)
	}
}

// slips are mistakes that the types must find; each expected error that does not come is an error of its own.
const slips = `import { workflow, job, step, push, defineDispatchInputs } from '@kici-dev/sdk';
import { z } from 'zod';

const inputs = defineDispatchInputs({ a: z.enum(['x', 'y']), b: z.number().optional() });
const v = inputs.from({ dispatchInputs: {} });
export const fine: ['x' | 'y', number | undefined] = [v.a, v.b];
export const text: z.infer<ReturnType<typeof z.string>> = 'x';
// @ts-expect-error an output of the wrong type
step('q', { outputs: { n: z.number() }, run: async () => ({ n: 'seven' }) });
// @ts-expect-error a misspelt option
job('x', { runson: 'linux' });
// @ts-expect-error a misspelt option of a trigger
workflow('x', { on: push({ branchs: 'main' }), jobs: [] });
// @ts-expect-error not a number
export const wrong: number = v.a;
`
