//go:build unix

package runner

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// evaluated runs a job that works for others.
func evaluated(t *testing.T, host, source string, fields map[string]any) *job {
	t.Helper()
	all := map[string]any{"jobName": "", "timeoutMs": 20_000}
	maps.Copy(all, fields)
	return run(t, host, source, all)
}

const dynamicFields = `import { workflow, job, step } from '@kici-dev/sdk';
const steps = [step('x', async () => {})];
export default workflow('ci', { jobs: [
  job('names', { runsOn: 'linux', steps, environments: ['base', async (event) => event.type + '-' + event.payload.n], concurrencyGroup: async (event) => 'group-' + event.type, env: async () => ({ A: 'a', N: 1, YES: true }) }),
  job('many', { runsOn: 'linux', steps, exclude: [{ letter: 'b', size: 'l' }], include: [{ letter: 'z', size: 'xl' }],
    matrix: async ({ $, ctx, log, env }) => { log.info('matrix of', ctx.workflow.name, env.GREETING); return { size: ['s', 'l'], letter: await $` + "`printf 'a\\nb\\n'`" + `.lines() }; } }),
  job('list', { runsOn: 'linux', steps, matrix: async () => [20, '22'] }),
  job('none', { runsOn: 'linux', steps, matrix: async () => [] }),
  job('seven', { runsOn: 'linux', steps, matrix: async () => 7 }),
  job('throws', { runsOn: 'linux', steps, matrix: async () => { throw new Error('no matrix today'); } }),
  job('number', { runsOn: 'linux', steps, environment: async () => 5, env: async () => null, concurrencyGroup: async () => ['x'] }),
  job('empty', { runsOn: 'linux', steps, environment: async () => '', env: async () => ({ A: { b: 1 } }) }),
  job('loop', { runsOn: 'linux', steps, env: async () => { for (;;); }, matrix: async ({ $ }) => { await $` + "`sleep 60`" + `; } }),
] });`

func TestFieldsOfAJobAreComputed(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := evaluated(t, host, dynamicFields, map[string]any{"initOnly": true, "targetJobName": "names",
			"dynamicEnvironment": true, "dynamicEnv": true, "dynamicConcurrencyGroup": true}).succeeded()
		equalJSON(t, j.Complete.InitResult, `{"environmentNames":["base","push-1"],"env":{"A":"a","N":"1","YES":"true"},"concurrencyGroup":"group-push"}`)
		j = evaluated(t, host, dynamicFields, map[string]any{"initOnly": true, "targetJobName": "many", "dynamicMatrix": true}).succeeded()
		if want := `{"matrixValues":[{"letter":"a","size":"s"},{"letter":"a","size":"l"},{"letter":"b","size":"s"},{"letter":"z","size":"xl"}]}`; string(j.Complete.InitResult) != want {
			t.Errorf("got %s, want %s", j.Complete.InitResult, want) // names of children follow the order of keys
		}
		if !strings.Contains(j.log(JobLog), "\nmatrix of ci hello\n") {
			t.Error(j.log(JobLog))
		}
		if len(j.Order) > 0 {
			t.Errorf("steps ran: %v", j.Order)
		}
	})
}

func TestListAsMatrix(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := evaluated(t, host, dynamicFields, map[string]any{"initOnly": true, "targetJobName": "list", "dynamicMatrix": true}).succeeded()
		equalJSON(t, j.Complete.InitResult, `{"matrixValues":[{"value":"20"},{"value":"22"}]}`)
	})
}

