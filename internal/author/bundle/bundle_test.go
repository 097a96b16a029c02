package bundle

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/script"
	"kici/internal/testenv"
)

const workflowFile = ".kici/workflows/ci.ts"

func repository(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestNodeIsNeededForWhatOnlyNodeHas(t *testing.T) {
	pkg := func(source string) map[string]string {
		return map[string]string{"node_modules/dep/package.json": `{"name":"dep","main":"index.js"}`, "node_modules/dep/index.js": source}
	}
	tests := []struct {
		name   string
		source string
		more   map[string]string
		want   string // the reason, "" for the embedded engine
	}{
		{"plain workflow", `export const a = 1;`, nil, ""},
		{"import of a module of node", "import { hostname } from 'node:os';\nexport const a = hostname();", nil, "import of node:os (.kici/workflows/ci.ts)"},
		{"import without the scheme", "import { join } from 'path';\nexport const a = join('x');", nil, "import of path (.kici/workflows/ci.ts)"},
		{"import of a part of a module", "import { readFile } from 'fs/promises';\nexport const a = readFile;", nil, "import of fs/promises (.kici/workflows/ci.ts)"},
		{"import that is only a type", "import type { Stats } from 'node:fs';\nexport const a = (s: Stats) => s;", nil, ""},
		{"unused import", "import { hostname } from 'node:os';\nexport const a = 1;", nil, ""},
		{"dynamic import", "export const a = () => import('node:os');", nil, "import of node:os (.kici/workflows/ci.ts)"},
		{"free global", "\nexport const a = () => process.env.HOME;", nil, "use of global process (.kici/workflows/ci.ts:2:24)"},
		{"free global Intl", "export const a = () => new Intl.NumberFormat();", nil, "use of global Intl (.kici/workflows/ci.ts:1:28)"},
		{"question for a global", "export const a = typeof process === 'undefined';", nil, ""},
		{"use after a question", "export const a = typeof process === 'object' && process.env && process.env.DEBUG ? 1 : 2;", nil, ""},
		{"use after a question of another statement", "export const a = typeof process; export const b = () => process.env.HOME;", nil, "use of global process (.kici/workflows/ci.ts:1:57)"},
		{"parameter of the name of a global", "export const a = (process: any) => process.env;", nil, ""},
		{"variable of the name of a global", "const Buffer = { from: (x: string) => x };\nexport const a = Buffer.from('x');", nil, ""},
		{"property of the name of a global", "export const a = (o: any) => o.process + o.URL;", nil, ""},
		{"text with the name of a global", "export const a = 'process.env and Buffer';", nil, ""},
		{"shorthand property", "export const a = () => ({ Buffer });", nil, "use of global Buffer (.kici/workflows/ci.ts:1:27)"},
		{"require of a package", "declare var require: any;\nexport const a = require('dep');", pkg("module.exports = 1;"), ""},
		{"require of something unknown", "declare var require: any;\nexport const a = (n: string) => require(n);", nil, "use of global require (.kici/workflows/ci.ts:2:33)"},
		{"console and timers", "export const a = () => { console.log('x'); setTimeout(() => {}, 1); };", nil, ""},
		{"interfaces of the web", "export const a = () => [new URL('http://x'), fetch, structuredClone(1), crypto.randomUUID(), new TextEncoder(), new AbortController(), performance.now(), atob('')];", nil, ""},
		{"streams of the web", "export const a = () => new ReadableStream();", nil, "use of global ReadableStream (.kici/workflows/ci.ts:1:28)"},
		{"import.meta", "export const a = import.meta.url;", nil, "use of global import.meta (.kici/workflows/ci.ts:1:18)"},
		{"top-level await", "export const a = await Promise.resolve(1);", nil, "top-level await (.kici/workflows/ci.ts:1:18)"},
		{"package without needs", "import dep from 'dep';\nexport const a = dep;", pkg("module.exports = 1;"), ""},
		{"package that requires a module of node", "import dep from 'dep';\nexport const a = dep;", pkg("module.exports = require('fs');"), "import of fs (node_modules/dep/index.js)"},
		{"package that uses a global of node", "import dep from 'dep';\nexport const a = dep;", pkg("module.exports = process.platform;"), "use of global process (node_modules/dep/index.js:1:18)"},
		{"the author's file is named before a package", "import dep from 'dep';\nimport 'node:os';\nexport const a = dep;", pkg("module.exports = require('fs');"), "import of node:os (.kici/workflows/ci.ts)"},
		{
			"native package", "import dep from 'dep';\nexport const a = dep;",
			map[string]string{"node_modules/dep/package.json": `{"name":"dep","main":"index.js"}`, "node_modules/dep/index.js": "module.exports = require('bindings')('x');", "node_modules/dep/binding.gyp": "{}"},
			"import of native package dep (.kici/workflows/ci.ts)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{workflowFile: tt.source}
			for k, v := range tt.more {
				files[k] = v
			}
			res, err := Build(Options{Root: repository(t, files), Workflow: workflowFile, Program: "compile"})
			if err != nil {
				t.Fatal(err)
			}
			if res.NeedsNode != tt.want {
				t.Errorf("reason %q, want %q", res.NeedsNode, tt.want)
			}
		})
	}
}

