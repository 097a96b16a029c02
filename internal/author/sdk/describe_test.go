package sdk_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is odd but may be meant is told as a warning, with the option that it is about.
func TestSlipsAreTold(t *testing.T) {
	vm := machine(t, `import { workflow, job, step, parallel, dynamicJob } from './index';
import { describeWorkflow } from './describe';
import { Report, noResolver } from './report';
const run = async () => {};
const jobOf = (o) => workflow('w', { jobs: [job('a', { runsOn: 'l', run, ...o })] });
const cases = {
  runsOn: () => jobOf({ runsOn: { labels: ['l'], excludes: ['x'] } }),
  excluding: () => jobOf({ runsOn: ['l', '!x'] }),
  all: () => jobOf({ runsOn: undefined, runsOnAll: ['!x'] }),
  none: () => jobOf({ runsOn: undefined, runsOnAll: { include: [] } }),
  groups: () => jobOf({ runsOn: undefined, runsOnAll: { include: [{ all: ['x'], any: ['y'] }], excludes: 'z' } }),
  hook: () => jobOf({ onCancel: { run, timout: 5 } }),
  container: () => jobOf({ container: { image: 'x', volumes: [] } }),
  init: () => jobOf({ init: [false, { run: 'x', timeot: 1, cache: { key: 'k', paths: 'p', path: 'q' } }, { mise: { shel: 'sh' } }] }),
  cache: () => jobOf({ cache: [{ key: 'k', paths: 'p', restoreKey: 'x' }] }),
  concurrency: () => workflow('w', { concurrency: { group: () => 'x', cancelInprogress: false }, jobs: [job('a', { runsOn: 'l', run })] }),
  registry: () => workflow('w', { registries: [{ url: 'https://x', tokenSecret: 'a:b', token: 'x' }], jobs: [job('a', { runsOn: 'l', run })] }),
  retry: () => jobOf({ run: undefined, steps: [step('s', { retry: { maxAttempts: 2, retries: 3 }, cache: { key: 'k', paths: 'p', pathes: 'x' }, run })] }),
  parallel: () => jobOf({ run: undefined, steps: [parallel([run], { maxparallel: 2 })] }),
  twins: () => jobOf({ run: undefined, steps: [step('s', run), parallel([step('s', run), step('t', run)]), step('t', run)] }),
  generator: () => workflow('w', { jobs: [dynamicJob('g', { generate: run, need: [] })] }),
  copies: () => { const a = job('a', { runsOn: 'l', steps: [step('s', run)] }); return workflow('w', { jobs: [a, job('b', { ...a, steps: [step('t', { ...a.steps[0] })] })] }); },
};
export function tell(name) {
  const report = new Report('f', noResolver);
  describeWorkflow(cases[name](), report);
  return report.problems.map((p) => [p.severity, p.code, p.message, p.suggestion ?? ''].join(' | '));
}`)
	tests := []struct {
		name string
		want []string
	}{
		{"runsOn", []string{"warning | W101 | job 'a': runsOn has no option 'excludes' | did you mean 'exclude'?"}},
		{"excluding", []string{"warning | W105 | job 'a': in runsOn the ! of '!x' is part of the label | write runsOn: { labels: […], exclude: 'x' }"}},
		{"all", []string{"warning | W105 | job 'a': runsOnAll names no label that a host must have, so no host fits | add one, such as '*'"}},
		{"none", []string{}},
		{"groups", []string{"warning | W101 | job 'a': runsOnAll has no option 'excludes' | did you mean 'exclude'?", "warning | W101 | job 'a': runsOnAll.include has no option 'any' | "}},
		{"hook", []string{"warning | W101 | job 'a': onCancel has no option 'timout' | did you mean 'timeout'?"}},
		{"container", []string{"warning | W101 | job 'a': container has no option 'volumes' | "}},
		{"init", []string{"warning | W101 | job 'a': init has no option 'timeot' | did you mean 'timeout'?", "warning | W101 | job 'a': init.cache has no option 'path' | did you mean 'paths'?",
			"warning | W101 | job 'a': init.mise has no option 'shel' | did you mean 'shell'?"}},
		{"cache", []string{"warning | W101 | job 'a': cache has no option 'restoreKey' | did you mean 'restoreKeys'?"}},
		{"concurrency", []string{"warning | W101 | workflow 'w': concurrency has no option 'cancelInprogress' | did you mean 'cancelInProgress'?"}},
		{"registry", []string{"warning | W101 | workflow 'w': registry has no option 'token' | "}},
		{"retry", []string{"warning | W101 | job 'a', step 's': retry has no option 'retries' | ", "warning | W101 | job 'a', step 's': cache has no option 'pathes' | did you mean 'paths'?"}},
		{"parallel", []string{"warning | W101 | job 'a': parallel group 'parallel-0' has no option 'maxparallel' | did you mean 'maxParallel'?"}},
		{"twins", []string{"warning | W103 | job 'a' has two steps named 's': outputs of the later one hide those of the earlier | ", "warning | W103 | job 'a' has two steps named 't': outputs of the later one hide those of the earlier | "}},
		{"copies", []string{}},
		{"generator", []string{"warning | W101 | generator 'g' has no option 'need' | did you mean 'needs'?"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			raw, thrown := call(t, vm, "tell", tt.name)
			if thrown != "" {
				t.Fatal(thrown)
			}
			var got []string
			if err := json.Unmarshal([]byte(raw), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Whatever stands in place of an option, a mistake is told or it is taken: the description itself does not break, since
// then the author would read of our code and not of his.
func TestNoValueBreaksTheDescription(t *testing.T) {
	vm := machine(t, `import * as sdk from './index';
import { describeWorkflow } from './describe';
import { Report, noResolver } from './report';
const run = async () => {};
const odd = { null: null, zero: 0, empty: '', text: 'x', nan: NaN, bigint: 1n, symbol: Symbol('s'), yes: true, no: false, list: [], 'list of null': [null], 'list of lists': [[]], map: {}, 'map of null': { a: null },
  function: () => 1, class: class {}, promise: Promise.resolve(), Map: new Map([['a', 1]]), Date: new Date(0), RegExp: /x/, bare: Object.create(null), schema: sdk.z.string(), job: sdk.job('j', { runsOn: 'l', run }), step: sdk.step('s', run), trigger: sdk.push() };
const places = {
  workflow: (o) => sdk.workflow('w', { jobs: [sdk.job('a', { runsOn: 'l', run })], ...o }),
  job: (o) => sdk.workflow('w', { jobs: [sdk.job('a', { ...('runsOnAll' in o ? {} : { runsOn: 'l' }), run, ...o })] }),
  step: (o) => sdk.workflow('w', { jobs: [sdk.job('a', { runsOn: 'l', steps: [sdk.step('s', { run, ...o })] })] }),
  parallel: (o) => sdk.workflow('w', { jobs: [sdk.job('a', { runsOn: 'l', steps: [sdk.parallel([run], o)] })] }),
  generator: (o) => sdk.workflow('w', { jobs: [sdk.dynamicJob('g', { generate: run, ...o })] }),
};
const options = {
  workflow: ['name', 'jobs', 'on', 'rules', 'description', 'hashFiles', 'registries', 'installEnv', 'timeout', 'concurrency', 'onCancel', 'cleanup', 'approval'],
  job: ['name', 'runsOn', 'runsOnAll', 'onUnreachable', 'maxParallel', 'failFast', 'steps', 'run', 'needs', 'matrix', 'include', 'exclude', 'environment', 'environments', 'context', 'contexts', 'env', 'concurrencyGroup', 'rules',
    'onSuccess', 'beforeStep', 'checkout', 'container', 'init', 'cache', 'resources', 'gracePeriod', 'timeout', 'approval', 'description'],
  step: ['name', 'run', 'outputs', 'continueOnError', 'timeout', 'retry', 'cache', 'rules', 'cleanup', 'approval', 'check', 'summarize', 'drift', 'whenInSync', 'description'],
  parallel: ['name', 'failFast', 'maxParallel', 'steps'],
  generator: ['needs', 'generate'],
};
const few = ['null', 'text', 'bigint', 'bare']; // of what stands within options
const nested = ['run', 'timeout', 'image', 'env', 'mise', 'shell', 'cache', 'key', 'paths', 'labels', 'exclude', 'include', 'all', 'name', 'when', 'group', 'requests', 'limits', 'cpus', 'memory', 'approvers', 'max', 'url', 'tokenSecret', 'scope',
  'maxAttempts', 'delayMs', 'backoff', 'retryIf'];
const nesting = ['onCancel', 'cleanup', 'approval', 'concurrency', 'registries', 'runsOn', 'runsOnAll', 'needs', 'matrix', 'container', 'env', 'init', 'cache', 'resources', 'retry'];
const triggers = ['pr', 'push', 'tag', 'comment', 'review', 'reviewComment', 'release', 'dispatch', 'create', 'delete', 'status', 'workflowRun', 'fork', 'star', 'watch', 'webhook', 'kiciEvent', 'workflowComplete', 'jobComplete', 'genericWebhook', 'schedule', 'lifecycle'];
const fields = ['events', 'target', 'branches', 'tags', 'paths', 'repos', 'patterns', 'actions', 'source', 'bodyMatch', 'states', 'types', 'inputs', 'refTypes', 'contexts', 'workflows', 'conclusions', 'name', 'match', 'not', 'status', 'workflow', 'job', 'path',
  'auth', 'cron', 'timezone', 'sources', 'description'];
let tried = 0;
let broken = [];
function attempt(what, make) {
  tried++;
  try {
    describeWorkflow(make(), new Report('f', noResolver));
  } catch (e) {
    broken.push(what + ': ' + e.message + ' ' + String(e.stack).split('\n').slice(0, 2).join(' '));
  }
}
const inWorkflow = (on) => places.workflow({ on });
export const kinds = () => Object.keys(odd);
export function all(kind) {
  const value = odd[kind];
  [tried, broken] = [0, []];
  for (const place of Object.keys(places)) for (const option of options[place]) {
    attempt(place + '.' + option + ' = ' + kind, () => places[place]({ [option]: value }));
    attempt(place + '.' + option + ' = [' + kind + ']', () => places[place]({ [option]: [value, value] }));
    for (const inner of few.includes(kind) && nesting.includes(option) ? nested : []) attempt(place + '.' + option + '.' + inner + ' = ' + kind, () => places[place]({ [option]: { [inner]: value } }));
  }
  for (const name of triggers) {
    attempt(name + '(' + kind + ')', () => inWorkflow(sdk[name](value)));
    attempt(name + '(x, ' + kind + ')', () => inWorkflow(sdk[name]('x', value)));
    for (const field of few.includes(kind) ? fields : []) attempt(name + '.' + field + ' = ' + kind, () => inWorkflow(sdk[name]({ [field]: value })));
  }
  for (const make of ['workflow', 'job', 'step', 'parallel', 'dynamicJob', 'dynamicGroup', 'rule', 'skip', 'onlyOnFanoutIndex', 'waitForStep', 'checkStep', 'idempotentStep']) {
    const inJob = (made) => places.job({ run: undefined, steps: [made], rules: [made], needs: [made] });
    attempt(make + '(' + kind + ')', () => inJob(sdk[make](value)));
    attempt(make + '(x, ' + kind + ')', () => inJob(sdk[make]('x', value)));
  }
  return { tried, broken };
}`)
	ask := func(into any, function string, args ...any) {
		raw, thrown := call(t, vm, function, args...)
		if thrown != "" {
			t.Fatal(thrown)
		}
		if err := json.Unmarshal([]byte(raw), into); err != nil {
			t.Fatal(err)
		}
	}
	var kinds []string
	ask(&kinds, "kinds")
	for _, kind := range kinds {
		var got struct {
			Tried  int
			Broken []string
		}
		ask(&got, "all", kind)
		if got.Tried < 150 || len(got.Broken) > 0 {
			t.Errorf("of %d tried, %d break it:\n%s", got.Tried, len(got.Broken), strings.Join(got.Broken[:min(20, len(got.Broken))], "\n"))
		}
	}
}
