package sdk_test

import (
	"strings"
	"testing"
)

func TestSchemasJudgeValues(t *testing.T) {
	vm := machine(t, `import { z } from './zod';
const schemas = {
  text: z.string().min(2).max(4), pattern: z.string().regex(/^v\d+$/g), number: z.number().int().positive(),
  list: z.array(z.number()).nonempty(), object: z.object({ a: z.string(), b: z.number().optional(), c: z.string().default('d') }),
  strict: z.strictObject({ a: z.string() }), record: z.record(z.string(), z.boolean()), tuple: z.tuple([z.string(), z.number()]),
  union: z.union([z.string(), z.number()]), choice: z.enum(['x', 'y']), literal: z.literal(7), nullish: z.string().nullish(),
  nested: z.object({ list: z.array(z.object({ n: z.number() })) }), refined: z.number().refine((n) => n % 2 === 0, 'must be even'),
};
export function judge(name, value) {
  const r = schemas[name].safeParse(value);
  return r.success ? JSON.stringify(r.data) : r.error.message;
}
export const twice = () => [1, 2].map(() => judge('pattern', 'v1')).join();`)
	tests := []struct {
		schema string
		value  any
		want   string
	}{
		{"text", "abc", `"abc"`},
		{"text", "a", "must have at least 2 characters"},
		{"text", 1, "expected string, received number"},
		{"pattern", "v12", `"v12"`},
		{"pattern", "x", `must match /^v\d+$/g`},
		{"number", 3, "3"},
		{"number", 0.5, "must be a whole number"},
		{"number", -1, "must be more than 0"},
		{"list", []int{1, 2}, "[1,2]"},
		{"list", []any{1, "x"}, "1: expected number, received string"},
		{"list", []int{}, "must have at least 1 elements"},
		{"object", map[string]any{"a": "x", "extra": 1}, `{"a":"x","c":"d"}`},
		{"object", map[string]any{"b": 1}, "a: expected string, received undefined"},
		{"object", []int{}, "expected object, received array"},
		{"strict", map[string]any{"a": "x", "b": 1}, "unknown keys: b"},
		{"record", map[string]any{"k": true}, `{"k":true}`},
		{"record", map[string]any{"k": 1}, "k: expected boolean, received number"},
		{"tuple", []any{"x", 1}, `["x",1]`},
		{"tuple", []any{"x"}, "expected a list of 2"},
		{"union", 1, "1"},
		{"union", true, "fits none of the alternatives"},
		{"choice", "x", `"x"`},
		{"choice", "z", `expected one of "x", "y"`},
		{"literal", 7, "7"},
		{"literal", 8, "expected 7"},
		{"nullish", nil, "null"},
		{"nested", map[string]any{"list": []any{map[string]any{"n": "x"}}}, "list.0.n: expected number, received string"},
		{"refined", 3, "must be even"},
	}
	for _, tt := range tests {
		got, thrown := call(t, vm, "judge", tt.schema, tt.value)
		if want := quote(tt.want); got != want || thrown != "" {
			t.Errorf("%s of %v: got %s %s, want %s", tt.schema, tt.value, got, thrown, want)
		}
	}
	if got, _ := call(t, vm, "twice"); got != quote(`"v1","v1"`) {
		t.Errorf("a global expression remembers its position: %s", got)
	}
}

