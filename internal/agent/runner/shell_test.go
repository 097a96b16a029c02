//go:build unix

package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCommands(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow("\n"+
			"step('run', async ({ $ }) => {\n"+
			"  const out = await $`echo one; echo two; echo bad >&2`;\n"+
			"  const opts = $({ cwd: '/', env: { EXTRA: 'e', GREETING: undefined }, quiet: true });\n"+
			"  const failed = await $`echo why >&2; exit 3`.catch((e) => ({ name: e.name, message: e.message, exitCode: e.exitCode, stderr: e.stderr, signal: e.signal }));\n"+
			"  const p = $`sleep 60`; const killed = p.nothrow(); setTimeout(() => p.kill(), 20);\n"+
			"  const late = await $`sleep 60`.timeout(30).catch((e) => e.message);\n"+
			"  return { stdout: out.stdout, stderr: out.stderr, code: out.exitCode, text: await $`printf x`.text(), lines: await $`printf 'a\\nb\\n'`.lines(),\n"+
			"    json: await $`echo '{\"k\":[1]}'`.json(), quiet: (await opts`pwd; echo $EXTRA \\${GREETING-none}`).lines(),\n"+
			"    stdin: await $({ stdin: 'from stdin' })`cat`.quiet().text(), nothrow: (await $`exit 5`.nothrow()).exitCode, code2: await $`exit 6`.exitCode,\n"+
			"    failed, late, signal: (await killed).signal, pipefail: await $`false | true`.exitCode, unset: await $`echo $NOPE`.quiet().exitCode,\n"+
			"    output: await $`echo [${await $`echo inner`.quiet()}]`.quiet().text() };\n"+
			"})"), nil).succeeded()
		equalJSON(t, j.Complete.Outputs["run"], `{"stdout":"one\ntwo\n","stderr":"bad\n","code":0,"text":"x","lines":["a","b"],"json":{"k":[1]},"quiet":["/","e none"],
			"stdin":"from stdin","nothrow":5,"code2":6,"failed":{"name":"ProcessError","message":"Command failed with exit code 3: echo why >&2; exit 3\nwhy","exitCode":3,"stderr":"why\n","signal":null},
			"late":"Command timed out after 30ms: sleep 60","signal":"SIGTERM","pipefail":1,"unset":1,"output":"[inner]\n"}`)
		if strings.Contains(j.log(0), "from stdin") || strings.Contains(j.log(0), "inner") {
			t.Errorf("a quiet command was logged: %q", j.log(0))
		}
	})
}

func TestValuesOfEveryKind(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, cmds(`
  const text = async (v) => { try { return await $~printf '[%s]' ${v}~.quiet().text(); } catch (e) { return e.name + ': ' + e.message; } };
  const { Buffer } = globalThis as any;
  const out: any = {
    undefined: undefined, null: null, object: {}, function: () => 1, symbol: Symbol('s'), nul: 'a\0b', map: new Map([['k', 1]]), set: new Set([1]), invalid: new Date(NaN), 'in a list': ['a', undefined],
    list: [['deep', 1, true, 2n]], 'empty text': '', 'empty list': [], number: -1.5, nan: NaN, date: new Date(0), url: new URL('http://x/a?b'), pattern: /a b/, error: new Error('x'),
    bytes: new TextEncoder().encode('é b'), output: await $~printf 'a b\n\n'~.quiet(), command: $~echo "c d"~.quiet(), promise: Promise.resolve(['e f', 'g']), promises: [Promise.resolve('h'), 'i'],
    rejected: { then: (_, no) => no(new Error('no value')) }, failed: $~echo why >&2; exit 3~.quiet(), 'promise of nothing': Promise.resolve(),
  };
  for (const [name, v] of Object.entries(out)) out[name] = await text(v);
  return out;
`), nil).succeeded()
		refused := func(kind string) string {
			return "TypeError: value 1 of a command is " + kind + "; text, a number, a boolean or a list of them is needed"
		}
		want := map[string]string{
			"undefined": refused("undefined"), "null": refused("null"), "object": refused("an object"), "function": refused("function"), "symbol": refused("symbol"),
			"nul": "TypeError: value 1 of a command holds a NUL character, which no argument can", "map": refused("an object (Map)"), "set": refused("an object (Set)"),
			"invalid": "[Invalid Date]", "in a list": refused("undefined"), "list": "[deep][1][true][2]", "empty text": "[]", "empty list": "[]", "number": "[-1.5]", "nan": "[NaN]",
			"date": "[1970-01-01T00:00:00.000Z]", "url": "[http://x/a?b]", "pattern": "[/a b/]", "error": "[Error: x]", "bytes": "[é b]", "output": "[a b\n]", "command": "[c d]",
			"promise": "[e f][g]", "promises": "[h][i]", "rejected": "Error: no value", "failed": "ProcessError: Command failed with exit code 3: echo why >&2; exit 3\nwhy", "promise of nothing": refused("undefined"),
		}
		var got map[string]string
		must(t, json.Unmarshal(j.Complete.Outputs["run"], &got))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// Whatever a value holds and whatever quotes stand around it, the command gets the value and never runs it.
