//go:build unix

package runner

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStepsRunInOrderAndPassOutputs(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `
import { workflow, job, step } from '@kici-dev/sdk';
const first = step('first', async (ctx) => { ctx.log.info('one'); ctx.log.warn('two'); ctx.log.debug('never'); return { v: 1, d: new Date(0) }; });
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', steps: [
  first,
  async (ctx) => { console.log('from console', { a: 1 }); await ctx.$`+"`echo $GREETING; echo err >&2`"+`; return { seen: ctx.outputsOf(first), lazy: first.result.v }; },
  step('text', async () => 'only text'),
] })] });`, nil).succeeded()
		if got := j.results(); got != "0:first:success 1:step-1:success 2:text:success" {
			t.Error(got)
		}
		equalJSON(t, j.Complete.Outputs, `{"first":{"v":1,"d":"1970-01-01T00:00:00.000Z"},"step-1":{"seen":{"v":1,"d":"1970-01-01T00:00:00.000Z"},"lazy":1},"text":"only text"}`)
		if got := j.log(0); got != "[first] one\n[first] [warn] two" {
			t.Errorf("log of the first step: %q", got)
		}
		for _, want := range []string{"from console", "hello", "err"} {
			if !strings.Contains(j.log(1), want) {
				t.Errorf("log %q lacks %q", j.log(1), want)
			}
		}
		if got := strings.Join(j.Order, ", "); got != "start first, success first, start step-1, success step-1, start text, success text" {
			t.Error(got)
		}
		if !strings.Contains(j.Logs[JobLog][0], map[string]string{"embedded": "embedded", "node": "import of node:os (.kici/workflows/ci.ts"}[host]) {
			t.Errorf("the first line does not name the host: %v", j.Logs[JobLog])
		}
	})
}

func TestOutputsMustFitTheirSchemasAndJSON(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `import { z } from 'zod';
`+workflow(`
  step('good', { outputs: { n: z.number() }, run: async () => ({ n: 1 }) }),
  step('wrong', { continueOnError: true, outputs: { n: z.number() }, run: async () => ({ n: 'seven' }) }),
  step('cycle', { continueOnError: true, run: async () => { const a = {}; a.a = a; return a; } }),
  step('text', { continueOnError: true, outputs: { n: z.number().optional() }, run: async () => 'seven' }),
  step('none', async () => null), step('nothing', { outputs: { n: z.number().optional() }, run: async () => {} })`), nil).failed("Step 'wrong' failed")
		equalJSON(t, j.Complete.Outputs, `{"good":{"n":1},"nothing":{}}`)
		if got := j.results(); got != "0:good:success 1:wrong:failed 2:cycle:failed 3:text:failed 4:none:success 5:nothing:success" {
			t.Error(got)
		}
		if e := j.step("wrong").Error.Message; !strings.Contains(e, "output 'n'") {
			t.Error(e)
		}
		if e := j.step("text").Error.Message; e != `a step with outputs must return an object that holds them, not "seven"` {
			t.Error(e)
		}
		if e := j.step("cycle").Error.Message; !strings.Contains(e, "Step 'cycle' returned what JSON cannot hold") {
			t.Error(e)
		}
	})
}

