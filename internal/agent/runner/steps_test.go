package runner

import (
	"strings"
	"testing"
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