func TestFieldsThatCannotBeComputed(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		tests := []struct {
			target, field, want string
			failure             string // the init failure, "" for none
		}{
			{"none", "dynamicMatrix", "dynamic matrix for job 'none' resolved to zero combinations",
				`{"scope":"job","category":"matrix_expansion","jobName":"none","message":"dynamic matrix for job 'none' resolved to zero combinations"}`},
			{"seven", "dynamicMatrix", "matrix evaluation failed for job 'seven': the function must return a list or a map of lists, got number",
				`{"scope":"job","category":"matrix_expansion","jobName":"seven","message":"matrix evaluation failed for job 'seven': the function must return a list or a map of lists, got number"}`},
			{"throws", "dynamicMatrix", "matrix evaluation failed for job 'throws': no matrix today",
				`{"scope":"job","category":"matrix_expansion","jobName":"throws","message":"matrix evaluation failed for job 'throws': no matrix today"}`},
			{"number", "dynamicEnvironment", "environment evaluation failed for job 'number': the function must return a string, got number", ""},
			{"number", "dynamicEnv", "env evaluation failed for job 'number': the function must return an object, got null", ""},
			{"number", "dynamicConcurrencyGroup", "concurrencyGroup evaluation failed for job 'number': the function must return a string, got array", ""},
			{"empty", "dynamicEnvironment", "environment evaluation failed for job 'empty': the function must return the name of a context, got an empty string", ""},
			{"empty", "dynamicEnv", "env evaluation failed for job 'empty': env 'A' must hold texts, not {\"b\":1}", ""},
			{"loop", "dynamicEnv", "env evaluation failed for job 'loop': timed out after 300ms", ""},
			{"loop", "dynamicMatrix", "matrix evaluation failed for job 'loop': timed out after 300ms",
				`{"scope":"job","category":"matrix_expansion","jobName":"loop","message":"matrix evaluation failed for job 'loop': timed out after 300ms"}`},
			{"gone", "dynamicEnv", "Static job 'gone' not found in workflow 'ci'", ""},
		}
		for _, tt := range tests {
			t.Run(tt.target+" "+tt.field, func(t *testing.T) {
				fields := map[string]any{"initOnly": true, "targetJobName": tt.target, tt.field: true}
				if tt.target == "loop" {
					fields["timeoutMs"] = 300
				}
				j := evaluated(t, host, dynamicFields, fields)
				if j.failed(tt.want); tt.failure != "" {
					equalJSON(t, j.Complete.InitFailure, tt.failure)
				} else if j.Complete.InitFailure != nil {
					t.Errorf("failure %s", j.Complete.InitFailure)
				}
				if tt.target == "throws" && !strings.Contains(j.log(JobLog), ".kici/workflows/ci.ts:10:") {
					t.Error(j.log(JobLog))
				}
			})
		}
	})
}

const generators = `import { workflow, job, step, parallel, rule, dynamicJob, dynamicGroup } from '@kici-dev/sdk';
const shard = (n) => job('shard-' + n, { runsOn: 'linux', steps: [step('work', async () => ({ n }))] });
const full = job('full', {
  runsOn: { labels: ['linux', /^gpu/], exclude: 'spot-*' }, needs: [shard(1), dynamicGroup('others', { when: 'always' })],
  matrix: async ({ ctx }) => ({ os: [ctx.event.type] }), include: [{ os: 'x' }],
  environments: [async (event) => 'ctx-' + event.type, 'fixed'], env: async () => ({ T: 1 }), concurrencyGroup: (event) => 'g-' + event.type,
  rules: [rule('weekday')], checkout: false, container: 'node:24', cache: { key: 'k', paths: ['p'] }, onSuccess: async () => {}, beforeStep: async () => {},
  gracePeriod: 5, timeout: 60000, resources: { requests: { cpus: 1 } }, init: 'auto', approval: [{ team: 'ops' }], description: 'all of it', maxParallel: 1, failFast: true,
  steps: [step('a', { run: async () => {}, retry: 2, timeout: 5 }), parallel([step('b', async () => {}), async () => {}])],
});
export default workflow('ci', { jobs: [
  dynamicJob('shards', async ({ ctx, log, env }) => { log.info('event ' + ctx.event.type, env.GREETING, env.TARGET); return [shard(1), shard(2)]; }),
  dynamicJob('full', () => [full]),
  dynamicJob('aware', { needs: ['plan'], generate: async ({ ctx }) => [job(JSON.stringify(ctx.needs), { runsOn: 'linux', steps: [] })] }),
  async () => undefined,
  dynamicJob('twice', () => [shard(1), shard(1)]),
  dynamicJob('many', () => Array.from({ length: 101 }, (_, i) => shard(i))),
  dynamicJob('strange', () => [{ name: 'x' }]),
  dynamicJob('nameless', () => [job({ runsOn: 'linux', steps: [] })]),
  dynamicJob('text', () => 'jobs'),
  dynamicJob('broken', () => [job('bad', { steps: [step('x', async () => {})] })]),
  dynamicJob('matrix', () => [job('wide', { runsOn: 'linux', matrix: () => [], steps: [] })]),
  dynamicJob('loop', () => { for (;;); }),
  dynamicJob('boom', async () => { throw new Error('no jobs today', { cause: new Error('no list') }); }),
  dynamicJob('default', () => [job('one', { runsOn: 'linux', environments: [async () => 'computed'], steps: [] }), job('two', { runsOn: 'linux', environments: ['named'], steps: [] })]),
  dynamicJob('one', () => shard(1)),
  dynamicJob('misused', () => [job('misused', async () => {})]),
  dynamicJob('slip', () => [job('host', { runsOn: 'linux', timout: 5, run: async () => {}, onUnreachable: 'skipp' })]),
] });`