func TestContextShowsWhatTheDispatchSays(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('see', async (ctx) => ({
  matrix: ctx.matrix, fanout: ctx.fanout, inputs: ctx.dispatchInputs, needs: ctx.needs, payload: ctx.rawPayload, workflow: ctx.workflow,
  job: ctx.job, env: ctx.env.GREETING, environment: ctx.environment, provider: ctx.provider, isTestRun: ctx.isTestRun,
  plain: ctx.jobOutputs('build'), byMatrix: ctx.jobOutputs({ name: 'test' }).byMatrix['22'].s.v, host: 'host' in ctx, aborted: ctx.signal.aborted }))`), map[string]any{
			"matrixValues": map[string]any{"value": "20"}, "fanoutIndex": 0, "fanoutTotal": 2,
			"dispatchInputs": map[string]any{"level": 3}, "environment": "prod", "provider": "github",
			"jobNeeds": []any{"build", map[string]any{"name": "test", "runOn": []string{"success"}}},
			"upstreamJobOutputs": map[string]any{
				"build": map[string]any{"s": map[string]any{"v": 1}},
				"test":  map[string]any{"byMatrix": map[string]any{"22": map[string]any{"s": map[string]any{"v": "x"}}}, "merged": map[string]any{}},
			},
			"upstreamJobStatuses": map[string]any{"build": "success", "test (22)": "success", "test (20)": "failed"},
		}).succeeded()
		equalJSON(t, j.Complete.Outputs["see"], `{"matrix":{"value":"20"},"fanout":{"index":0,"total":2,"first":true,"last":false},"inputs":{"level":3},
			"needs":{"build":{"result":{"s":{"v":1}},"status":"success"},"test":[{"name":"test (20)","result":{},"status":"failed"},{"name":"test (22)","result":{"s":{"v":"x"}},"status":"success"}]},
			"payload":{"n":1},"workflow":{"name":"ci"},"job":{"name":"unit","runsOn":"linux"},"env":"hello","environment":"prod","provider":"github","isTestRun":false,
			"plain":{"s":{"v":1}},"byMatrix":"x","host":false,"aborted":false}`)
	})
}

func TestContextOfAHost(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `import { workflow, job, step, onlyOnFirstHost, onlyOnLastHost, onlyOnFanoutIndex } from '@kici-dev/sdk';
const see = async ({ host, agent, fanout, matrix, rawPayload }) => ({ host, agent, fanout, matrix, rawPayload, has: rawPayload !== undefined });
export default workflow('ci', { jobs: [job('unit', { runsOnAll: 'linux', steps: [step('see', see),
  step('first', { rules: [onlyOnFirstHost()], run: see }), step('last', { rules: [onlyOnLastHost()], run: see }), step('second', { rules: [onlyOnFanoutIndex(1)], run: see }), step('third', { rules: [onlyOnFanoutIndex(2)], run: see })] })] });`,
			map[string]any{"host": "box-2", "agent": map[string]any{"host": "box-2", "labels": []string{"linux"}, "platform": "linux"}, "fanoutIndex": 1, "fanoutTotal": 2, "event": map[string]any{"type": "schedule"}}).succeeded()
		equalJSON(t, j.Complete.Outputs["see"], `{"host":"box-2","agent":{"host":"box-2","labels":["linux"],"platform":"linux"},"fanout":{"index":1,"total":2,"first":false,"last":true},"has":false}`)
		if got := j.results(); got != "0:see:success 1:first:skipped 2:last:success 3:second:success 4:third:skipped" {
			t.Error(got)
		}
		if got := j.log(1); got != "[kici] Step 'first' skipped: rule 'fanout: first host only' did not pass" {
			t.Error(got)
		}
	})
}

func TestFailingStepEndsTheJob(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `import { workflow, job, step } from '@kici-dev/sdk';
function deep() {
  throw new Error('deliberate');
}
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', steps: [
  step('breaks', async () => deep()), step('never', async () => {})] })] });`, nil).failed("Step 'breaks' failed")
		if got := j.results(); got != "0:breaks:failed" {
			t.Error(got)
		}
		if e := j.step("breaks").Error; e.Message != "deliberate" || e.ExitCode != nil {
			t.Errorf("%+v", e)
		}
		if !strings.Contains(j.log(0), "Step 'breaks' failed: deliberate\n    at .kici/workflows/ci.ts:3:") {
			t.Errorf("the log does not say where: %q", j.log(0))
		}
	})
}

// Whatever is thrown, the step says so in words, and the log tells what lies behind it.
func TestWhateverIsThrownIsTold(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, "import { waitFor } from '@kici-dev/sdk';\nconst fails = (thrown) => ({ continueOnError: true, run: async () => { throw thrown; } });\n"+workflow(`
  step('undefined', fails(undefined)), step('null', fails(null)), step('text', fails('why')), step('map', fails({ code: 7 })), step('bare', fails(Object.create(null))), step('symbol', fails(Symbol('s'))),
  step('empty', fails(new TypeError(''))), step('like', fails({ message: 'like an error' })), step('several', fails(new AggregateError([new Error('one'), 'two'], 'both'))),
  step('cause', fails(new Error('outer', { cause: new Error('inner', { cause: 'the root' }) }))),
  step('wait', { continueOnError: true, run: () => waitFor({ timeoutMs: 1, intervalMs: 1, check: () => { throw new Error('refused'); } }) })`), nil).failed("Step 'undefined' failed")
		want := map[string]string{"undefined": "undefined was thrown", "null": "null was thrown", "text": "why", "map": `{"code":7}`, "bare": "{}", "symbol": "Symbol(s)",
			"empty": "TypeError", "like": "like an error", "several": "both", "cause": "outer"}
		for name, message := range want {
			if e := j.step(name).Error; e == nil || e.Message != message {
				t.Errorf("%s: %+v", name, e)
			}
		}
		for index, want := range map[int]string{8: "failed: both\n    because of one\n    because of two\n", 9: "failed: outer\n    because of inner\n    because of the root\n    at ", 10: "\n    because of refused\n"} {
			if !strings.Contains(j.log(index)+"\n", want) {
				t.Errorf("the log of step %d: %s", index, j.log(index))
			}
		}
	})
}

func TestRules(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`
  step('left-out', { rules: [rule('on main', ({ event }) => event.type === 'pull_request')], run: async () => {} }),
  step('skip', { rules: [skip('draft', () => true)], run: async () => {} }),
  step('throws', { rules: [rule('broken', () => { throw new Error('oops') })], run: async () => {} }),
  step('runs', { rules: [rule('files', ({ changedFiles, env, dispatchInputs }) => changedFiles.length === 1 && env.GREETING === 'hello' && !!dispatchInputs),
    rule('shell', async ({ $ }) => (await $`+"`echo yes`.text()"+`).trim() === 'yes')], run: async () => ({ ok: true }) })`),
			map[string]any{"event": map[string]any{"type": "push", "changedFiles": []string{"a.txt"}}}).succeeded()
		if got := j.results(); got != "0:left-out:skipped 1:skip:skipped 2:throws:skipped 3:runs:success" {
			t.Error(got)
		}
		if got := j.log(0); got != "[kici] Step 'left-out' skipped: rule 'on main' did not pass" {
			t.Error(got)
		}
		if got := j.log(2); got != "[kici] Step 'throws' skipped: rule 'broken' did not pass (oops)" {
			t.Error(got)
		}
	})
}

func TestJobRuleSkipsEverything(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `import { workflow, job, step, rule } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', rules: [rule('never', () => false)], onSuccess: () => { throw 1 },
  steps: [step('a', async () => {}), step('b', async () => {})] })] });`, nil).succeeded()
		if got := j.results(); got != "0:a:skipped 1:b:skipped" || len(j.Steps) != 0 {
			t.Error(got, j.Order)
		}
	})
}

func TestRetryShowsEachAttempt(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `let n = 0;
`+workflow(`
  step('flaky', { retry: { maxAttempts: 3, delayMs: 1 }, run: async () => { if (++n < 3) throw new Error('no ' + n); return { n }; } }),
  step('hopeless', { continueOnError: true, retry: { maxAttempts: 2, delayMs: 1, backoff: 'fixed' }, run: async () => { throw new Error('never'); } }),
  step('not-that', { continueOnError: true, retry: { maxAttempts: 5, delayMs: 1, retryIf: (e) => e.message !== 'fatal' }, run: async () => { throw new Error('fatal'); } })`), nil).failed("")
		if got := strings.Join(j.Order, ","); got != "start flaky,failed flaky,start flaky,failed flaky,start flaky,success flaky,"+
			"start hopeless,failed hopeless,start hopeless,failed hopeless,start not-that,failed not-that" {
			t.Error(got)
		}
		if got := j.log(0); got != "[kici] Step 'flaky' attempt 1/3 failed: no 1; retrying in 1ms\n[kici] Step 'flaky' attempt 2/3 failed: no 2; retrying in 2ms" {
			t.Error(got)
		}
		if got := j.results(); got != "0:flaky:success 1:hopeless:failed 2:not-that:failed" {
			t.Error(got)
		}
	})
}

func TestContinueOnErrorStillFailsTheJob(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('soft', { continueOnError: true, run: async () => { throw new Error('soft') } }), step('next', async () => {})`), nil).failed("Step 'soft' failed")
		if got := j.results(); got != "0:soft:failed 1:next:success" {
			t.Error(got)
		}
	})
}