// quote is JSON.stringify of the text, for texts without control characters.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func TestInputsBecomeDescriptors(t *testing.T) {
	vm := machine(t, `import { z } from './zod';
import { describeInput } from './schema-tools';
const schemas = {
  bounds: z.string().max(5).regex(/^a/i).min(1), length: z.string().length(3), nullable: z.boolean().nullable().default(null),
  inner: z.number().default(1).optional(), positive: z.number().int().positive().lt(10), float: z.number().min(0.5), literal: z.literal('x'),
  literals: z.literal(['x', 'y']), function: z.string().default(() => 'now'),
  exclusive: z.number().gt(0), email: z.string().email(), list: z.array(z.string()), union: z.union([z.string()]), number: 7,
  old: { _def: { typeName: 'ZodString' } },
  narrowed: z.string().min(1).min(3).max(9).max(7), text: z.string().min('x'), nan: z.number().max(NaN), huge: z.number().min(-1e300), empty: z.number().min(5).max(3),
  odd: z.literal(NaN), none: z.enum([]), misfit: z.number().int().default(1.5), unfit: z.enum(['a']).optional().default('b'),
};
export const describe = (name) => JSON.stringify(describeInput(schemas[name]));`)
	tests := []struct{ schema, want string }{
		{"bounds", `{"type":"string","optional":false,"nullable":false,"min":1,"max":5,"pattern":"^a"}`},
		{"length", `{"type":"string","optional":false,"nullable":false,"min":3,"max":3}`},
		{"nullable", `{"type":"boolean","optional":false,"nullable":true,"default":null}`},
		{"inner", `{"type":"number","optional":true,"nullable":false,"default":1}`},
		{"positive", `{"type":"integer","optional":false,"nullable":false,"min":1,"max":9}`},
		{"float", `{"type":"number","optional":false,"nullable":false,"min":0.5}`},
		{"literal", `{"type":"literal","optional":false,"nullable":false,"literal":"x"}`},
		{"literals", `{"type":"enum","optional":false,"nullable":false,"values":["x","y"]}`},
		{"function", `{"type":"string","optional":false,"nullable":false,"default":"now"}`},
		{"exclusive", "!a bound of a number must be inclusive: use min and max"},
		{"email", "!the check 'email' cannot be part of an input: use min, max or regex"},
		{"list", "!a schema of type 'array' cannot be an input: use text, number, integer, boolean, enum or literal"},
		{"union", "!a schema of type 'union' cannot be an input: use text, number, integer, boolean, enum or literal"},
		{"number", "!it is no schema"},
		{"narrowed", `{"type":"string","optional":false,"nullable":false,"min":3,"max":7}`},
		{"text", `!min must be a number that servers can read, not "x"`},
		{"nan", "!max must be a number that servers can read, not NaN"},
		{"huge", "!min must be a number that servers can read, not -1e+300"},
		{"empty", "!nothing fits: min 5 is above max 3"},
		{"odd", "!a literal must be text, a number or a boolean, not NaN"},
		{"none", "!an enum must have text values"},
		{"misfit", "!its default 1.5 does not fit: must be a whole number"},
		{"unfit", `!its default "b" does not fit: expected one of "a"`},
		{"old", "!it is a schema of zod 3; zod 4 or the schema builder of the SDK is needed"},
	}
	for _, tt := range tests {
		got, thrown := call(t, vm, "describe", tt.schema)
		if thrown != "" {
			got = "!" + thrown
		} else if !strings.HasPrefix(tt.want, "!") {
			tt.want = quote(tt.want)
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.schema, got, tt.want)
		}
	}
}

func TestSchemasAreMadeOfSchemas(t *testing.T) {
	vm := machine(t, `import { z } from './zod';
const cases = {
  array: () => z.array(), object: () => z.object('x'), key: () => z.object({ a: 'string' }), union: () => z.union(z.string()), 'one of union': () => z.union([z.string(), null]), or: () => z.string().or(7),
  record: () => z.record('x'), tuple: () => z.tuple(z.string()), enum: () => z.enum('a'), regex: () => z.string().regex('^a'),
};
export const message = (name) => { try { return cases[name]() && 'made'; } catch (e) { return e.name + ': ' + e.message; } };`)
	tests := []struct{ name, want string }{
		{"array", "TypeError: z.array needs a schema such as z.string(), not undefined"},
		{"object", `TypeError: z.object takes a map of schemas, not "x"`},
		{"key", `TypeError: z.object: a needs a schema such as z.string(), not "string"`},
		{"union", `TypeError: z.union takes a list of schemas, not {"_zod":{"def":{"type":"string","checks":[]}},"checks":[]}`},
		{"one of union", "TypeError: z.union needs a schema such as z.string(), not null"},
		{"or", "TypeError: z.union needs a schema such as z.string(), not 7"},
		{"record", `TypeError: z.record needs a schema such as z.string(), not "x"`},
		{"tuple", `TypeError: z.tuple takes a list of schemas, not {"_zod":{"def":{"type":"string","checks":[]}},"checks":[]}`},
		{"enum", `TypeError: z.enum takes a list of texts, not "a"`},
		{"regex", `TypeError: regex() takes a regular expression, not "^a"`},
	}
	for _, tt := range tests {
		if got, thrown := call(t, vm, "message", tt.name); got != quote(tt.want) || thrown != "" {
			t.Errorf("%s: got %s %s, want %s", tt.name, got, thrown, tt.want)
		}
	}
}