func generated(t *testing.T, host string, index int, fields map[string]any) *job {
	t.Helper()
	all := map[string]any{"dynamicJobFn": true, "source": map[string]any{"file": ".kici/workflows/ci.ts", "index": index}}
	maps.Copy(all, fields)
	return evaluated(t, host, generators, all)
}

func TestJobsOfAGenerator(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := generated(t, host, 0, nil).succeeded()
		one := func(n int) string {
			return fmt.Sprintf(`{"_type":"static","name":"shard-%d","runsOn":[{"kind":"exact","value":"linux"}],"runsOnPick":"deterministic","needs":[],`+
				`"steps":[{"name":"work","hasOutputs":false,"sourceLocation":{"file":".kici/workflows/ci.ts","line":2,"column":67}}]}`, n)
		}
		if want := "[" + one(1) + "," + one(2) + "]"; string(j.Complete.DynamicJobs) != want {
			t.Errorf("got  %s\nwant %s", j.Complete.DynamicJobs, want)
		}
		if got := j.log(JobLog); !strings.Contains(got, "\nevent push hello undefined\n") || !strings.Contains(got, "The generator gave 2 jobs: shard-1, shard-2") {
			t.Error(got)
		}
	})
}

func TestEveryFieldOfAGeneratedJob(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := generated(t, host, 1, nil).succeeded()
		equalJSON(t, j.Complete.DynamicJobs, `[{"_type":"static","name":"full","runsOn":[{"kind":"exact","value":"linux"},{"kind":"regex","source":"^gpu","flags":""}],
		"excludeLabels":[{"kind":"regex","source":"^(?:^(?:spot\\-[^/]*?)$)$","flags":""}],"runsOnPick":"deterministic","maxParallel":1,"failFast":true,
		"needs":["shard-1",{"group":"others","runOn":["success","failed","cancelled","skipped","timed_out_stale","drift_dropped"]}],"dependsOnGroups":["others"],
		"steps":[{"name":"a","hasOutputs":false,"timeout":5,"retry":{"maxAttempts":2,"delayMs":1000,"backoff":"exponential","maxDelayMs":30000},"sourceLocation":{"file":".kici/workflows/ci.ts","line":9,"column":11}},
			{"kind":"parallel","name":"parallel-0","failFast":true,"children":[{"name":"b","hasOutputs":false,"sourceLocation":{"file":".kici/workflows/ci.ts","line":9,"column":79}},{"name":"step-1","hasOutputs":false}]}],
		"matrix":{"_type":"static","values":{"os":["push"]}},"include":[{"os":"x"}],
		"rules":[{"_type":"dynamic","label":"weekday","source":{"file":".kici/workflows/ci.ts","index":100}}],"description":"all of it","checkout":false,
		"cache":[{"key":"k","paths":["p"]}],"container":"node:24","environments":[{"value":"ctx-push","dynamic":false},{"value":"fixed","dynamic":false}],
		"env":{"T":"1"},"concurrencyGroup":"g-push","hasOnSuccess":true,"hasBeforeStep":true,"gracePeriod":5,"timeout":60000,
		"resources":{"requests":{"cpus":1}},"init":"auto","approval":{"clauses":[{"team":"ops"}],"when":"always"}}]`)
	})
}