func TestVariablesReachLaterSteps(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow("\n"+
			"step('set', async (ctx) => { ctx.setEnv('FROM_STEP', 'x y'); ctx.addPath('/added'); ctx.setEnv('TOKEN', 'mine');\n"+
			"  await ctx.$`echo now [\\${FROM_STEP-unset}]`.nothrow(); return { seen: ctx.env.FROM_STEP }; }),\n"+
			"step('files', async ({ $ }) => { await $`printf 'A=1\\nB = x=y\\n\\n=bad\\nC\\nTOKEN=stolen\\n' >> $KICI_ENV; printf '/a\\n/b\\n' >> $KICI_PATH`; }),\n"+
			"step('failing', { continueOnError: true, run: async ({ $ }) => { await $`echo D=4 >> $KICI_ENV; exit 3`; } }),\n"+
			"step('see', async ({ $, env }) => ({ a: env.A, b: env.B, c: 'C' in env, d: env.D, token: env.TOKEN ?? null, path: env.PATH.slice(0, 13),\n"+
			"  shell: (await $`echo $A,$B,$D,$FROM_STEP,$PATH`.text()).trim().slice(0, 24), mark: (await $`env`.quiet().text()).includes('KICI_GROUP') }))"),
			map[string]any{"secrets": map[string]any{"TOKEN": "real-token"}}).failed("Step 'failing' failed")
		equalJSON(t, j.Complete.Outputs["set"], `{"seen":"x y"}`)
		got := string(j.Complete.Outputs["see"])
		for _, want := range []string{`"a":"1"`, `"b":" x=y"`, `"c":false`, `"d":"4"`, `"token":null`, `"path":"/a:/b:/added:"`, `"shell":"1, x=y,4,x y,/a:/b:/adde"`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %s", got, want)
			}
		}
		if !strings.Contains(j.log(0), "Cannot override operator secret \"TOKEN\"") || !strings.Contains(j.log(JobLog), "Cannot override operator secret \"TOKEN\"") {
			t.Errorf("no line about the secret: %v", j.Logs)
		}
		if e := j.step("failing").Error; e.ExitCode == nil || *e.ExitCode != 3 {
			t.Errorf("%+v", e)
		}
	})
}

