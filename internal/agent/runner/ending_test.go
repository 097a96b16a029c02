//go:build unix

package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sleeper is a command that writes its pid and sleeps.
func sleeper(pidFile string) string {
	return "$`echo \\$\\$ > " + pidFile + "; echo up; while true; do sleep 1; done`"
}

// stubborn is a sleeper that does not end when it is asked to.
func stubborn(pidFile string) string {
	return strings.Replace(sleeper(pidFile), "echo", "trap '' TERM; echo", 1)
}

func pidOf(t *testing.T, file string) int {
	t.Helper()
	raw, err := os.ReadFile(file)
	must(t, err)
	var pid int
	for _, c := range bytes.TrimSpace(raw) {
		pid = pid*10 + int(c-'0')
	}
	return pid
}

// alive tells a running process from none and from a dead one that its parent has not looked at yet.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func TestStepTimeoutKillsItsCommands(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		pid := filepath.Join(t.TempDir(), "pid")
		j := start(t, host, workflow("step('slow', { timeout: 400, run: async ({ $, signal }) => { signal.addEventListener('abort', () => console.log('told')); await "+stubborn(pid)+" } }), step('never', async () => {})"), nil)
		j.until(func(m Message) bool { return m.Type == TypeStepComplete })
		if alive(pidOf(t, pid)) {
			t.Error("the command outlived its step")
		}
		j.wait().failed("Step 'slow' failed")
		if e := j.step("slow").Error.Message; e != "Step 'slow' timed out after 400ms" {
			t.Error(e)
		}
		if got := j.results(); got != "0:slow:failed" {
			t.Error(got)
		}
		if !strings.Contains(j.log(0), "told") {
			t.Errorf("the signal was not aborted: %v", j.Logs)
		}
	})
}

func TestTimeoutCountsForEachAttempt(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `let n = 0;
`+workflow(`step('slow', { timeout: 100, retry: { maxAttempts: 2, delayMs: 1 }, run: async () => { if (++n === 1) await new Promise(() => {}); return { n }; } })`), nil).succeeded()
		if got := strings.Join(j.Order, ","); got != "start slow,failed slow,start slow,success slow" {
			t.Error(got)
		}
	})
}

// A time beyond what the host can count is no time that is over at once.
func TestTimesBeyondCounting(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('long', { timeout: Number.MAX_SAFE_INTEGER, run: async ({ $ }) => { await $`+"`sleep 0.1`"+`; return { n: 1 } } }),
  step('part', { timeout: 30000.5, run: async () => ({ n: 2 }) }),
  step('short', { timeout: 50.5, continueOnError: true, run: async ({ $ }) => { await $`+"`sleep 60`"+` } })`), nil).failed("Step 'short' failed")
		equalJSON(t, j.Complete.Outputs, `{"long":{"n":1},"part":{"n":2}}`)
		if e := j.step("short").Error.Message; e != "Step 'short' timed out after 50.5ms" {
			t.Error(e)
		}
	})
}

func TestDefaultStepTimeoutIsTheDispatchs(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('slow', async () => { await new Promise(() => {}) })`), map[string]any{"defaultStepTimeoutMs": 50}).failed("")
		if e := j.step("slow").Error.Message; e != "Step 'slow' timed out after 50ms" {
			t.Error(e)
		}
	})
}