func TestBuildForTheEmbeddedHostRefusesWhatNeedsNode(t *testing.T) {
	root := repository(t, map[string]string{workflowFile: "import os from 'node:os';\nexport const a = os;"})
	_, err := Build(Options{Root: root, Workflow: workflowFile, Program: "compile", Host: "embedded"})
	if err == nil || !strings.Contains(err.Error(), "import of node:os") {
		t.Errorf("got %v", err)
	}
}

func TestMessagesShowTheLineAndACaret(t *testing.T) {
	root := repository(t, map[string]string{workflowFile: "const x = 1;\n\tconst = 2;\n"})
	_, err := Build(Options{Root: root, Workflow: workflowFile, Program: "compile"})
	want := ".kici/workflows/ci.ts:2:8: Expected identifier but found \"=\"\n    \tconst = 2;\n    \t      ^"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	var list Diagnostics
	if !errors.As(err, &list) || list[0].Line != 2 || list[0].Column != 8 {
		t.Errorf("diagnostics %+v", list)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{Root: "/x", Workflow: "../ci.ts", Program: "compile"},
		{Root: "x", Workflow: "ci.ts", Program: "compile"},
		{Root: "/x", Workflow: "ci.ts", Program: "other"},
		{Root: "/x", Workflow: "ci.ts", Program: "compile", Host: "deno"},
	} {
		if _, err := Build(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestStackTracesLeadToTheAuthorsFile(t *testing.T) {
	root := repository(t, map[string]string{
		workflowFile:        "import { fail } from '../lib/fail';\n\nexport const a = 1;\n\n  fail('x');\n",
		".kici/lib/fail.ts": "// a comment\nexport function fail(text: string): never {\n  throw new Error(text);\n}\n",
	})
	res, err := Build(Options{Root: root, Workflow: workflowFile, Program: "compile"})
	if err != nil {
		t.Fatal(err)
	}
	vm, err := script.New(script.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = vm.Close() }()
	var thrown *script.Error
	if err := vm.Run(t.Context(), "workflow", string(res.Script)); !errors.As(err, &thrown) {
		t.Fatalf("got %v", err)
	}
	smap, err := ParseMap(res.Map)
	if err != nil {
		t.Fatal(err)
	}
	frames := smap.Frames(thrown.Stack)
	want := []Place{{".kici/lib/fail.ts", 3, 13}, {workflowFile, 5, 3}}
	if len(frames) < 2 {
		t.Fatalf("frames %v of %s", frames, thrown.Stack)
	}
	if diff := cmp.Diff(want, frames[:2]); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{".kici/lib/fail.ts", workflowFile}, res.Sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
}

// An author's function is quoted in the lock file, so the bundle must print it as it would alone.
func TestFunctionsKeepTheirTextInTheBundle(t *testing.T) {
	source := "export const f = (event: any) => {\n  const kind = event.type;\n  return `${kind}\n    x`;\n};\n"
	res, err := Build(Options{Root: repository(t, map[string]string{workflowFile: source}), Workflow: workflowFile, Program: "compile"})
	if err != nil {
		t.Fatal(err)
	}
	want := "(event) => {\n  const kind = event.type;\n  return `${kind}\n    x`;\n}"
	if !strings.Contains(string(res.Script), want) {
		t.Errorf("the bundle lacks\n%s", want)
	}
}

func TestTheInstalledZodWins(t *testing.T) {
	files := map[string]string{workflowFile: "import { z } from 'zod';\nexport const a = z;"}
	root := repository(t, files)
	res, err := Build(Options{Root: root, Workflow: workflowFile, Program: "compile"})
	if err != nil || !strings.Contains(string(res.Script), "__kiciLibrary.exports.zod") {
		t.Errorf("without an installation the SDK's builder is not there: %v", err)
	}
	files["node_modules/zod/package.json"] = `{"name":"zod","main":"index.js"}`
	files["node_modules/zod/index.js"] = `exports.z = "the installed one";`
	files["node_modules/@kici-dev/sdk/package.json"] = `{"name":"@kici-dev/sdk","main":"index.js"}`
	files["node_modules/@kici-dev/sdk/index.js"] = `exports.workflow = "not ours";`
	files[workflowFile] += "\nimport { workflow } from '@kici-dev/sdk';\nexport const w = workflow;"
	res, err = Build(Options{Root: repository(t, files), Workflow: workflowFile, Program: "compile"})
	if err != nil || !strings.Contains(string(res.Script), "the installed one") || strings.Contains(string(res.Script), "not ours") {
		t.Errorf("the installed zod and the embedded SDK are not both there: %v", err)
	}
}

// A script for node is stored outside of the repository and still finds the repository's packages and its own place.
func TestScriptForNodeRunsFromAnywhere(t *testing.T) {
	testenv.Need(t, "node")
	root := repository(t, map[string]string{
		workflowFile: "import dep from 'dep';\nimport { where } from '../lib/where';\nimport { basename } from 'node:path';\n" +
			"process.stdout.write(['A', dep, where, basename(import.meta.filename), basename(__dirname)].join(' ') + '\\n', () => process.exit());\nexport const a = await 1;",
		".kici/lib/where.ts":            "import { basename } from 'node:path';\nexport const where = basename(import.meta.dirname);",
		"node_modules/dep/package.json": `{"name":"dep","main":"index.js"}`,
		"node_modules/dep/index.js":     "module.exports = require('./native').name;",
		"node_modules/dep/native.js":    "exports.name = 'native';",
		"node_modules/dep/binding.gyp":  "{}",
	})
	res, err := Build(Options{Root: root, Workflow: workflowFile, Program: "compile"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "script.mjs")
	if err := os.WriteFile(file, res.Script, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", file).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "A native lib ci.ts workflows" {
		t.Errorf("node printed %q, %v", got, err)
	}
}

func FuzzParseMap(f *testing.F) {
	f.Add([]byte(`{"sources":["a.ts"],"mappings":"AAAA,SAAS;AACA"}`), 1, 1)
	f.Add([]byte(`{"sources":[],"mappings":"////"}`), 0, -1)
	f.Fuzz(func(t *testing.T, raw []byte, line, column int) {
		m, err := ParseMap(raw)
		if err != nil {
			return
		}
		m.Lookup(line, column)
	})
}

func BenchmarkBuild(b *testing.B) {
	source := "import { workflow, job, step, push } from '@kici-dev/sdk';\nexport default workflow('ci', { on: push({ branches: 'main' }), jobs: [job('a', { runsOn: 'linux', steps: [step('s', async () => {})] })] });\n"
	root := repository(b, map[string]string{workflowFile: source})
	for b.Loop() {
		if _, err := Build(Options{Root: root, Workflow: workflowFile, Program: "compile"}); err != nil {
			b.Fatal(err)
		}
	}
}
