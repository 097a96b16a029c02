package compile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/lockfile"
	"kici/internal/testenv"
)

const oneJob = `import { workflow, job, step, push } from '@kici-dev/sdk';
export default workflow('%s', { on: push({ branches: 'main' }), jobs: [job('a', { runsOn: 'linux', steps: [step('s', async () => {})] })] });
`

func TestCompileWritesOnlyWhatChanged(t *testing.T) {
	root := repository(t, map[string]string{".kici/workflows/ci.ts": fmt.Sprintf(oneJob, "ci")})
	check := func(o Options, want bool) Result {
		t.Helper()
		o.Dir = root
		res, err := Compile(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if res.Changed != want {
			t.Errorf("changed %v, want %v", res.Changed, want)
		}
		return res
	}
	res := check(Options{Check: true}, true)
	if _, err := os.Stat(res.Path); err == nil {
		t.Fatal("--check wrote the lock file")
	}
	check(Options{}, true)
	check(Options{}, false)
	check(Options{Check: true}, false)
	if err := os.WriteFile(filepath.Join(root, ".kici/workflows/ci.ts"), fmt.Appendf(nil, oneJob, "other"), 0o644); err != nil {
		t.Fatal(err)
	}
	check(Options{Check: true}, true)
	check(Options{}, true)
	left, err := filepath.Glob(filepath.Join(root, ".kici", "*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestABrokenFileLeavesTheLockFileAlone(t *testing.T) {
	root := repository(t, map[string]string{
		".kici/workflows/ci.ts":  fmt.Sprintf(oneJob, "ci"),
		".kici/workflows/bad.ts": "export default (",
		".kici/" + LockName:      "as it was",
	})
	var wrong Diagnostics
	if _, err := Compile(t.Context(), Options{Dir: root}); !errors.As(err, &wrong) {
		t.Fatalf("got %v", err)
	}
	if got := read(t, filepath.Join(root, ".kici", LockName)); got != "as it was" {
		t.Errorf("lock file is now %s", got)
	}
}

func TestWorkflowsInOtherLanguagesAndPlaces(t *testing.T) {
	root := repository(t, map[string]string{
		"ci/flows/workflows/a.mjs":      fmt.Sprintf(oneJob, "mjs"),
		"ci/flows/workflows/b.tsx":      fmt.Sprintf(oneJob, "tsx"),
		"ci/flows/workflows/types.d.ts": "export type X = 1;",
		"ci/flows/workflows/x.test.ts":  "throw new Error('a test is no workflow');",
		"ci/flows/workflows/lib/x.ts":   "throw new Error('only imported');",
		"ci/flows/workflows/notes.md":   "# notes",
		"ci/flows/workflows/helper.ts":  "export const helper = 1;",
	})
	res, err := Compile(t.Context(), Options{Dir: root, KiciDir: "ci/flows"})
	if err != nil {
		t.Fatal(err)
	}
	file, bad := lockfile.Load(res.Lock, "", "")
	if bad != nil {
		t.Fatal(bad)
	}
	var got []string
	for _, w := range file.Workflows {
		got = append(got, w.Name)
	}
	if diff := cmp.Diff([]string{"mjs", "tsx"}, got); diff != "" {
		t.Errorf("workflows (-want +got):\n%s", diff)
	}
	if want := "ci/flows/workflows/helper.ts warning [W001]: the file exports no workflow"; len(res.Warnings) != 1 || res.Warnings[0].String() != want {
		t.Errorf("warnings %v", res.Warnings)
	}
}

func TestExportsAreNamedAndTakenOnce(t *testing.T) {
	root := repository(t, map[string]string{".kici/workflows/ci.ts": `
import { workflow, job } from '@kici-dev/sdk';
const make = (name: string) => workflow(name, { jobs: [job({ runsOn: 'x', run: async () => {} }), job({ runsOn: 'x', run: async () => {} })] });
export const zulu = make('zulu'), alpha = make('alpha');
export { alpha as again };
export const list = [make('not exported')];
export default [make('first'), zulu, make('third')];
`})
	res, err := Compile(t.Context(), Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Workflows []struct {
			Name   string
			Source struct{ Export string }
			Jobs   []struct{ Name string }
		}
	}
	if err := json.Unmarshal(res.Lock, &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range doc.Workflows {
		got = append(got, w.Name+" "+w.Source.Export+" "+w.Jobs[0].Name+" "+w.Jobs[1].Name)
	}
	want := []string{"first #default[0] job-1 job-2", "zulu #default[1] job-1 job-2", "third #default[2] job-1 job-2", "alpha #again job-1 job-2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exports (-want +got):\n%s", diff)
	}
	if res.Workflows != 4 || res.Jobs != 8 {
		t.Errorf("counted %d workflows, %d jobs", res.Workflows, res.Jobs)
	}
}

// Places are those of the author's text: also below comments and types, and in files that the workflow imports.
func TestSourceLocationsAreTheAuthors(t *testing.T) {
	root := repository(t, map[string]string{
		".kici/workflows/ci.ts": "// a comment\nimport { workflow, job, step } from '@kici-dev/sdk';\nimport { shared } from '../lib/shared';\n\ninterface Unused { a: string }\n\nexport default workflow('ci', {\n  jobs: [job('a', { runsOn: 'x', steps: [\n    step('one', async () => {}), step('two', async () => {}),\n    shared,\n    async () => {},\n  ] })],\n});\n",
		".kici/lib/shared.ts":   "import { waitForStep } from '@kici-dev/sdk';\n\n/* padding */ export const shared = waitForStep('three', { check: async () => 1 });\n",
	})
	for _, node := range []bool{false, true} {
		if node {
			testenv.Need(t, "node")
			path := filepath.Join(root, ".kici/workflows/ci.ts")
			if err := os.WriteFile(path, []byte(read(t, path)+"process.title;\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		res, err := Compile(t.Context(), Options{Dir: root})
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Workflows []struct {
				Jobs []struct {
					Steps []struct{ SourceLocation *location }
				}
			}
		}
		if err := json.Unmarshal(res.Lock, &doc); err != nil {
			t.Fatal(err)
		}
		var got []*location
		for _, s := range doc.Workflows[0].Jobs[0].Steps {
			got = append(got, s.SourceLocation)
		}
		want := []*location{{".kici/workflows/ci.ts", 9, 5}, {".kici/workflows/ci.ts", 9, 34}, {".kici/lib/shared.ts", 3, 37}, nil}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("node %v: places (-want +got):\n%s", node, diff)
		}
	}
}

func TestWarningsDoNotStopTheCompilation(t *testing.T) {
	root := repository(t, map[string]string{".kici/workflows/ci.ts": `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', {
  jobs: [
    job('a', { runsOn: 'x', failFast: true, onUnreachable: 'skip', timeoutt: 1, steps: [step('s', async () => {}), step('s', async () => {})] } as any),
    job('b', { runsOn: 'x', needs: [{ name: 'a', when: ['succes', 'unroutable', 'failed', 'running'] }], run: async () => {} }),
  ],
  descripton: 'x',
} as any);
export const more = [workflow('hidden', { jobs: [] })];
export const shown = workflow('shown', { jobs: [] }), again = [shown];
`, ".kici/workflows/list.ts": "import { fixture, workflow } from '@kici-dev/sdk';\n\nexport default [workflow('one', { jobs: [] }), fixture('f', { event: 'push' }), undefined, workflow('two', { jobs: [] })];\n"})
	res, err := Compile(t.Context(), Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range res.Warnings {
		w.Frame = ""
		got = append(got, w.String())
	}
	want := []string{
		".kici/workflows/ci.ts:2:16 warning [W101]: workflow 'ci' has no option 'descripton'\n  Suggestion: did you mean 'description'?",
		".kici/workflows/ci.ts:4:5 warning [W101]: job 'a' has no option 'timeoutt'\n  Suggestion: did you mean 'timeout'?",
		".kici/workflows/ci.ts:4:5 warning [W102]: job 'a': onUnreachable has no effect without runsOnAll",
		".kici/workflows/ci.ts:4:5 warning [W102]: job 'a': failFast has no effect without a matrix or runsOnAll",
		".kici/workflows/ci.ts:4:116 warning [W103]: job 'a' has two steps named 's': outputs of the later one hide those of the earlier",
		".kici/workflows/ci.ts:5:5 warning [W105]: job 'b': when 'succes' is no status that a job ends with: success, failed, cancelled, skipped, timed_out_stale, drift_dropped, unroutable\n  Suggestion: did you mean 'success'?",
		".kici/workflows/ci.ts:5:5 warning [W105]: job 'b': when 'running' is no status that a job ends with: success, failed, cancelled, skipped, timed_out_stale, drift_dropped, unroutable",
	}
	want = append(want,
		".kici/workflows/ci.ts:9:22 warning [W106]: 'more' is a list of workflows, and only the default export may be one\n  Suggestion: export each of them by a name of its own",
		".kici/workflows/list.ts:3:17 warning [W106]: entry 3 of the default export is no workflow",
	)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestWorkflowsThatNeedNode(t *testing.T) {
	testenv.Need(t, "node")
	tests := []struct{ name, source, want string }{
		{"prints while it loads", "import os from 'node:os';\nprocess.stdout.write('noise\\n');\nconsole.log(os.EOL);\n" + oneJob, ""},
		{"awaits while it loads", "const name = await Promise.resolve('x');\nvoid name;\n" + oneJob, ""},
		{"keeps a timer", "setInterval(() => {}, 1000);\nprocess.title;\n" + oneJob, ""},
		{"throws while it loads", "import os from 'node:os';\nif (os.EOL) {\n  throw new TypeError('not here');\n}\n" + oneJob, ".kici/workflows/ci.ts:3:9 error [E003]: not here"},
		{"exits while it loads", "process.exit(3);\n" + oneJob, ".kici/workflows/ci.ts error [E003]: node ended before the workflow was described (exit status 3) "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := repository(t, map[string]string{".kici/workflows/ci.ts": fmt.Sprintf(tt.source, "ci")})
			res, err := Compile(t.Context(), Options{Dir: root})
			if tt.want == "" {
				if err != nil || res.Jobs != 1 {
					t.Errorf("got %+v, %v", res, err)
				}
				return
			}
			var wrong Diagnostics
			if !errors.As(err, &wrong) {
				t.Fatalf("got %v", err)
			}
			got := wrong[0]
			got.Frame = ""
			if !strings.HasPrefix(got.String(), tt.want) {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestMissingNodeIsNamedWithItsReason(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	root := repository(t, map[string]string{".kici/workflows/ci.ts": "import os from 'node:os';\nvoid os.EOL;\n" + fmt.Sprintf(oneJob, "ci")})
	_, err := Compile(t.Context(), Options{Dir: root})
	want := ".kici/workflows/ci.ts error [E003]: the workflow needs Node.js, which is not on PATH: import of node:os (.kici/workflows/ci.ts)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// A file that never comes to its end while it is loaded is a mistake of its author's, on both hosts.
func TestLoadingHasALimit(t *testing.T) {
	if loadTimeout != 20*time.Second {
		t.Errorf("files have %s to load", loadTimeout)
	}
	defer func(before time.Duration) { loadTimeout = before }(loadTimeout)
	for host, first := range map[string]string{"embedded": "", "node": "import { EOL } from 'node:os'; void EOL;"} {
		t.Run(host, func(t *testing.T) {
			if loadTimeout = 100 * time.Millisecond; host == "node" {
				testenv.Need(t, "node")
				loadTimeout = 2 * time.Second // node itself takes a good part of one to start
			}
			root := repository(t, map[string]string{".kici/workflows/ci.ts": first + "\nexport const never = (() => {\n  for (;;) {}\n})();\n"})
			_, err := Compile(t.Context(), Options{Dir: root})
			var wrong Diagnostics
			if !errors.As(err, &wrong) || wrong[0].Code != "E003" || wrong[0].Text != "the file takes longer than "+loadTimeout.String()+" to load" {
				t.Fatalf("got %v", err)
			}
			if host == "embedded" && wrong[0].Line != 2 {
				t.Errorf("the place is not named: %v", wrong)
			}
			if _, err := os.Stat(filepath.Join(root, ".kici", LockName)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a lock file was written: %v", err)
			}
		})
	}
}

func TestCompileEndsWithItsContext(t *testing.T) {
	root := repository(t, map[string]string{".kici/workflows/ci.ts": fmt.Sprintf(oneJob, "ci")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compile(ctx, Options{Dir: root}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestInlineFunctionsAreQuotedAndOthersLeftToAnAgent(t *testing.T) {
	root := repository(t, map[string]string{".kici/workflows/ci.ts": `import { workflow, job, step } from '@kici-dev/sdk';
const outer = 'eu';
const steps = [step('s', async () => {})];
export default workflow('ci', { jobs: [
  job('pure', { runsOn: 'x', steps, contexts: ['base', (star: any) => {
    const { targetBranch: slash } = star as { targetBranch: string };
    return slash;
  }], env: ({ targetBranch }) => ({ REF: targetBranch! }), concurrencyGroup: function (e) { return e.type; } }),
  job('impure', { runsOn: 'x', steps, context: () => outer, env: async () => ({}), concurrencyGroup: (e) => e.payload.items.map((i: any) => i.name)[0] }),
] });
`})
	res, err := Compile(t.Context(), Options{Dir: root})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Workflows []struct {
			Jobs []struct {
				Environments            json.RawMessage
				Env                     json.RawMessage
				DynamicEnv              bool
				ConcurrencyGroup        json.RawMessage
				DynamicConcurrencyGroup bool
			}
		}
	}
	if err := json.Unmarshal(res.Lock, &doc); err != nil {
		t.Fatal(err)
	}
	pure, impure := doc.Workflows[0].Jobs[0], doc.Workflows[0].Jobs[1]
	var environments []struct{ Value json.RawMessage }
	if err := json.Unmarshal(pure.Environments, &environments); err != nil {
		t.Fatal(err)
	}
	type inline struct {
		Type       string `json:"_type"`
		Expression string
	}
	for i, tt := range []struct {
		raw  json.RawMessage
		want string
	}{
		{environments[1].Value, "(star) => {\n\t\tconst { targetBranch: slash } = star;\n\t\treturn slash;\n\t}"},
		{pure.Env, "({ targetBranch }) => ({ REF: targetBranch })"},
		{pure.ConcurrencyGroup, "function(e) {\n\t\treturn e.type;\n\t}"},
	} {
		var got inline
		if err := json.Unmarshal(tt.raw, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(inline{"inline", tt.want}, got); diff != "" {
			t.Errorf("function %d (-want +got):\n%s", i, diff)
		}
	}
	if !impure.DynamicEnv || !impure.DynamicConcurrencyGroup || impure.Env != nil || impure.ConcurrencyGroup != nil {
		t.Errorf("impure job %+v", impure)
	}
	if got := strings.Join(strings.Fields(string(impure.Environments)), ""); got != `[{"value":"","dynamic":true}]` {
		t.Errorf("impure environments %s", got)
	}
}

// The figures say how much of a processor a compilation takes as well, which other work on the machine changes less.
func BenchmarkCompile(b *testing.B) {
	for _, count := range []int{1, 10, 200} {
		b.Run(fmt.Sprintf("workflows=%d", count), func(b *testing.B) {
			files := map[string]string{}
			for i := range count {
				files[fmt.Sprintf(".kici/workflows/w%d.ts", i)] = fmt.Sprintf(oneJob, fmt.Sprintf("w%d", i))
			}
			root := repository(b, files)
			before := processorTime(b)
			for b.Loop() {
				if _, err := Compile(b.Context(), Options{Dir: root, Check: true}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is what this process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