func TestFixturesAreChecked(t *testing.T) {
	vm := machine(t, `import { fixture } from './events';
export const message = (options) => { try { return fixture('f', options) && 'made'; } catch (e) { return e.message; } };`)
	tests := []struct {
		options map[string]any
		want    string
	}{
		{map[string]any{"event": "push", "branch": "main", "payload": map[string]any{"a": 1}, "changedFiles": []string{"x"}, "inputs": map[string]any{"n": 1}, "description": "d"}, "made"},
		{map[string]any{"event": map[string]any{"type": "push"}}, "made"},
		{map[string]any{"event": 7}, "fixture 'f': event must be the name of a built-in event, as in 'push', or an object with a type, not 7"},
		{map[string]any{"event": map[string]any{"typ": "push"}}, `fixture 'f': event must be the name of a built-in event, as in 'push', or an object with a type, not {"typ":"push"}`},
		{map[string]any{"branch": 7}, "fixture 'f': branch must be text, not 7"},
		{map[string]any{"payload": []int{1}}, "fixture 'f': payload must be a map, not [1]"},
		{map[string]any{"changedFiles": "a.txt"}, `fixture 'f': changedFiles must be a list of paths, not "a.txt"`},
		{map[string]any{"inputs": map[string]any{"a": nil}}, `fixture 'f': inputs must be a map of texts, numbers and booleans, not {"a":null}`},
		{map[string]any{"brunch": "main"}, "fixture 'f' has no option 'brunch'; did you mean 'branch'?"},
	}
	for _, tt := range tests {
		if got, thrown := call(t, vm, "message", tt.options); got != quote(tt.want) || thrown != "" {
			t.Errorf("got %s %s, want %s", got, thrown, tt.want)
		}
	}
}