func TestValuesAreNeverRun(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "ran")
	parts := []string{"'", `"`, "`", "$(touch " + marker + ")", "`touch " + marker + "`", ";touch " + marker + ";", "\n", "\\", "${HOME}", "$HOME", "*", "~", "#", "!", "&&", "|", " ", "\t", "é", "x", "--", "<<EOF", "$((1+1))", "\r", "{a,b}"}
	var values []string
	gen := rapid.SliceOfN(rapid.SampledFrom(parts), 0, 8)
	for seed := range 15 { // each costs nine shells
		values = append(values, strings.Join(gen.Example(seed), ""))
	}
	raw, err := json.Marshal(values)
	must(t, err)
	j := run(t, "embedded", workflow("step('echo', { timeout: 25000, run: async ({ $ }) => { const out = []; for (const v of "+string(raw)+") {\n"+
		"  const got = await Promise.all([$`printf %s ${v}`, $`printf %s \"${v}\"`, $`printf %s '${v}'`, $`printf %s \"a $(printf %s ${v})\"`, $`printf %s [${v}]`, $`printf '%s' \"it's \"${v}`,\n"+
		"    $`cat <<EOF\n${v}\nEOF`, $`cat <<EOF\nit's \"${v}\"\nEOF`, $`: # don't ${[v.replaceAll('\\n', ' ')]}`].map((p) => p.quiet().nothrow().text()));\n"+
		"  out.push(got.slice(0, 6)); } return out } })"), nil).succeeded()
	var got [][]string
	must(t, json.Unmarshal(j.Complete.Outputs["echo"], &got))
	for i, v := range values {
		inner := strings.TrimRight(v, "\n") // $(…) drops line ends
		want := []string{v, v, v, "a " + inner, "[" + v + "]", "it's " + v}
		if diff := cmp.Diff(want, got[i]); diff != "" {
			t.Errorf("value %q: %s", v, diff)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Fatal("a value was run")
	}
}

func TestOutputStreamsAsItComes(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		gate := filepath.Join(t.TempDir(), "gate")
		j := start(t, host, workflow("step('talk', async ({ $ }) => { await $`echo first; while ! test -e "+gate+"; do sleep 0.01; done; echo; printf last` })"), nil)
		j.untilLog("first") // the command waits for the gate: its line must come before its end
		must(t, os.WriteFile(gate, nil, 0o600))
		j.wait().succeeded()
		if diff := cmp.Diff([]string{"first", "", "last"}, j.Logs[0]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestBackgroundProcessesDoNotHoldAStep(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow("step('server', async ({ $ }) => { await $`sleep 60 & echo started` })"), nil).succeeded()
		if j.log(0) != "started" {
			t.Error(j.log(0))
		}
	})
}

func TestLongScriptsAndLines(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow("step('long', async ({ $ }) => { const v = 'x'.repeat(300000); return { n: (await $`printf %s ${v}`.quiet().text()).length, m: (await $`head -c 3000000 /dev/zero | tr '\\\\0' y`).stdout.length } })"), nil).succeeded()
		equalJSON(t, j.Complete.Outputs["long"], `{"n":300000,"m":3000000}`)
		total := 0
		for _, l := range j.Logs[0] {
			total += len(l)
		}
		if total != 3000000 || len(j.Logs[0]) < 3 {
			t.Errorf("%d bytes in %d lines", total, len(j.Logs[0]))
		}
	})
}

func TestShWithoutBash(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"sh", "printf", "cat"} {
		for _, from := range []string{"/bin/", "/usr/bin/"} {
			if _, err := os.Stat(from + name); err == nil {
				_ = os.Symlink(from+name, filepath.Join(dir, name))
			}
		}
	}
	t.Setenv("PATH", dir)
	j := run(t, "embedded", workflow("step('sh', async ({ $ }) => ({ v: await $`printf '%s,' ${['a b', \"it's\"]}`.text(), code: await $`false; true`.exitCode }))"), nil).succeeded()
	equalJSON(t, j.Complete.Outputs["sh"], `{"v":"a b,it's,","code":1}`)
}

func TestUnawaitedFailureIsToldAndHarmless(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow("step('fire', async ({ $ }) => { $`exit 7`; await $`sleep 0.2` })"), nil).succeeded()
		if !strings.Contains(j.log(0), "A command that nobody awaited failed: Command failed with exit code 7") {
			t.Error(j.log(0))
		}
	})
}
