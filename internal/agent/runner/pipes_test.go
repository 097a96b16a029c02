//go:build unix

package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cmds gives a workflow of one step whose body is text; ~ stands for a backquote.
func cmds(body string) string {
	return workflow("step('run', { timeout: 20000, run: async ({ $, signal }) => {\n" + strings.ReplaceAll(body, "~", "`") + "\n} })")
}

func TestCommandsArePiped(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, cmds(`
  const two = await $~printf 'b\\na\\n'~.pipe($~sort~);
  const three = await $~printf 'c\\nb\\na\\n'~.pipe~sort~.pipe~head -n ${2}~.lines();
  const p = $~printf 'kept'~; await p;
  const after = await p.pipe~cat; echo '!'~.quiet().text();
  const late = $~printf 'first\n'; sleep 0.3; printf 'second\n'~.quiet();
  await $~sleep 0.1~;
  const joined = await late.pipe~cat~.quiet().lines();
  await $~printf 'in a file\n'~.pipe('out.txt');
  const said = []; await $~printf 'x\ny'~.pipe({ write: (text) => said.push(text) });
  const enough = await $~yes~.pipe~head -n 1~.quiet().text();
  const first = await $~echo one; exit 3~.pipe~cat~.quiet().catch((e) => [e.exitCode, e.message]);
  const second = await $~echo one~.pipe~cat; exit 4~.quiet().catch((e) => e.exitCode);
  const tolerant = await $~echo one; exit 3~.nothrow().pipe~cat~.quiet().text();
  const nowhere = await $({ cwd: '/absent' })~echo x~.pipe~cat~.quiet().catch((e) => 'failed');
  const refused = await (async () => $~true~.pipe(7 as any))().catch((e) => e.message);
  return { two: two.text(), three, after, joined, file: (await $~cat out.txt~.quiet().text()), said, enough, first, second, tolerant, nowhere, refused };
`), nil).succeeded()
		equalJSON(t, j.Complete.Outputs["run"], `{"two":"a\nb\n","three":["a","b"],"after":"kept!\n","joined":["first","second"],"file":"in a file\n","said":["x\n","y\n"],
			"enough":"y\n","first":[3,"Command failed with exit code 3: echo one; exit 3\none"],"second":4,"tolerant":"one\n","nowhere":"failed",
			"refused":"pipe() takes a command, the path of a file, or what has a method write"}`)
		if got := j.log(0); got != "a\nb\na\nb\nkept" {
			t.Errorf("the log of commands that are piped: %q", got)
		}
	})
}

func TestCommandsReadWhatIsWritten(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, cmds(`
  const p = $~while read line; do echo "got $line"; done~.quiet();
  await p.stdin.write('one\n');
  await p.stdin.end(new Uint8Array([116, 119, 111, 10]));
  const bytes = await $({ input: new Uint8Array([0, 255, 10]) })~od -An -tx1~.quiet().text();
  const of = await $({ stdin: await $~printf 'a b'~.quiet() })~cat~.quiet().text();
  const raw = await $~printf '\\377\\001'~.quiet().buffer();
  const text = (await $~printf 'é'~.quiet()).buffer();
  const gone = $~true~; gone.stdin; await gone;
  const late = await gone.stdin.write('x').catch((e) => e.message);
  const bad = await (async () => $({ input: 7 as any })~cat~)().catch((e) => e.message);
  return { p: (await p).lines(), bytes: bytes.trim(), of, raw: [...raw], text: [...text], late, bad };
`), nil).succeeded()
		equalJSON(t, j.Complete.Outputs["run"], `{"p":["got one","got two"],"bytes":"00 ff 0a","of":"a b","raw":[255,1],"text":[195,169],"late":false,
			"bad":"the input of a command must be text, bytes or the output of another command"}`)
	})
}

func TestLinesComeWhileTheCommandRuns(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		gate := filepath.Join(t.TempDir(), "gate")
		j := start(t, host, cmds(`
  const seen = [];
  for await (const line of $~echo first; while ! test -e `+gate+`; do sleep 0.01; done; echo second; printf 'third'~.quiet()) {
    seen.push(line);
    console.log('seen ' + line);
  }
  for await (const line of $~yes~.quiet()) { seen.push(line); break; }
  let failed = '';
  try { for await (const line of $~echo a; exit 3~.quiet()) seen.push(line); } catch (e) { failed = e.message; }
  return { seen, failed, sync: [...await $~printf '1\n2\n'~.quiet()] };
`), nil)
		j.untilLog("seen first")
		must(t, os.WriteFile(gate, nil, 0o600))
		j.wait().succeeded()
		equalJSON(t, j.Complete.Outputs["run"], `{"seen":["first","second","third","y","a"],"failed":"Command failed with exit code 3: echo a; exit 3\na","sync":["1","2"]}`)
	})
}

