//go:build unix

package runner

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUncaughtExceptionExits99(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('x', async (ctx) => { setTimeout(() => { throw new Error('in a timer: ' + 'secret-value'); }, 1); await new Promise(() => {}); })`),
			map[string]any{"secrets": map[string]any{"S": "secret-value"}})
		tail := strings.Join(j.Exit.Stderr, "\n")
		if j.Exit.Code != 99 || j.Complete != nil || !strings.Contains(tail, "in a timer: ***") || !strings.Contains(tail, "at .kici/workflows/ci.ts:2:") {
			t.Errorf("%+v %+v", j.Exit, j.Complete)
		}
	})
}

func TestUnhandledRejectionExits98(t *testing.T) {
	t.Parallel()
	// The embedded engine does not tell of rejections that nobody looks at.
	t.Run("node", func(t *testing.T) {
		onNode(t)
		j := run(t, "node", workflow(`step('x', async () => { Promise.reject(new Error('lost')); await new Promise(() => {}); })`), nil)
		if j.Exit.Code != 98 || j.Complete != nil || !strings.Contains(strings.Join(j.Exit.Stderr, "\n"), "Unhandled rejection Error: lost") {
			t.Errorf("%+v %+v", j.Exit, j.Complete)
		}
	})
}

func TestProcessExitIsACrash(t *testing.T) {
	t.Parallel()
	onNode(t)
	j := run(t, "node", workflow(`step('x', async () => { process.stdout.write('no line end'); process.exit(7); })`), nil)
	if j.Exit.Code != 7 || j.Complete != nil || j.log(0) != "no line end" {
		t.Errorf("%+v %+v %v", j.Exit, j.Complete, j.Logs)
	}
}

func TestSyntaxErrorNamesThePlace(t *testing.T) {
	t.Parallel()
	j := run(t, "embedded", "import { workflow } from '@kici-dev/sdk';\nconst a = ;\n", nil)
	j.failed("Workflow cannot be loaded: .kici/workflows/ci.ts:2:11: ")
	if !strings.Contains(j.log(JobLog), "const a = ;") {
		t.Errorf("the log lacks the source line: %v", j.Logs)
	}
}

func TestMissingImportNamesThePlace(t *testing.T) {
	t.Parallel()
	j := run(t, "embedded", "import { x } from './absent';\nexport default x;\n", nil)
	j.failed(".kici/workflows/ci.ts:1:")
}

func TestModuleThatThrowsNamesThePlace(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, "import { workflow } from '@kici-dev/sdk';\nexport default workflow('ci', { jobs: [] });\nthrow new Error('at load');\n", nil)
		j.failed("Workflow cannot be loaded: at load (.kici/workflows/ci.ts:3:")
	})
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		run(t, host, workflow(""), map[string]any{"workflowName": "other"}).failed("Workflow 'other' not found in module exports")
		run(t, host, workflow(""), map[string]any{"jobName": "other"}).failed("Static job 'other' not found in workflow 'ci'")
	})
}

func TestMissingNodeNamesTheImport(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	run(t, "node", workflow(`step('x', async () => {})`), nil).failed("The workflow needs Node (import of node:os (.kici/workflows/ci.ts")
}

func TestOldNodeIsRefused(t *testing.T) {
	onNode(t)
	dir := t.TempDir()
	script := "#!/bin/sh\nprintf '{\"type\":\"kici.node\",\"version\":\"v18.1.0\"}\\n' >&4\nexec sleep 60\n"
	must(t, os.WriteFile(filepath.Join(dir, "node"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	run(t, "node", workflow(`step('x', async () => {})`), nil).failed("The workflow needs Node 20 or later")
}

func TestSourceFileSpellings(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", "workflows/ci.ts", ".kici/workflows/ci.ts"} {
		run(t, "embedded", workflow(`step('x', async () => {})`), map[string]any{"sourceFile": file}).succeeded()
	}
}

func TestGlobalWorkflowsRunInTheSourceRepository(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := prepare(t, host, workflow(`step('x', async (ctx) => ({ pwd: (await ctx.$`+"`pwd`.text()"+`).trim(), workflow: ctx.workflowRepo, source: ctx.sourceRepo }))`))
		must(t, os.MkdirAll(filepath.Join(j.dir, "source"), 0o755))
		must(t, os.MkdirAll(filepath.Join(j.dir, "workflow"), 0o755))
		must(t, os.Rename(filepath.Join(j.dir, ".kici"), filepath.Join(j.dir, "workflow", ".kici")))
		j.execute(map[string]any{"isGlobalWorkflow": true, "ref": "main", "sha": "abc", "workflowRepoIdentifier": "acme/flows"})
		j.wait().succeeded()
		equalJSON(t, j.Complete.Outputs["x"], `{"pwd":"`+j.dir+`/source","workflow":{"identifier":"acme/flows","path":"`+j.dir+`/workflow"},"source":{"path":"`+j.dir+`/source","ref":"main","sha":"abc"}}`)
	})
}

// What a console of node has, that of the embedded host has, too; it prints one line for each call.
func TestConsoleOfTheEmbeddedHost(t *testing.T) {
	t.Parallel()
	j := run(t, "embedded", workflow(`step('x', async () => {
  console.info('i'); console.warn('w'); console.error('e'); console.debug('d'); console.trace('t'); console.dir({ a: 1 }, { depth: 1 }); console.dirxml('x'); console.table([{ a: 1 }]);
  console.assert(true, 'never'); console.assert(false, 'no', 1); console.group('g'); console.groupCollapsed('c'); console.groupEnd();
  console.count(); console.count('x'); console.count('x'); console.countReset('x'); console.count('x'); console.time('t'); console.timeLog('t', 'more'); console.timeEnd('t');
  console.log('%s is %d%% of %i: %j %o', 'a', '50', 3.7, { b: 1 }, [2], 'more', 7); console.log('100%', 5); console.log('%s and %s', 'one'); console.log('%x', 1); console.log(); })`), nil).succeeded()
	times := regexp.MustCompile(`\d+ms`)
	want := []string{"i", "w", "e", "d", "t", `{"a":1}`, "x", `[{"a":1}]`, "Assertion failed: no 1", "g", "c", "default: 1", "x: 1", "x: 2", "x: 1", "t: Nms more", "t: Nms",
		`a is 50% of 3: {"b":1} [2] more 7`, "100% 5", "one and %s", "%x 1", ""}
	if diff := cmp.Diff(want, strings.Split(times.ReplaceAllString(j.log(0), "Nms"), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestTimersAndConsoleOfTheEmbeddedHost(t *testing.T) {
	t.Parallel()
	j := run(t, "embedded", workflow(`step('x', async () => {
  const out = []; let n = 0;
  await new Promise((done) => { const i = setInterval((a) => { out.push(a); if (++n === 3) { clearInterval(i); done(); } }, 1, 'tick'); });
  const never = setTimeout(() => out.push('never'), 5); clearTimeout(never);
  await new Promise((r) => setTimeout(r, 10));
  const loop = {}; loop.self = loop; console.log('a', 1, null, undefined, { b: [1n] }, loop, new Error('e'), new Map([[1, 2]]));
  return out; })`), nil).succeeded()
	equalJSON(t, j.Complete.Outputs["x"], `["tick","tick","tick"]`)
	if got := j.log(0); got != `a 1 null undefined {"b":["1n"]} {"self":"[seen above]"} Error: e {"map":[[1,2]]}` {
		t.Error(got)
	}
}
