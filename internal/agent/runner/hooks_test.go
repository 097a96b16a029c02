//go:build unix

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/vectors"
)

// sampleJob runs a job of the recorded workflows.
func sampleJob(t *testing.T, host, file, workflowName, jobName string, fields map[string]any) *job {
	t.Helper()
	source, err := os.ReadFile(vectors.Samples("workflows", file))
	must(t, err)
	request := map[string]any{"workflowName": workflowName, "jobName": jobName}
	for k, v := range fields {
		request[k] = v
	}
	return run(t, host, string(source), request)
}

func TestHooks(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		tests := []struct{ job, status, error string }{
			{"good", "success", ""},
			{"bad", "failed", "Step 'breaks' failed"},
			{"hook-breaks", "failed", "Hook cleanup failed: cleanup broke"},
			{"before-breaks", "success", ""},
		}
		for _, tt := range tests {
			j := sampleJob(t, host, "hooks.ts", "rec-hooks", tt.job, nil)
			if j.Complete == nil || j.Complete.Status != tt.status || j.Complete.Error != tt.error {
				t.Errorf("%s: %+v", tt.job, j.Complete)
			}
		}
		j := sampleJob(t, host, "hooks.ts", "rec-hooks", "bad", nil)
		var got []string
		for _, s := range j.Steps {
			got = append(got, fmt.Sprintf("%d %s %s %s", s.StepIndex, s.StepName, s.StepType, s.Status))
		}
		// Three steps: beforeStep is 3+2i, afterStep 3+2i+1, the hooks at the end count from 9.
		want := []string{
			"3 beforeStep hook:beforeStep success", "0 one  success", "4 afterStep hook:afterStep success",
			"5 beforeStep hook:beforeStep success", "1 breaks  failed", "6 afterStep hook:afterStep success",
			"9 onFailure hook:onFailure success", "10 cleanup hook:cleanup success",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if !strings.HasPrefix(j.log(9), `[onFailure] onFailure {"status":"failed","reason":"Step 'breaks' failed","failedStep":"breaks","stepOutputs":{"one":{"v":1}},"duration":`) {
			t.Error(j.log(9))
		}
		if !strings.HasPrefix(j.log(0), `[one] beforeStep {"status":"success","stepOutputs":{},"duration":`) {
			t.Error(j.log(0))
		}
	})
}

func TestHookTimeout(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', onSuccess: { timeout: 50, run: () => new Promise(() => {}) }, steps: [step('a', async () => {})] })] });`, nil)
		j.failed("Hook onSuccess failed: timed out after 50ms")
	})
}

func TestParallelGroups(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := sampleJob(t, host, "parallel-groups.ts", "rec-parallel", "good", nil).succeeded()
		slices.Sort(j.Order[3:5]) // which of two that start together is told first is chance
		if diff := cmp.Diff([]string{"start first", "success first", "pending c", "start a", "start b"}, j.Order[:5]); diff != "" {
			t.Error(diff)
		}
		for _, s := range j.Steps[1:4] {
			if s.ConcurrencyKind != "parallel-child" || s.GroupID != "g0" {
				t.Errorf("%+v", s)
			}
		}
		if got := j.results(); got != "0:first:success 1:a:success 2:b:success 3:c:success 4:last:success" {
			t.Error(got)
		}

		j = sampleJob(t, host, "parallel-groups.ts", "rec-parallel", "fast", nil).failed("Step 'fails' failed")
		if got := j.results(); got != "0:slow:cancelled 1:fails:failed 2:queued-1:cancelled 3:queued-2:cancelled" {
			t.Error(got)
		}
		j = sampleJob(t, host, "parallel-groups.ts", "rec-parallel", "all", nil).failed("Step 'fails' failed")
		if got := j.results(); got != "0:fails:failed 1:ok:success 2:soft:failed" {
			t.Error(got)
		}
	})
}

func TestSoftFailureInAGroupDoesNotFailTheJob(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		run(t, host, workflow(`parallel([step('ok', async () => {}), step('soft', { continueOnError: true, run: async () => { throw new Error('soft') } })]), step('next', async () => {})`), nil).succeeded()
	})
}

func TestCheckMode(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		source := workflow(`
  step('plain', async () => ({ ran: true })),
  step('sync', { check: async () => null, summarize: () => 'never', whenInSync: async () => ({ in: 'sync' }), run: async () => ({}) }),
  step('drift', { check: async () => ({ want: 'token-value' }), summarize: (d) => 'set ' + d.want, run: async (ctx, drift) => ({ applied: drift.want.length }) })`)
		secret := map[string]any{"T": "token-value"}
		for mode, want := range map[string]string{
			"apply": "success/ skipped/skipped success/applied",
			"check": "skipped/no_check skipped/skipped success/dry-run", "check-fail-on-drift": "skipped/no_check skipped/skipped success/dry-run",
		} {
			j := run(t, host, source, map[string]any{"checkMode": mode, "secrets": secret}).succeeded()
			var got []string
			for _, s := range j.Steps {
				got = append(got, s.Status+"/"+s.CheckOutcome)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %v", mode, got)
			}
			d := j.step("drift")
			if d.DriftSummary != "set ***" || string(d.Drift) != `{"want":"***"}` {
				t.Errorf("%s: %s %s", mode, d.DriftSummary, d.Drift)
			}
			if _, applied := j.Complete.Outputs["drift"]; applied != (mode == "apply") {
				t.Errorf("%s: outputs %v", mode, j.Complete.Outputs)
			}
		}
	})
}

