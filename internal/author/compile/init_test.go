package compile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
			if _, err := os.Stat(filepath.Join(root, f.Path)); err != nil {
				t.Error(err)
			}
		}
		if !slices.Contains(paths(made), made.Workflow) {
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

func paths(made InitResult) (list []string) {
	for _, f := range made.Files {
		list = append(list, f.Path)
	}
	return list
}

// Each sort of repository gets a workflow of its own, which compiles.
func TestInitLooksAtTheRepository(t *testing.T) {
	for _, tt := range []struct {
		file, preset, want string // "" is what the file tells
	}{
		{"go.mod", "go", "`go test ./...`"}, {"Cargo.toml", "rust", "`cargo test --locked`"}, {"package.json", "node", "`npm install`"},
		{"package-lock.json", "", "hello"}, {"pyproject.toml", "python", "pip install ."}, {"Makefile", "make", "`make test`"}, {"README.md", "basic", "hello"},
		{"go.mod", "make", "`make test`"},
	} {
		root := repository(t, map[string]string{tt.file: "{}"})
		o := InitOptions{Dir: root}
		if tt.file == "go.mod" {
			o.Preset = tt.preset
		}
		made, err := Init(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if tt.preset != "" && made.Preset.Name != tt.preset {
			t.Errorf("%s: preset %s, want %s", tt.file, made.Preset.Name, tt.preset)
		}
		if text := read(t, filepath.Join(root, made.Workflow)); !strings.Contains(text, tt.want) {
			t.Errorf("%s: %q is not in\n%s", tt.file, tt.want, text)
		}
		if res, err := Compile(t.Context(), Options{Dir: root}); err != nil || len(res.Warnings) > 0 {
			t.Errorf("%s: %v %v", tt.file, err, res.Warnings)
		}
	}
}

func TestInitInstallsAsTheLockFileSays(t *testing.T) {
	for file, want := range map[string]string{"pnpm-lock.yaml": "pnpm install --frozen-lockfile", "yarn.lock": "yarn install --frozen-lockfile", "package-lock.json": "npm ci"} {
		root := repository(t, map[string]string{"package.json": "{}", file: ""})
		made, err := Init(t.Context(), InitOptions{Dir: root})
		if err != nil {
			t.Fatal(err)
		}
		if text := read(t, filepath.Join(root, made.Workflow)); !strings.Contains(text, want) {
			t.Errorf("%s: %q is not in\n%s", file, want, text)
		}
	}
}

func TestInitNamesAPrivateRegistry(t *testing.T) {
	root := t.TempDir()
	made, err := Init(t.Context(), InitOptions{Dir: root, Agents: true, Registry: &Registry{URL: "https://npm.example.org/", Scope: "@acme", TokenSecret: "prod:TOKEN"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".kici/AGENTS.md", ".kici/package.json"} {
		if !slices.Contains(paths(made), want) {
			t.Errorf("no %s among %v", want, paths(made))
		}
	}
	res, err := Compile(t.Context(), Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"https://npm.example.org/"`, `"@acme"`, `"prod:TOKEN"`} {
		if !strings.Contains(string(res.Lock), want) {
			t.Errorf("%s is not in the lock file", want)
		}
	}
}

func TestInitRefusesAnUnknownPreset(t *testing.T) {
	root := t.TempDir()
	_, err := Init(t.Context(), InitOptions{Dir: root, Preset: "cobol"})
	if !errors.Is(err, ErrPreset) || !strings.Contains(err.Error(), `no preset is called "cobol"; there are: go, rust,`) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, DefaultDir)); err == nil {
		t.Error("it has made the folder all the same")
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

// A forced init makes the types again, as after an upgrade. What the author has written since the first one stays.
func TestAForcedInitLeavesTheWorkAlone(t *testing.T) {
	const mine, packages = "// mine", `{"dependencies":{"ms":"2"}}`
	for _, tt := range []struct {
		files      map[string]string
		o          InitOptions
		kept       []string
		workflow   string
		notWritten []string
	}{
		{map[string]string{".kici/workflows/ci.ts": mine, ".kici/package.json": packages}, InitOptions{Packages: true},
			[]string{".kici/workflows/ci.ts", ".kici/package.json"}, ".kici/workflows/ci.ts", []string{".kici/workflows/ci.ts", ".kici/package.json"}},
		{map[string]string{".kici/workflows/b.mts": mine, ".kici/workflows/a.test.ts": "test"}, InitOptions{JavaScript: true, Preset: "go"},
			[]string{".kici/workflows/b.mts"}, ".kici/workflows/b.mts", []string{".kici/workflows/ci.mjs"}},
		{map[string]string{".kici/package.json": packages}, InitOptions{}, nil, ".kici/workflows/ci.ts", []string{".kici/package.json"}},
	} {
		tt.files[".kici/types/kici.d.ts"] = "old"
		root := repository(t, tt.files)
		tt.o.Dir, tt.o.Force = root, true
		made, err := Init(t.Context(), tt.o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.kept, made.Kept); diff != "" || made.Workflow != tt.workflow {
			t.Errorf("workflow %s, kept %s", made.Workflow, diff)
		}
		for _, name := range tt.notWritten {
			if slices.Contains(paths(made), name) {
				t.Errorf("%s was made", name)
			}
		}
		if read(t, filepath.Join(root, ".kici/types/kici.d.ts")) == "old" {
			t.Error("the types are the old ones")
		}
		for name, text := range tt.files {
			if got := read(t, filepath.Join(root, name)); name != ".kici/types/kici.d.ts" && got != text {
				t.Errorf("%s was changed: %s", name, got)
			}
		}
	}
}

func TestInitLeavesTheTypesOfAnInstalledZodAlone(t *testing.T) {
	root := repository(t, map[string]string{"node_modules/zod/package.json": "{}"})
	made, err := Init(t.Context(), InitOptions{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(paths(made), ".kici/types/zod.d.ts") {
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
const slips = `import { workflow, job, step, push, pr, schedule, tag, fork, defineDispatchInputs, type Shell } from '@kici-dev/sdk';
import { z } from 'zod';

const inputs = defineDispatchInputs({ a: z.enum(['x', 'y']), b: z.number().optional() });
declare const $sh: Shell;
const v = inputs.from({ dispatchInputs: {} });
export const fine: ['x' | 'y', number | undefined] = [v.a, v.b];
export const text: z.infer<ReturnType<typeof z.string>> = 'x';
// @ts-expect-error an output of the wrong type
step('q', { outputs: { n: z.number() }, run: async () => ({ n: 'seven' }) });
export const used = step('u', async ({ $, signal }) => {
  for await (const line of $` + "`yes`" + `.pipe($` + "`head`" + `)) void line.length;
  const p = $({ input: new Uint8Array(1), signal })` + "`cat`" + `.quiet().timeout('1s').stdio('pipe', 'inherit');
  await p.stdin.end('x');
  const bytes: Uint8Array = await $` + "`x`" + `.pipe` + "`y`" + `.buffer();
  const r = await fetch(new URL('/a', 'http://x'), { signal: AbortSignal.timeout(1), body: new URLSearchParams({ a: 'b' }) });
  return { bytes, code: (await p).exitCode, text: await r.text(), id: crypto.randomUUID(), copy: structuredClone({ a: 1 }).a };
});
export const alone = [pr('opened', { target: 'main' }), push('main', { paths: 'x' }), schedule('* * * * *', { timezone: 'UTC' }), tag(/^v/), fork()];
// @ts-expect-error no such event
pr('main');
// @ts-expect-error no such mode of a stream
$sh` + "`x`" + `.stdio('out');
// @ts-expect-error a misspelt option
job('x', { runson: 'linux' });
// @ts-expect-error a misspelt option of a trigger
workflow('x', { on: push({ branchs: 'main' }), jobs: [] });
// @ts-expect-error not a number
export const wrong: number = v.a;
`
