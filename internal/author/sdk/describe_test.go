package sdk_test

import (
	"encoding/json"
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