func TestSecretsAreReadAndMasked(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		const key = "-----BEGIN KEY-----\nline two of it\n-----END KEY-----"
		j := run(t, host, workflow("\n"+
			"step('read', async (ctx) => { const v = await ctx.secrets.get('API'); ctx.log.info('value ' + v); console.log(v); await ctx.$`echo shell ${v}; printf %s ${v} | base64; echo ab`;\n"+
			"  return { list: ctx.secrets.list(), has: ctx.secrets.has('NOPE'), error: await ctx.secrets.get('NOPE').catch((e) => e.name) }; }),\n"+
			"step('unread', async (ctx) => { await ctx.$`echo line two of it >&2`; }),\n"+
			"step('mount', async (ctx) => { const m = await ctx.secrets.mountFile({ sources: ['CERT'] }); await ctx.$`stat -c %a ${m.path}; wc -l < ${m.path}; cat ${m.path}`;\n"+
			"  await ctx.secrets.exposeFile('CERT_PATH', { sources: ['CERT'], name: 'cert.pem' }); await ctx.$`basename $CERT_PATH`; return { path: m.path }; }),\n"+
			"step('gone', async (ctx) => { const p = ctx.outputsOf('mount').path; await ctx.$`test -e ${p} && echo still there || echo removed; echo \\${CERT_PATH-unset}`; }),\n"+
			"step('expose', async (ctx) => { await ctx.secrets.expose('API'); await ctx.$`echo exposed \\${API-unset}`; }),\n"+
			"step('throws', async (ctx) => { throw new Error('failed with ' + await ctx.secrets.get('API')); })"),
			map[string]any{"secrets": map[string]any{"API": "abc123", "SHORT": "ab"}, "namespacedSecrets": map[string]any{"prod": map[string]any{"CERT": key}}}).failed("")
		read := j.step("read")
		equalJSON(t, j.Complete.Outputs["read"], `{"list":["API","CERT","SHORT"],"has":false,"error":"SecretNotFoundError"}`)
		if strings.Join(read.SecretsAccessed, ",") != "API" {
			t.Error(read.SecretsAccessed)
		}
		if got := j.log(0); got != "[read] value ***\n***\nshell ***\n***\nab" {
			t.Errorf("%q", got)
		}
		if got := j.log(1); got != "***" {
			t.Errorf("%q", got)
		}
		if got := j.log(2); got != "600\n2\n***\n***\n***\ncert.pem" {
			t.Errorf("%q", got)
		}
		if got := j.log(3); got != "removed\nunset" {
			t.Errorf("%q", got)
		}
		if got := j.log(4); got != "exposed ***" {
			t.Errorf("%q", got)
		}
		if e := j.step("throws").Error.Message; e != "failed with ***" {
			t.Error(e)
		}
		for _, r := range j.Complete.StepResults {
			if strings.Contains(r.Error, "abc123") {
				t.Errorf("step result shows a secret: %s", r.Error)
			}
		}
		if len(j.Mounts) != 2 || j.Mounts[0].Kind != "mountFile" || j.Mounts[1].EnvVar != "CERT_PATH" || j.Mounts[0].StepIndex != 2 {
			t.Errorf("%+v", j.Mounts)
		}
	})
}