func TestStreamsGoWhereTheyAreSent(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, cmds(`
  const say = () => $~echo out; echo err >&2~;
  const all = await say();
  const inherit = await say().stdio('ignore', 'inherit', 'ignore');
  const option = await $({ stdio: ['pipe', 'ignore', 'pipe'] })~echo gone; echo kept >&2~;
  const none = await $({ stdio: 'ignore', input: 'x' })~cat; echo z~;
  return [all, inherit, option, none].map((o) => o.stdout + '|' + o.stderr);
`), nil).succeeded()
		equalJSON(t, j.Complete.Outputs["run"], `["out\n|err\n","|","|kept\n","|"]`)
		got := map[string]int{}
		for _, line := range j.Logs[0] {
			got[line]++
		}
		if diff := cmp.Diff(map[string]int{"out": 2, "err": 1, "kept": 1}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCommandsEndWithASignalOfTheAuthors(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, cmds(`
  const own = new AbortController();
  const p = $({ signal: own.signal })~echo up; sleep 60~.quiet();
  for await (const line of p) { own.abort(); break; }
  const ended = await p.catch((e) => [e.name, e.signal, e.exitCode]);
  const before = await $({ signal: own.signal })~echo x~.catch((e) => e.message);
  const kill = $({ killSignal: 'SIGKILL' })~sleep 60~.nothrow(); setTimeout(() => kill.kill(), 20);
  const late = await $~sleep 60~.timeout('30ms', 'SIGKILL').catch((e) => [e.message, e.signal]);
  const bad = await $~true~.timeout('soon').catch((e) => e.message);
  return { ended, before: before.split(':')[0], killed: (await kill).signal, late, bad };
`), nil).succeeded()
		equalJSON(t, j.Complete.Outputs["run"], `{"ended":["ProcessError","SIGTERM",null],"before":"command not started","killed":"SIGKILL",
			"late":["Command timed out after 30ms: sleep 60","SIGKILL"],"bad":"a time must be a number of milliseconds or like 500ms, 10s or 2m, not \"soon\""}`)
	})
}

// A command that is killed at the moment of its start ends as well.
func TestKillAtTheStart(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, cmds(`
  const ends = await Promise.all(Array.from({ length: 12 }, async (_, i) => {
    const p = $~sleep 60~.nothrow();
    for (let turns = 0; turns < 5; turns++) await null; // it starts when the present code yields
    await p.kill(i % 2 ? 'SIGKILL' : 'SIGTERM');
    return (await p).signal;
  }));
  return [...new Set(ends)];
`), nil).succeeded()
		equalJSON(t, j.Complete.Outputs["run"], `["SIGTERM","SIGKILL"]`)
		if got := j.log(0); got != "" { // such as a warning of node's that many listen to one signal
			t.Errorf("the log says %q", got)
		}
	})
}

// The error of a command says where the author called it, in the author's file.
func TestFailedCommandsNameTheirCall(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, cmds("  const ok = await $~true~;\n  await $~echo why >&2; exit 3~;"), nil).failed("Step 'run' failed")
		if !strings.Contains(j.log(0), "    at .kici/workflows/ci.ts:4:") {
			t.Errorf("the log does not say where: %s", j.log(0))
		}
		if e := j.step("run").Error; e.ExitCode == nil || *e.ExitCode != 3 || e.Message != "Command failed with exit code 3: echo why >&2; exit 3\nwhy" {
			t.Errorf("%+v", e)
		}
	})
}