// A step that never yields leaves the script no way to act on its time limit.
func TestEndlessLoopEnds(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('loop', { timeout: 1, run: async () => { for (;;) ; } })`), nil).failed("Step 'loop' failed")
		if e := j.step("loop"); e.Status != "failed" || e.Error.Message != "Step 'loop' timed out after 1ms" {
			t.Errorf("%+v", e)
		}
	})
}

func TestJobTimeout(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		pid := filepath.Join(t.TempDir(), "pid")
		j := run(t, host, `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', onFailure: () => console.log('hook'), cleanup: () => console.log('hook'),
  steps: [step('slow', async ({ $ }) => { await `+sleeper(pid)+` }), step('never', async () => {})] })] });`, map[string]any{"jobTimeoutMs": 700}).
			failed("job_timeout: job exceeded its timeout of 700ms")
		if got := j.results(); got != "0:slow:failed" {
			t.Error(got)
		}
		if e := j.step("slow").Error.Message; e != "Step 'slow' aborted: job timeout exceeded" {
			t.Error(e)
		}
		if got := j.log(JobLog); !strings.Contains(got, "[kici] Job exceeded its timeout of 700ms (job_timeout); aborting.") || strings.Contains(got, "hook") {
			t.Error(got)
		}
		if alive(pidOf(t, pid)) {
			t.Error("the command outlived the job")
		}
	})
}

const hooked = `import { workflow, job, step } from '@kici-dev/sdk';
const hook = (n, fail = false) => async (ctx) => { ctx.log.info(n + ' ' + JSON.stringify({ ...ctx.outcome, duration: undefined })); await ctx.$` + "`echo ran ${n}`" + `; if (fail) throw new Error(n + ' broke'); };
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', onCancel: hook('job cancel'), cleanup: hook('job cleanup'), onFailure: hook('failure'), onSuccess: hook('success'),
  steps: [step('one', async () => ({ v: 1 })), step('slow', { onCancel: hook('step cancel'), cleanup: hook('step cleanup', true), run: async ({ $ }) => { await SLEEP } }), step('never', async () => {})] })] });`

func TestAbortRunsCancelHooks(t *testing.T) {
	for name, end := range map[string]func(j *job) error{
		"message": func(j *job) error { return j.process.Send(Abort{Type: TypeAbort}) },
		"signal":  func(j *job) error { return j.process.Terminate() },
		"both": func(j *job) error {
			_ = j.process.Send(Abort{Type: TypeAbort})
			return j.process.Terminate()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothHosts(t, func(t *testing.T, host string) {
				pid := filepath.Join(t.TempDir(), "pid")
				j := start(t, host, strings.ReplaceAll(hooked, "SLEEP", sleeper(pid)), nil)
				j.untilLog(`"up"`)
				must(t, end(j))
				j.wait().failed("Job was cancelled; Hook cleanup failed: step cleanup broke")
				if got := j.results(); got != "0:one:success 1:slow:cancelled" {
					t.Error(got)
				}
				if alive(pidOf(t, pid)) {
					t.Error("the command outlived the job")
				}
				want := []string{"start one", "success one", "start slow", "cancelled slow", "start onCancel", "success onCancel", "start cleanup", "failed cleanup", "start onCancel", "success onCancel", "start cleanup", "success cleanup"}
				if diff := cmp.Diff(want, j.Order); diff != "" {
					t.Error(diff)
				}
				if got := j.log(9); got != "[onCancel] step cancel {\"status\":\"cancelled\",\"stepOutputs\":{\"one\":{\"v\":1}}}\nran step cancel" {
					t.Error(got)
				}
			})
		})
	}
}

func TestForcedAbortRunsNothingMore(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		pid := filepath.Join(t.TempDir(), "pid")
		j := start(t, host, strings.ReplaceAll(hooked, "SLEEP", sleeper(pid)), nil)
		j.untilLog(`"up"`)
		must(t, j.process.Send(Abort{Type: TypeAbort, Force: true}))
		j.wait().failed("Job was cancelled")
		if strings.Contains(strings.Join(j.Order, ","), "onCancel") {
			t.Error(j.Order)
		}
		if alive(pidOf(t, pid)) {
			t.Error("the command outlived the job")
		}
	})
}

func TestAgentsEndEndsTheJob(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	j := start(t, "embedded", strings.ReplaceAll(hooked, "SLEEP", sleeper(pid)), nil)
	j.untilLog(`"up"`)
	j.process.stdin.Close()
	j.wait().failed("")
	if alive(pidOf(t, pid)) {
		t.Error("the command outlived the job")
	}
}

func TestKillLeavesNothing(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		dir := t.TempDir()
		one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
		j := start(t, host, workflow("step('x', async ({ $ }) => { await $`setsid bash -c 'echo \\$\\$ > "+two+"; exec sleep 60' &`; await "+sleeper(one)+" })"), nil)
		j.untilLog(`"up"`)
		must(t, j.process.Kill())
		for _, file := range []string{one, two} {
			if alive(pidOf(t, file)) {
				t.Errorf("%s is alive", file)
			}
		}
		if e := j.process.Wait(); e.Signal != "killed" || e.Code != -1 {
			t.Errorf("%+v", e)
		}
	})
}

func TestRunnerWithoutAJobEnds(t *testing.T) {
	t.Parallel()
	j := prepare(t, "embedded", workflow(""))
	j.process.stdin.Close()
	if j.wait(); j.Exit.Code != 0 || j.Complete != nil {
		t.Errorf("%+v", j.Exit)
	}
	j = prepare(t, "embedded", workflow(""))
	j.until(func(m Message) bool { return m.Type == TypeReady })
	must(t, j.process.Terminate())
	if j.wait(); j.Exit.Code != 1 {
		t.Errorf("%+v", j.Exit)
	}
}