func TestSecretOutputs(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('make', async (ctx) => { ctx.setSecretOutput('PASSWORD', 'made-here'); ctx.log.info('it is made-here'); }),
  step('many', async (ctx) => { for (let i = 0; i < 20; i++) ctx.setSecretOutput('K' + i, 'v'); })`), nil).failed("Step 'many' failed")
		if j.Complete.SecretOutputs["PASSWORD"] != "made-here" || len(j.Complete.SecretOutputs) != 20 {
			t.Errorf("%v", j.Complete.SecretOutputs)
		}
		if got := j.log(0); got != "[make] it is ***" {
			t.Error(got)
		}
	})
}

// A mistake in a call is told by the call's name and by what it takes, the same on both hosts, before anything happens.
func TestCallsOfTheContextAreChecked(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, "import { defineEvent, z, waitFor, waitForHostAlive, idempotent, SecretNotFoundError } from '@kici-dev/sdk';\n"+workflow(`step('calls', async (ctx: any) => {
  const { secrets, kici, cache, files } = ctx;
  const calls = {
    'setEnv name': () => ctx.setEnv('A=B', 'x'), 'setEnv nothing': () => ctx.setEnv('A'), 'setEnv object': () => ctx.setEnv('A', {}), addPath: () => ctx.addPath(),
    get: () => secrets.get('NOPE'), expose: () => secrets.expose('K', 'A=B'), sources: () => secrets.mountFile({ sources: [7] }), mode: () => secrets.mountFile({ sources: ['K'], mode: '600' }),
    divider: () => secrets.mountFile({ sources: ['K', 'K'], divider: 7 }), name: () => secrets.mountFile({ sources: ['K'], name: 7 }), exposeFile: () => secrets.exposeFile({ sources: ['K'] }),
    'emit nothing': () => ctx.emit(), 'emit number': () => ctx.emit(7), payload: () => ctx.emit('x', 'text'), schema: () => ctx.emit(defineEvent('e', z.string()), 'text'), target: () => ctx.emit('x', {}, { target: { repos: 'a/b' } }), 'emit option': () => ctx.emit('x', {}, { repos: ['a/b'] }),
    secretOutput: () => ctx.setSecretOutput(), 'secretOutput number': () => ctx.setSecretOutput('k', 7), restore: () => cache.restore(), caches: () => cache.save([{ key: 'a', paths: 'p' }, { key: 'b', paths: 'p' }]), key: () => cache.save({ key: 7 }),
    subject: () => ctx.attestProvenance(), oidc: () => kici.oidc.token(), audience: () => kici.oidc.token({ audience: 'x'.repeat(256) }), host: () => kici.inventory.get(), query: () => kici.inventory.query('linux'),
    reboot: () => kici.host.requestReboot(5), init: () => kici.bootstrap.ensureInitRunner(), send: () => kici.bootstrap.preBootSend('box'), read: () => files.read(), write: () => files.write('f', undefined), fileMode: () => files.write('f', 'x', { mode: '755' }),
    waitFor: () => waitFor({ timeoutMs: 10 } as any), alive: () => waitForHostAlive(undefined as any), idempotent: () => idempotent({ check: () => 1 } as any),
  };
  const out = {};
  for (const [name, call] of Object.entries(calls)) out[name] = await Promise.resolve().then(call).then(() => 'passes', (e) => e.message);
  return out;
})`), map[string]any{"secrets": map[string]any{"K": "secret-value"}}).succeeded()
		want := map[string]string{
			"setEnv name": `setEnv: "A=B" cannot be the name of a variable`, "setEnv nothing": "setEnv 'A' must hold texts, not undefined", "setEnv object": "setEnv 'A' must hold texts, not {}",
			"addPath": "addPath needs a folder, not undefined",
			"get":     `Secret "NOPE" not found. Available keys: K. Use ctx.secrets.has('NOPE') to check existence, or await ctx.secrets.get('NOPE') in a try/catch.`,
			"expose":  `secrets.expose: "A=B" cannot be the name of a variable`, "sources": "secrets.mountFile needs a non-empty list of sources",
			"mode": `secrets.mountFile: mode must be a number such as 0o600, not "600"`, "divider": "secrets.mountFile: divider must be text, not 7", "name": `secrets.mountFile: "7" is not a plain file name`,
			"exposeFile":   `secrets.exposeFile: {"sources":["K"]} cannot be the name of a variable`,
			"emit nothing": "emit needs the name of an event, or what defineEvent gives, not undefined", "emit number": "emit needs the name of an event, or what defineEvent gives, not 7",
			"payload": `emit x: the payload must be an object, not "text"`, "schema": `emit e: the payload must be an object, not "text"`,
			"target": `emit x: target must be { repos: [...] }, not {"repos":"a/b"}`, "emit option": "emit x has no option 'repos', only target: { repos: [...] }",
			"secretOutput": "setSecretOutput needs a name, not undefined", "secretOutput number": "secret output 'k' must be text", "restore": "the cache must be one { key, paths }, not undefined",
			"caches": `the cache must be one { key, paths }, not [{"key":"a","paths":"p"},{"key":"b","paths":"p"}]`, "key": "cache.key must be text",
			"subject": "attestProvenance needs a subject with a name", "oidc": "oidc.token needs an audience of 1 to 255 characters, not undefined",
			"audience": `oidc.token needs an audience of 1 to 255 characters, not "` + strings.Repeat("x", 79) + "…", "host": "inventory.get needs the id of an agent, not undefined",
			"query": `inventory.query takes a map, not "linux"`, "reboot": "host.requestReboot takes a map, not 5", "init": "bootstrap.ensureInitRunner needs the id of an agent, not undefined",
			"send": "bootstrap.preBootSend needs an inputSecret, the name of a secret, not undefined", "read": "files.read needs a path, not undefined", "write": "a file cannot hold undefined",
			"fileMode": `files.write: mode must be a number such as 0o755, not "755"`, "waitFor": "waitFor needs a function check", "alive": "waitForHostAlive needs the id of an agent, not undefined",
			"idempotent": "idempotent needs a function apply",
		}
		var got map[string]string
		must(t, json.Unmarshal(j.Complete.Outputs["calls"], &got))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if len(j.Requests) > 0 || len(j.Mounts) > 0 {
			t.Errorf("the agent was asked: %+v %+v", j.Requests, j.Mounts)
		}
	})
}

// Whatever is logged, logging it fails no step.
func TestEverythingCanBeLogged(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('s', async ({ log }) => { const ring = { n: 1 } as any; ring.ring = ring;
  log.info(); log.info(undefined, null, 2n, Symbol('x'), () => 1); log.warn(ring); log.error(new Error('boom'), { b: 2n }, new Map([['k', 1]]), new Set([1])); log.info({ toJSON() { throw 1 } }); })`), nil).succeeded()
		want := []string{"[s] ", "[s] undefined null 2n Symbol(x) () => 1", `[s] [warn] {"n":1,"ring":"[seen above]"}`, `[s] [error] boom {"b":"2n"} {"map":[["k",1]]} {"set":[1]}`, "[s] [object Object]"}
		if diff := cmp.Diff(want, j.Logs[0]); diff != "" {
			t.Error(diff)
		}
	})
}