func TestAComputedContextGivesNoDefaultGroup(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := generated(t, host, 13, nil).succeeded()
		equalJSON(t, j.Complete.DynamicJobs, `[{"_type":"static","name":"one","runsOn":[{"kind":"exact","value":"linux"}],"runsOnPick":"deterministic","needs":[],"steps":[],
		"environments":[{"value":"computed","dynamic":false}]},
		{"_type":"static","name":"two","runsOn":[{"kind":"exact","value":"linux"}],"runsOnPick":"deterministic","needs":[],"steps":[],
		"environments":[{"value":"named","dynamic":false}],"concurrencyGroup":"named"}]`)
	})
}

func TestGeneratorReadsResults(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := generated(t, host, 2, map[string]any{
			"declaredNeeds": []any{"plan", map[string]string{"group": "g"}},
			"upstreamSnapshot": map[string]any{
				"jobs":     map[string]any{"plan": map[string]any{"list": map[string]any{"n": 1}}, "m": map[string]any{"byMatrix": map[string]any{"b": map[string]any{"x": 2}}, "merged": map[string]any{}}},
				"groups":   map[string]any{"g": []string{"z", "m (b)"}},
				"statuses": map[string]any{"plan": "success", "z": "failed", "m (b)": "success"},
			},
		}).succeeded()
		want := `{"plan":{"result":{"list":{"n":1}},"status":"success"},"g":[{"name":"m (b)","result":{"x":2},"status":"success"},{"name":"z","result":{},"status":"failed"}]}`
		if got := string(j.Complete.DynamicJobs); !strings.Contains(got, fmt.Sprintf(`"name":%q`, want)) {
			t.Error(got)
		}
	})
}

func TestGeneratorsThatFail(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		tests := []struct {
			index int
			want  string
		}{
			{4, "generator of group 'twice' failed: it gave two jobs named 'shard-1'"},
			{5, "generator of group 'many' failed: it gave 101 jobs, at most 100 are possible"},
			{6, "generator of group 'strange' failed: entry 1 of its list was not made with job()"},
			{7, "generator of group 'nameless' failed: job 1 has no name"},
			{8, "generator of group 'text' failed: it must return a list of jobs, not \"jobs\""},
			{14, "generator of group 'one' failed: it must return a list of jobs, not a Job"},
			{15, "the generator gave a job that cannot run: job 'misused' takes options such as { runsOn: 'linux', steps: […] }, not a function"},
			{16, "the generator gave a job that cannot run: job 'host': onUnreachable must be 'skip', 'fail' or 'hold', not \"skipp\" (did you mean 'skip'?)"},
			{9, "the generator gave a job that cannot run: job 'bad' needs runsOn or runsOnAll"},
			{10, "dynamic matrix for job 'wide' resolved to zero combinations"},
			{11, "generator of group 'loop' failed: timed out after 300ms"},
			{12, "generator of group 'boom' failed: no jobs today"},
			{99, "Generator 99 not found in workflow 'ci'"},
		}
		for _, tt := range tests {
			t.Run(tt.want, func(t *testing.T) {
				fields := map[string]any{}
				if tt.index == 11 {
					fields["timeoutMs"] = 300
				}
				j := generated(t, host, tt.index, fields)
				if tt.index == 12 && !strings.Contains(j.log(JobLog), "no jobs today\n    because of no list\n    at .kici/workflows/ci.ts:") {
					t.Errorf("the log does not tell why: %s", j.log(JobLog))
				}
				if places := strings.Count(j.log(JobLog), "    at "); tt.index == 15 && (places != 1 || !strings.Contains(j.log(JobLog), "    at .kici/workflows/ci.ts:27:")) {
					t.Errorf("the log does not tell where: %s", j.log(JobLog))
				}
				if tt.index == 16 && !strings.Contains(j.log(JobLog), "[kici] Warning: job 'host' has no option 'timout' (did you mean 'timeout'?)") {
					t.Errorf("the log does not warn: %s", j.log(JobLog))
				}
				if j.failed(tt.want); tt.index == 10 {
					equalJSON(t, j.Complete.InitFailure, `{"scope":"job","category":"matrix_expansion","jobName":"wide","message":"dynamic matrix for job 'wide' resolved to zero combinations"}`)
				}
				if j.Complete.DynamicJobs != nil {
					t.Errorf("jobs %s", j.Complete.DynamicJobs)
				}
			})
		}
		if j := generated(t, host, 3, nil).succeeded(); string(j.Complete.DynamicJobs) != "[]" {
			t.Errorf("nothing gave %s", j.Complete.DynamicJobs)
		}
	})
}

