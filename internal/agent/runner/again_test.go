package runner

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"
)

// again runs a job in a runner that is to go on, and makes it ready for the next.
func (j *job) again(fields map[string]any) *job {
	j.t.Helper()
	request := map[string]any{"runId": "r1", "jobId": "j1", "workDir": j.dir, "workflowName": "ci", "jobName": "unit"}
	maps.Copy(request, fields)
	must(j.t, j.process.Send(map[string]any{"type": TypeExecute, "request": request, "again": true}))
	one := &job{t: j.t, process: j.process, dir: j.dir, Logs: map[int][]string{}}
	one.until(func(m Message) bool { return m.Type == TypeJobComplete })
	must(j.t, j.process.Clear())
	ctx, cancel := context.WithTimeout(j.t.Context(), 30*time.Second)
	defer cancel()
	must(j.t, j.process.Rest(ctx))
	j.process.Begin(j.t.Context())
	return one
}

func TestNothingOfAJobIsSeenByTheNext(t *testing.T) {
	t.Parallel()
	j := prepare(t, "embedded", `let n = 0;
`+workflow(`step('x', async (ctx) => {
	if (ctx.dispatchInputs.first) {
		ctx.setSecretOutput('s', 'quite-secret');
		globalThis.leaked = n = 1;
		void (async () => { for (;;) { await new Promise((r) => setTimeout(r, 1)); console.log('late'); } })();
		void ctx.$`+"`sleep 1000`"+`;
	}
	console.log('quite-secret', n, typeof leaked);
	await ctx.$`+"`pwd`"+`;
	await ctx.$`+"`false`"+`.nothrow();
})`))
	first := j.again(map[string]any{"dispatchInputs": map[string]any{"first": true}}).succeeded()
	if log := first.log(0); !strings.HasPrefix(log, "*** 1 number\n") {
		t.Errorf("first job: %s", log)
	}
	second := j.again(map[string]any{"dispatchInputs": map[string]any{}}).succeeded()
	if log := second.log(0); log != "quite-secret 0 undefined\n"+j.dir {
		t.Errorf("second job: %s", log)
	}
}

func TestARunnerGoesOnAfterAFailedJobAndNotAfterACrash(t *testing.T) {
	t.Parallel()
	j := prepare(t, "embedded", workflow(`step('x', async (ctx) => {
	if (ctx.dispatchInputs.crash) setTimeout(() => { throw new Error('boom'); }, 1);
	if (ctx.dispatchInputs.crash) await new Promise(() => {});
	throw new Error('no'); })`))
	for range 2 {
		if c := j.again(nil).Complete; c.Status != "failed" || c.Error != "Step 'x' failed" {
			t.Errorf("complete = %+v", c)
		}
	}
	must(t, j.process.Send(map[string]any{"type": TypeExecute, "again": true, "request": map[string]any{
		"workDir": j.dir, "workflowName": "ci", "jobName": "unit", "dispatchInputs": map[string]any{"crash": true}}}))
	j.wait()
	if j.Exit.Code != exitException || !strings.Contains(strings.Join(j.Exit.Stderr, "\n"), "boom") {
		t.Errorf("exit = %+v", j.Exit)
	}
}

func TestARunnerTakesABundleAndGivesItsOwn(t *testing.T) {
	t.Parallel()
	j := prepare(t, "embedded", workflow(`step('x', async () => { console.log('from the file'); })`))
	order := map[string]any{"type": TypeExecute, "keepBundle": true, "again": true, "request": map[string]any{
		"workDir": j.dir, "workflowName": "ci", "jobName": "unit"}}
	must(t, j.process.Send(order))
	var made Bundle
	first := true
	j.until(func(m Message) bool {
		if m.Type == TypeReady {
			return false
		}
		if first {
			must(t, m.Decode(&made))
		}
		first = false
		return m.Type == TypeJobComplete
	})
	if made.Type != TypeBundle || !strings.Contains(made.Part, "from the file") || made.Map == "" {
		t.Fatalf("first message = %+v", made)
	}
	must(t, j.process.Rest(t.Context()))
	made.Part = strings.Replace(made.Part, "the file", "the agent", 1)
	order["bundle"], order["keepBundle"] = made, false
	must(t, j.process.Send(order))
	j.Logs = map[int][]string{}
	j.until(func(m Message) bool { return m.Type == TypeJobComplete })
	if got := j.log(0); got != "from the agent" {
		t.Errorf("log = %q", got)
	}
}