// An option that cannot be followed is refused by its name, and the command does not start.
func TestOptionsOfCommandsAreChecked(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, cmds(`
  const said = async (f) => { try { return (await f()).stdout; } catch (e) { return e.name + ': ' + e.message; } };
  const tests: any = {
    unknown: () => $({ quite: true } as any)~touch ran~,
    strange: () => $({ prefix: 'x' } as any)~touch ran~,
    cwd: () => $({ cwd: 7 as any })~touch ran~,
    'cwd absent': () => $({ cwd: '/absent/x' })~touch ran~,
    'cwd a file': () => $({ cwd: '/etc/passwd' })~touch ran~,
    env: () => $({ env: 'A=1' as any })~touch ran~,
    'env name': () => $({ env: { 'A=B': 'x' } })~touch ran~,
    'env value': () => $({ env: { A: { b: 1 } as any } })~touch ran~,
    stdio: () => $({ stdio: 'out' as any })~touch ran~,
    'stdio list': () => $({ stdio: ['pipe', 'out' as any] })~touch ran~,
    'stdio()': () => $~touch ran~.stdio('out' as any),
    signal: () => $({ signal: {} })~touch ran~,
    killSignal: () => $({ killSignal: 'TERM' })~touch ran~,
    timeoutSignal: () => $~touch ran~.timeout(5000, 'KILL'),
    'timeout NaN': () => $~touch ran~.timeout(NaN),
    'timeout text': () => $({ timeout: '1h' })~touch ran~,
    'timeout below': () => $~touch ran~.timeout(-1),
    input: () => $({ input: {} as any })~touch ran~.pipe~cat~,
    itself: () => { const p = $~cat~.nothrow(); setTimeout(() => p.kill(), 10); return p.pipe(p); },
    circle: () => { const a = $~cat~.nothrow(), b = $~cat~.nothrow(); a.pipe(b); setTimeout(() => { a.kill(); b.kill(); }, 10); return b.pipe(a); },
    kill: async () => { const p = $~sleep 60~.nothrow(); await $~true~; const said = await p.kill('SIGFOO').catch((e) => e); await p.kill('SIGKILL'); await p; throw said; },
    'kill number': async () => { const p = $~sleep 60~.nothrow(); await $~true~; const said = await p.kill(9 as any).catch((e) => e); await p.kill('SIGKILL'); await p; throw said; },
    fine: () => $({ cwd: undefined, env: { A: undefined, B: 1 as any }, quiet: true, timeout: 1e300 })~echo fine $B; sleep 0.1~.timeout(1e17),
    'no limit': () => $~sleep 0.1; echo done~.quiet().timeout(0),
    relative: async () => { await $~mkdir -p sub/deep~; return $({ cwd: 'sub', quiet: true })({ cwd: 'sub/deep' })~basename "$PWD"~; },
    'no json': async () => { (await $~echo nope~.quiet()).json(); },
  };
  const out = {};
  for (const [name, f] of Object.entries(tests)) out[name] = (await said(f)).replace(/(no JSON: ).*/s, '$1…');
  return { ...out, ran: (await $~ls~.quiet().text()) };
`), nil).succeeded()
		want := map[string]string{
			"unknown": "TypeError: $ has no option 'quite'; did you mean 'quiet'?", "strange": "TypeError: $ has no option 'prefix'",
			"cwd": "TypeError: cwd must be the path of a folder, not 7", "cwd absent": "Error: start command: cwd: stat /absent/x: no such file or directory",
			"cwd a file": "Error: start command: cwd: /etc/passwd is not a folder", "env": "TypeError: env must be a map of variables, not \"A=1\"",
			"env name": "TypeError: env: \"A=B\" cannot be the name of a variable", "env value": "TypeError: env 'A' must hold texts, not {\"b\":1}",
			"stdio":      "TypeError: stdio must be 'pipe', 'inherit' or 'ignore', or a list of those for stdin, stdout and stderr, not \"out\"",
			"stdio list": "TypeError: stdio must be 'pipe', 'inherit' or 'ignore', or a list of those for stdin, stdout and stderr, not [\"pipe\",\"out\"]",
			"stdio()":    "TypeError: stdio must be 'pipe', 'inherit' or 'ignore', or a list of those for stdin, stdout and stderr, not [\"out\",\"pipe\",\"pipe\"]",
			"signal":     "TypeError: signal must be an AbortSignal, not {}", "killSignal": "TypeError: a signal must be named like SIGTERM, not \"TERM\"",
			"timeoutSignal": "TypeError: a signal must be named like SIGTERM, not \"KILL\"",
			"timeout NaN":   "TypeError: a time must be a number of milliseconds or like 500ms, 10s or 2m, not NaN",
			"timeout text":  "TypeError: a time must be a number of milliseconds or like 500ms, 10s or 2m, not \"1h\"",
			"timeout below": "TypeError: a time must be a number of milliseconds or like 500ms, 10s or 2m, not -1",
			"input":         "TypeError: the input of a command must be text, bytes or the output of another command",
			"itself":        "TypeError: a command cannot be piped into itself", "circle": "TypeError: a command cannot be piped into itself",
			"kill": "Error: unknown signal \"SIGFOO\"", "kill number": "TypeError: a signal must be named like SIGTERM, not 9",
			"fine": "fine 1\n", "no limit": "done\n", "relative": "deep\n", "no json": "SyntaxError: what the command printed is no JSON: …", "ran": "sub\n",
		}
		var got map[string]string
		must(t, json.Unmarshal(j.Complete.Outputs["run"], &got))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// The error of a command offers what its output would.
func TestErrorsOfCommandsCarryTheOutput(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, cmds(`
  const e = await $~printf '{"a":1}\n'; echo bad >&2; exit 3~.quiet().catch((e) => e);
  return { error: e instanceof Error, ok: e.ok, text: e.text(), lines: e.lines(), json: e.json(), bytes: e.buffer().length, code: e.exitCode, signal: e.signal, stderr: e.stderr };
`), nil).succeeded()
		equalJSON(t, j.Complete.Outputs["run"], `{"error":true,"ok":false,"text":"{\"a\":1}\n","lines":["{\"a\":1}"],"json":{"a":1},"bytes":8,"code":3,"signal":null,"stderr":"bad\n"}`)
	})
}