// In a run that only looks, nobody is asked about a step that is not run, and nothing goes with it; what looks is
// executed as ever.
func TestStepsWithoutACheckAreLeftAlone(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `import { workflow, job, step, parallel, rule } from '@kici-dev/sdk';
const run = async () => ({ ran: true });
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', beforeStep: async () => {}, afterStep: async () => {}, steps: [
  step('plain', { approval: true, cache: { key: 'k', paths: 'p' }, run }), parallel([step('a', run), step('b', run)], { maxParallel: 1 }), step('ruled', { rules: [rule('never', () => false)], run }),
  step('looks', { check: async () => ({ n: 1 }), summarize: (d) => d, run }),
] })] });`, map[string]any{"checkMode": "check"}).succeeded()
		if got := strings.Join(j.Order, ", "); got != "start plain, skipped plain, pending b, start a, skipped a, start b, skipped b, skipped ruled, "+
			"start beforeStep, success beforeStep, start looks, success looks, start afterStep, success afterStep" {
			t.Error(got)
		}
		if len(j.Requests) > 0 || len(j.Complete.Outputs) > 0 {
			t.Errorf("%+v %v", j.Requests, j.Complete.Outputs)
		}
		if a, ruled := j.step("a"), j.step("ruled"); a.CheckOutcome != "no_check" || a.GroupID != "g0" || ruled.CheckOutcome != "" {
			t.Errorf("%+v %+v", a, ruled)
		}
		if got := j.step("looks").DriftSummary; got != `{"n":1}` {
			t.Errorf("summary %s", got)
		}
	})
}

func TestDriftMustFitItsSchema(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, "import { z } from '@kici-dev/sdk';\n"+workflow(`
  step('fits', { drift: z.object({ want: z.string() }), check: async () => ({ want: 'a', more: 1 }), summarize: (d) => d.want + d.more, run: async (ctx, d) => d }),
  step('not', { drift: z.object({ want: z.string() }), check: async () => ({ want: 7 }), summarize: (d) => d.want.trim(), run: async () => ({ done: true }) })`), nil).failed("Step 'not' failed")
		equalJSON(t, j.Complete.Outputs, `{"fits":{"want":"a","more":1}}`)
		if s := j.step("not"); s.Error.Message != "the drift does not fit its schema: want: expected string, received number" || s.CheckOutcome != "" {
			t.Errorf("%+v", s)
		}
		if s := j.step("fits"); s.CheckOutcome != "applied" || s.DriftSummary != "a1" {
			t.Errorf("%+v", s)
		}
	})
}

func TestInit(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', init: [false, 'auto', { run: 'echo tool here; echo TOOL=1.2 >> "$KICI_ENV"', env: { A: 'b' } }],
  steps: [step('see', async ({ env }) => ({ tool: env.TOOL }))] })] });`, nil).succeeded()
		equalJSON(t, j.Complete.Outputs, `{"see":{"tool":"1.2"}}`)
		if s := j.Steps[0]; s.StepIndex != 1000002 || s.StepType != "init:2" || j.log(1000002) != "tool here" {
			t.Errorf("%+v %s", s, j.log(1000002))
		}
		j = run(t, host, `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', init: { run: 'exit 4' }, steps: [step('never', async () => {})] })] });`, nil)
		j.failed("init[0] failed: Command failed with exit code 4")
		if len(j.Complete.StepResults) != 0 {
			t.Error(j.results())
		}
	})
}

func TestMisePreset(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := prepare(t, host, `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', init: 'auto', steps: [step('see', async ({ env }) => ({ home: env.JAVA_HOME, flags: env.FLAGS, path: env.PATH.split(':')[0] }))] })] });`)
		must(t, os.WriteFile(filepath.Join(j.dir, "mise.toml"), []byte("[tools]\njava = '21'\n"), 0o600))
		bin := filepath.Join(j.dir, ".local", "bin")
		must(t, os.MkdirAll(bin, 0o755))
		fake := "#!/bin/sh\ncase \"$1\" in env) cat <<'EOF'\n{\n  \"JAVA_HOME\": \"/tools/java\",\n  \"FLAGS\": \"-a, {b}: \\\"c\\\"\",\n  \"PATH\": \"/x\"\n}\nEOF\n;; *) echo \"mise $*\";; esac\n"
		must(t, os.WriteFile(filepath.Join(bin, "mise"), []byte(fake), 0o755))
		j.answer = func(r Request) any {
			if r.Op == "restore" && strings.HasPrefix(r.Key, "mise-") {
				return Response{Type: TypeCacheResponse, RequestID: r.RequestID}
			}
			return Response{Type: TypeCacheResponse, RequestID: r.RequestID, Skip: true}
		}
		j.execute(nil)
		j.wait().succeeded()
		equalJSON(t, j.Complete.Outputs, fmt.Sprintf(`{"see":{"home":"/tools/java","flags":"-a, {b}: \"c\"","path":"%s/.local/share/mise/shims"}}`, j.dir))
	})
}