func TestGeneratedJobIsMadeAgain(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		dynamic := map[string]any{"index": 0, "event": map[string]any{"type": "frozen"}, "expectedJobNames": []string{"shard-1", "shard-2", "shard-3"}}
		fields := map[string]any{"jobName": "shard-2", "dynamicSource": dynamic, "generatorEnv": map[string]string{"PATH": "/bin", "GREETING": "as before"}}
		j := run(t, host, generators, fields).succeeded()
		equalJSON(t, j.Complete.Outputs, `{"work":{"n":2}}`)
		equalJSON(t, j.Complete.DroppedJobs, `["shard-3"]`)
		if got := j.log(JobLog); !strings.Contains(got, "event frozen as before undefined\n") || !strings.Contains(got, "no longer gives [shard-3]") {
			t.Error(got)
		}
		fields["jobName"] = "shard-3"
		j = run(t, host, generators, fields)
		j.failed("non-deterministic re-evaluation: the generator no longer gives job 'shard-3' (workflow 'ci', index 0). It gave [shard-1, shard-2, shard-3] first and gives [shard-1, shard-2] now")
	})
}

// A generated job has all that a written one has.
func TestGeneratedJobRunsItsRulesAndHooks(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		source := `import { workflow, job, step, rule, dynamicJob } from '@kici-dev/sdk';
const made = (name, ok) => job(name, { runsOn: 'linux', rules: [rule('allowed', () => ok)], init: { run: 'echo READY=1 >> "$KICI_ENV"' },
  beforeStep: async ({ log }) => log.info('before'), cleanup: async ({ log }) => log.info('clean'), steps: [step('work', async ({ env }) => ({ ready: env.READY }))] });
export default workflow('ci', { jobs: [dynamicJob('g', () => [made('yes', true), made('no', false)])] });`
		dynamic := map[string]any{"index": 0, "expectedJobNames": []string{"yes", "no"}}
		j := run(t, host, source, map[string]any{"jobName": "yes", "dynamicSource": dynamic}).succeeded()
		equalJSON(t, j.Complete.Outputs, `{"work":{"ready":"1"}}`)
		if got := strings.Join(j.Order, ", "); got != "start init:0, success init:0, start beforeStep, success beforeStep, start work, success work, start cleanup, success cleanup" {
			t.Error(got)
		}
		j = run(t, host, source, map[string]any{"jobName": "no", "dynamicSource": dynamic}).succeeded()
		if j.results() != "0:work:skipped" {
			t.Error(j.results())
		}
	})
}

func TestNeedsOfAGroup(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('see', async ({ needs }) => needs)`), map[string]any{
			"jobNeeds":            []any{map[string]any{"group": "g", "runOn": []string{"success"}}, map[string]any{"group": "empty", "runOn": []string{"success"}}},
			"upstreamGroups":      map[string]any{"g": []string{"m (x)", "b"}},
			"upstreamJobStatuses": map[string]any{"m (x)": "success", "b": "success"},
			"upstreamJobOutputs":  map[string]any{"m": map[string]any{"byMatrix": map[string]any{"x": map[string]any{"s": 1}}, "merged": map[string]any{"s": 1}}, "b": map[string]any{"s": 2}},
		}).succeeded()
		equalJSON(t, j.Complete.Outputs, `{"see":{"g":[{"name":"b","result":{"s":2},"status":"success"},{"name":"m (x)","result":{"s":1},"status":"success"}],"empty":[]}}`)
	})
}

func TestAbortWhileAGeneratorRuns(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		source := `import { workflow, dynamicJob } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [dynamicJob('g', async ({ $, log }) => { log.info('at work'); await $` + "`sleep 60`" + `; return []; })] });`
		j := start(t, host, source, map[string]any{"dynamicJobFn": true, "source": map[string]any{"index": 0}})
		j.untilLog("at work")
		must(t, j.process.Send(Abort{Type: TypeAbort}))
		j.wait().failed("generator of group 'g' failed: aborted")
	})
}