// The runtime half: what a job's functions read while it runs.
func TestRuntimeValuesOfAJob(t *testing.T) {
	vm := machine(t, `import { job, step } from './core';
import { z } from './zod';
import * as runtime from './runtime';
const build = job('build', { runsOn: 'x', run: async () => ({}) });
const plain = job('plain', { runsOn: 'x', steps: [step('version', async () => {})] });
const tests = job('tests', { runsOn: 'x', matrix: ['20', '22'], run: async () => ({}) });
runtime.setJobOutputsMap({
  build: { 'step-1': { tag: 'v1' } }, plain: { version: { n: 1 } },
  tests: { byMatrix: { 20: { 'step-1': { v: 'a' } } }, merged: { 'step-1': { v: 'a' } } },
  hosts: { byHost: { h1: { s: { x: 1 } } }, summary: {} },
  fleet: { byHost: { h1: { 'step-1': { x: 1 } }, h2: { 'step-1': { x: 2, y: 3 } } }, summary: { succeededHosts: ['h1', 'h2'], failedHosts: [], outputs: { 'step-1': [{ x: 1 }, { x: 2, y: 3 }] } } },
});
const fleet = job('fleet', { runsOnAll: 'x', run: async () => ({}) });
const first = step('first', async () => {});
const bare = async () => {};
runtime.setStepRefMap(new Map([[bare, 'step-1'], [first, 'first']]));
runtime.setStepOutputsMap({ first: { a: 1 }, 'step-1': { b: 2 } });
const cases = {
  flatObject: () => runtime.jobOutputs(build), flatName: () => runtime.jobOutputs({ name: 'build' }), result: () => [build.result.tag, plain.result.version.n, plain.result.none.n ?? null],
  matrix: () => [runtime.jobOutputs(tests).byMatrix['20'].v, runtime.jobOutputs(tests).merged.v, tests.result.v], hosts: () => runtime.jobOutputs('hosts').byHost.h1.s.x, fleet: () => runtime.jobOutputs(fleet),
  steps: () => [runtime.outputsOf(first), runtime.outputsOf(bare), runtime.outputsOf('first'), runtime.outputsOf('none') ?? null, first.result.a],
  needs: () => runtime.buildNeedsContext({
    needs: ['plain', { name: 'tests', runOn: ['success'] }, { group: 'g', runOn: ['success'] }, { group: 'none', runOn: [] }],
    upstreamJobOutputs: { plain: { version: { n: 1 } }, tests: { byMatrix: { b: { x: 1 }, a: { x: 2 } } }, made: { y: 1 } },
    upstreamJobStatuses: { plain: 'success', 'tests (b)': 'failed', 'tests (a)': 'success', 'tests-extra (a)': 'success', made: 'success' }, groups: { g: ['made'] },
  }),
  noNeeds: () => runtime.buildNeedsContext({ needs: [] }) ?? 'none',
  outputs: () => runtime.validateOutputs({ n: z.number(), d: z.string().default('x') }, { n: 1, more: true }),
  badOutputs: () => runtime.validateOutputs({ n: z.number(), s: z.string() }, { n: 'seven' }),
  retry: () => runtime.normalizeRetry(3), caches: () => runtime.normalizeCacheSpecs({ key: 'k', paths: 'p' }), approval: () => runtime.normalizeApproval([{ team: 'ops' }]),
  names: () => runtime.flattenSteps([bare, step('x', bare), { _tag: 'ParallelGroup', steps: [bare, step('y', bare)] }, bare]).map((s) => s.name + (s.group ?? '')),
};
export const run = (name) => JSON.stringify(cases[name]());
export async function rules() {
  const rule = (label, check) => ({ _tag: 'Rule', label, check });
  const all = await Promise.all([
    runtime.evaluateRules(undefined, {}), runtime.evaluateRules([rule('a', () => true), rule('b', async (c) => c.n === 1), rule('c', () => { throw new Error('never'); })], { n: 2 }),
    runtime.evaluateRules([rule('t', () => { throw new Error('broken'); })], {}),
  ]);
  return all.map((v) => [v.passed, v.label ?? null, v.error?.message ?? null]);
}`)
	tests := []struct{ name, want string }{
		{"flatObject", `{"tag":"v1"}`},
		{"flatName", `{"step-1":{"tag":"v1"}}`},
		{"result", `["v1",1,null]`},
		{"matrix", `["a","a","a"]`},
		{"hosts", `1`},
		{"fleet", `{"byHost":{"h1":{"x":1},"h2":{"x":2,"y":3}},"summary":{"succeededHosts":["h1","h2"],"failedHosts":[],"outputs":{"x":[1,2],"y":[3]}}}`},
		{"steps", `[{"a":1},{"b":2},{"a":1},null,1]`},
		{"needs", `{"plain":{"result":{"version":{"n":1}},"status":"success"},"tests":[{"name":"tests (a)","result":{"x":2},"status":"success"},{"name":"tests (b)","result":{"x":1},"status":"failed"}],"g":[{"name":"made","result":{"y":1},"status":"success"}],"none":[]}`},
		{"noNeeds", `"none"`},
		{"outputs", `{"n":1,"more":true,"d":"x"}`},
		{"badOutputs", "!output 'n': expected number, received string; output 's': expected string, received undefined"},
		{"retry", `{"maxAttempts":3,"delayMs":1000,"backoff":"exponential","maxDelayMs":30000}`},
		{"caches", `[{"key":"k","paths":["p"]}]`},
		{"approval", `{"clauses":[{"team":"ops"}],"when":"always"}`},
		{"names", `["step-1","x","step-20","y0","step-3"]`},
	}
	for _, tt := range tests {
		got, thrown := call(t, vm, "run", tt.name)
		if thrown != "" {
			got = "!" + thrown
		} else {
			tt.want = quote(tt.want)
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	if got, thrown := call(t, vm, "rules"); got != `[[true,null,null],[false,"b",null],[false,"t","broken"]]` || thrown != "" {
		t.Errorf("rules: %s %s", got, thrown)
	}
}

func TestSecretsOfAStep(t *testing.T) {
	vm := machine(t, `import { createStepSecrets } from './runtime';
export async function run() {
  const log = [];
  const { api, accessed, dispose } = createStepSecrets({
    secrets: { A: '1', B: '2' }, namespacedSecrets: { base: { B: '3' }, production: { C: '4' } }, meta: { C: { backend: 'local', scope: 'production' } },
    host: {
      setEnv: (k, v) => log.push('set ' + k + '=' + v), unsetEnv: (k) => log.push('unset ' + k),
      writeFile: async (name, content, mode) => (log.push('write ' + name + ' ' + content + ' ' + mode.toString(8)), '/tmp/' + name),
      reportMount: (m) => log.push('mount ' + JSON.stringify(m)),
    },
  });
  log.push(await api.get('B'), api.has('A'), api.has('X'), api.list().join());
  log.push(await api.get('X').catch((e) => e.name + ': ' + e.message));
  log.push(...['C', 'B', 'A', 'X'].map((key) => JSON.stringify(api.getMeta(key))));
  await api.expose('A');
  log.push(JSON.stringify(await api.mountFile({ sources: ['A', 'C'], divider: '-', mode: 0o400, name: 'both' })));
  await api.exposeFile('CERT', { sources: ['C'] });
  log.push(await api.mountFile({ sources: ['A'], name: '../x' }).catch((e) => e.message), await api.mountFile({ sources: [] }).catch((e) => e.message));
  dispose();
  log.push(accessed().join());
  return log;
}`)
	got, thrown := call(t, vm, "run")
	want := `["3",true,false,"A,B,C",` +
		`"SecretNotFoundError: Secret \"X\" not found. Available keys: A, B, C. Use ctx.secrets.has('X') to check existence, or await ctx.secrets.get('X') in a try/catch.",` +
		`"{\"value\":\"4\",\"backend\":\"local\",\"scope\":\"production\"}","{\"value\":\"3\",\"backend\":\"\",\"scope\":\"base\"}",` +
		`"{\"value\":\"1\",\"backend\":\"\",\"scope\":\"\"}","null","set A=1",` +
		`"write both 1-4 400","mount {\"sources\":[\"A\",\"C\"],\"target\":\"/tmp/both\",\"kind\":\"mountFile\"}","{\"path\":\"/tmp/both\"}",` +
		`"write C 4 600","mount {\"sources\":[\"C\"],\"target\":\"/tmp/C\",\"kind\":\"exposeFile\",\"envVar\":\"CERT\"}","set CERT=/tmp/C",` +
		`"secrets.mountFile: \"../x\" is not a plain file name","secrets.mountFile needs a non-empty list of sources","unset CERT","A,B,C"]`
	if got != want || thrown != "" {
		t.Errorf("got  %s %s\nwant %s", got, thrown, want)
	}
}

// The result and the lines of the log are those that the reference has been seen to give.
func TestWaitingEndsWithAResultOrAnError(t *testing.T) {
	vm := machine(t, `import { waitFor, waitForStep, idempotent } from './checks';
let now = 0;
let said = [];
Date.now = () => now;
globalThis.setTimeout = (f, ms) => { now += ms; Promise.resolve().then(f); };
globalThis.console = { log: (line) => said.push(line) };
const message = (p) => p.then((v) => v, (e) => e.name + ': ' + e.message + (e.cause ? ' (' + e.cause.message + ')' : ''));
const cases = {
  found: () => { let n = 0; return waitFor({ check: async () => { if (++n === 2) throw new Error('not yet'); return n >= 3 ? { n } : undefined; } }); },
  falsy: () => waitFor({ check: () => 0 }),
  late: () => message(waitFor({ name: 'db', check: () => null })),
  'asked at the end': () => message(waitFor({ timeoutMs: 1000, check: () => (now >= 1000 ? 'now' : null) })),
  throws: () => message(waitFor({ intervalMs: 30000, check: () => { throw new Error('refused'); } })),
  loud: () => message(waitFor({ swallowErrors: false, check: () => { throw new Error('loud'); } })),
  handled: () => waitFor({ intervalMs: 10, timeoutMs: 5, check: () => null, onTimeout: (e) => 'after ' + e.attempts }),
  changed: () => waitFor({ check: () => 1, onSuccess: (v) => v + 1 }),
  kept: () => waitFor({ initialDelayMs: 50, check: () => 1, onSuccess: () => {} }),
  aborted: () => message(waitFor({ check: () => null, signal: { throwIfAborted: () => { if (now > 5000) throw new Error('the step has ended'); } } })),
  'no options': () => message(waitFor()),
  'no check': () => message(waitFor({ name: 'db' })),
  'bad handler': () => message(waitFor({ check: () => 1, onTimeout: 'fail' })),
  'bad time': () => message(waitFor({ check: () => 1, timeoutMs: '10' })),
  'no number': () => message(waitFor({ check: () => 1, intervalMs: NaN })),
  step: () => waitForStep('s', { check: (ctx) => ctx.value, intervalMs: 0 }).run({ value: { v: 1 } }),
  'text step': () => waitForStep('s', { check: () => 'text' }).run({}),
  same: () => idempotent({ check: async () => null, apply: async () => 'never' }),
  applied: () => idempotent({ check: async () => 'drift', apply: async (d) => 'fixed ' + d }),
  'no apply': () => message(idempotent({ check: () => 1 })),
};
export async function run(name) {
  now = 0;
  said = [];
  return [await cases[name](), ...said];
}`)
	tests := []struct{ name, want string }{
		{"found", `[{"outcome":"succeeded","value":{"n":3},"elapsedMs":4000,"attempts":3},"→ waitFor — waiting (timeout=60000ms, interval=2000ms)","✓ waitFor — succeeded after 4000ms (attempts=3)"]`},
		{"falsy", `[{"outcome":"succeeded","value":0,"elapsedMs":0,"attempts":1},"→ waitFor — waiting (timeout=60000ms, interval=2000ms)","✓ waitFor — succeeded after 0ms (attempts=1)"]`},
		{"late", `["WaitForTimeoutError: db: timed out after 60000ms (attempts=31)","→ db — waiting (timeout=60000ms, interval=2000ms)","✗ db — timed out after 60000ms (attempts=31)"]`},
		{"asked at the end", `[{"outcome":"succeeded","value":"now","elapsedMs":1000,"attempts":2},"→ waitFor — waiting (timeout=1000ms, interval=2000ms)","✓ waitFor — succeeded after 1000ms (attempts=2)"]`},
		{"throws", `["WaitForTimeoutError: waitFor: timed out after 60000ms (attempts=3) (refused)","→ waitFor — waiting (timeout=60000ms, interval=30000ms)","✗ waitFor — timed out after 60000ms (attempts=3)"]`},
		{"loud", `["Error: loud","→ waitFor — waiting (timeout=60000ms, interval=2000ms)"]`},
		{"handled", `[{"outcome":"timed-out","value":"after 2","elapsedMs":5,"attempts":2},"→ waitFor — waiting (timeout=5ms, interval=10ms)","✗ waitFor — timed out after 5ms (attempts=2)"]`},
		{"changed", `[{"outcome":"succeeded","value":2,"elapsedMs":0,"attempts":1},"→ waitFor — waiting (timeout=60000ms, interval=2000ms)","✓ waitFor — succeeded after 0ms (attempts=1)"]`},
		{"kept", `[{"outcome":"succeeded","value":1,"elapsedMs":50,"attempts":1},"→ waitFor — waiting (timeout=60000ms, interval=2000ms)","✓ waitFor — succeeded after 50ms (attempts=1)"]`},
		{"aborted", `["Error: the step has ended","→ waitFor — waiting (timeout=60000ms, interval=2000ms)"]`},
		{"no options", `["TypeError: waitFor needs a function check"]`},
		{"no check", `["TypeError: db needs a function check"]`},
		{"bad handler", `["TypeError: waitFor needs a function onTimeout, not \"fail\""]`},
		{"bad time", `["TypeError: waitFor: timeoutMs must be a number of milliseconds, 0 or more, not \"10\""]`},
		{"no number", `["TypeError: waitFor: intervalMs must be a number of milliseconds, 0 or more, not NaN"]`},
		{"step", `[{"v":1},"→ s — waiting (timeout=60000ms, interval=0ms)","✓ s — succeeded after 0ms (attempts=1)"]`},
		{"text step", `[null,"→ s — waiting (timeout=60000ms, interval=2000ms)","✓ s — succeeded after 0ms (attempts=1)"]`},
		{"same", `[{"changed":false,"drift":null}]`},
		{"applied", `[{"changed":true,"drift":"drift","result":"fixed drift"}]`},
		{"no apply", `["TypeError: idempotent needs a function apply"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, thrown := call(t, vm, "run", tt.name); got != tt.want || thrown != "" {
				t.Errorf("got  %s %s\nwant %s", got, thrown, tt.want)
			}
		})
	}
}

func TestGraphsAreChecked(t *testing.T) {
	vm := machine(t, `import { validateDag } from './graph';
export const run = (nodes) => validateDag(nodes).map((p) => p.code + ' ' + p.message + (p.suggestion ? ' ~' + p.suggestion : ''));
export function chain(n) {
  const nodes = Array.from({ length: n }, (_, i) => ({ name: 'j' + i, needs: i ? ['j' + (i - 1)] : [] }));
  const good = validateDag(nodes).length;
  nodes[0].needs = ['j' + (n - 1)];
  return [good, validateDag(nodes).length];
}`)
	type node struct {
		Name  string   `json:"name"`
		Needs []string `json:"needs"`
	}
	got, _ := call(t, vm, "run", []node{{"build", nil}, {"test", []string{"biuld", "test"}}, {"x", []string{"y"}}, {"y", []string{"x", "build"}}})
	want := `["E101 job 'test' needs unknown job 'biuld' ~build","E103 job 'test' needs itself","E102 jobs need each other in a circle: x -> y -> x"]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, thrown := call(t, vm, "chain", 5000); got != "[0,1]" {
		t.Errorf("a long chain gives %s %s", got, thrown)
	}
}

func TestSlipsOfTheHandAreNear(t *testing.T) {
	vm := machine(t, `import { suggest } from './spelling';
export const near = (word, candidates) => suggest(word, candidates) ?? null;`)
	tests := []struct {
		word       any
		candidates []string
		want       string
	}{
		{"biuld", []string{"test", "build"}, `"did you mean 'build'?"`},
		{"Build", []string{"build"}, `"did you mean 'build'?"`},
		{"deploy", []string{"test", "build"}, "null"},
		{"a", []string{"b"}, "null"}, // any other letter would be as near
		{"A", []string{"b", "a"}, `"did you mean 'a'?"`},
		{"ac", []string{"ab"}, `"did you mean 'ab'?"`},
		{"", []string{"a"}, "null"},
		{7, []string{"a"}, "null"},
	}
	for _, tt := range tests {
		if got, thrown := call(t, vm, "near", tt.word, tt.candidates); got != tt.want || thrown != "" {
			t.Errorf("%v: got %s %s, want %s", tt.word, got, thrown, tt.want)
		}
	}
}
