//go:build unix

package runner

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/vectors"
)

func TestQuestionsToTheAgent(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := prepare(t, host, "import { defineEvent, waitForHostAlive, z } from '@kici-dev/sdk'; const shipped = defineEvent('shipped', z.object({ v: z.number() }));"+workflow(`step('ask', async (ctx) => {
  const token = await ctx.kici.oidc.token({ audience: 'a' }); ctx.log.info('token ' + token.token);
  return { list: await ctx.kici.infrastructure.list(), none: await ctx.kici.inventory.get('x'), refused: await ctx.kici.host.requestReboot().catch((e) => e.message),
    receipt: await ctx.emit('deployed', { v: 1 }, { target: { repos: ['a/b'] } }), bad: await ctx.emit('bad').catch((e) => e.message),
    defined: await ctx.emit(shipped, { v: 2, more: true }), wrong: await ctx.emit(shipped, { v: 'two' }).catch((e) => e.message), host: (await waitForHostAlive('box', { intervalMs: 1 })).agentId } })`))
		asked := 0
		j.answer = func(r Request) any {
			a := Response{Type: TypeAPIResponse, RequestID: r.RequestID}
			switch {
			case r.Type == TypeEventEmit && r.EventName == "deployed" && string(r.Payload) == `{"v":1}` && string(r.Target) == `{"repos":["a/b"]}`:
				return Response{Type: TypeEventEmitResponse, RequestID: r.RequestID, DeliveryID: "d1"}
			case r.Type == TypeEventEmit && r.EventName == "shipped" && string(r.Payload) == `{"v":2}`:
				return Response{Type: TypeEventEmitResponse, RequestID: r.RequestID, DeliveryID: "d2"}
			case r.Type == TypeEventEmit:
				return Response{Type: TypeEventEmitResponse, RequestID: r.RequestID, Error: "no such event"}
			case r.Method == "oidc.token.request" && string(r.Params) == `{"jobId":"j1","audience":"a"}`:
				a.Result = json.RawMessage(`{"token":"ey-token"}`)
			case r.Method == "infrastructure.list":
				a.Result = json.RawMessage(`{"agents":[]}`)
			case r.Method == "inventory.get" && strings.Contains(string(r.Params), "box"):
				if asked++; asked < 3 {
					a.Result = json.RawMessage(`{"agentId":"box","status":"unreachable"}`)
				} else {
					a.Result = json.RawMessage(`{"agentId":"box","status":"ready"}`)
				}
			case r.Method == "inventory.get":
				a.Result = json.RawMessage(`null`)
			default:
				a.Error = "refusing to reboot the orchestrator host"
			}
			return a
		}
		j.execute(nil)
		j.wait().succeeded()
		equalJSON(t, j.Complete.Outputs["ask"], `{"list":{"agents":[]},"none":null,"refused":"host.requestReboot: refusing to reboot the orchestrator host","receipt":{"deliveryId":"d1"},"bad":"emit bad: no such event",
			"defined":{"deliveryId":"d2"},"wrong":"v: expected number, received string","host":"box"}`)
		if got := j.Logs[0][0]; got != "[ask] token ***" {
			t.Error(got)
		}
	})
}

// A host reboots once the job has ended, so a step of it must not wait for that, and never takes the host for back. Other hosts
// are waited for.
func TestRestartingTheHostOfTheJob(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := prepare(t, host, "import { restartHost } from '@kici-dev/sdk';"+workflow(`step('restart', async () => {
  const own = await restartHost({ agentId: 'own', deadlineMs: 5000 }), again = await restartHost({ agentId: 'own' }), none = await restartHost();
  return { own: own ?? 'none', again: again ?? 'none', none: none ?? 'none', box: (await restartHost({ agentId: 'box', intervalMs: 1 })).status } })`))
		asked, boxes := 0, 0
		j.answer = func(r Request) any {
			a := Response{Type: TypeAPIResponse, RequestID: r.RequestID, Result: json.RawMessage(`{}`)}
			switch {
			case r.Method == "host.requestReboot":
				asked++
			case strings.Contains(string(r.Params), "own") && asked == 0:
				a.Result = json.RawMessage(`{"agentId":"own","status":"ready"}`)
			case strings.Contains(string(r.Params), "own"):
				a.Result = json.RawMessage(fmt.Sprintf(`{"agentId":"own","status":"unreachable","rebootUntil":"%d"}`, asked))
			default:
				status := "unreachable"
				if boxes++; boxes > 4 {
					status = "ready"
				}
				a.Result = json.RawMessage(fmt.Sprintf(`{"agentId":"box","status":%q,"rebootUntil":"then"}`, status))
			}
			return a
		}
		j.execute(nil)
		j.wait().succeeded()
		equalJSON(t, j.Complete.Outputs["restart"], `{"own":"none","again":"none","none":"none","box":"ready"}`)
		if asked != 4 || boxes != 5 {
			t.Errorf("asked for %d reboots, and %d times for the box", asked, boxes)
		}
	})
}

// An event that nobody says to have stored has a receipt all the same, which names the request.
func TestEventsWithoutAnAnswer(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, workflow(`step('emit', async (ctx) => ctx.emit('lost', { n: 1 }))`), nil).succeeded()
		if len(j.Requests) != 1 {
			t.Fatalf("%+v", j.Requests)
		}
		equalJSON(t, j.Complete.Outputs, fmt.Sprintf(`{"emit":{"deliveryId":"timeout-%s"}}`, j.Requests[0].RequestID))
	})
}

// What the recorded workflow logs is what the reference logged, but for the times.
func TestQuestionsOfTheRecordedWorkflow(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		source, err := os.ReadFile(vectors.Samples("workflows", "agent-api.ts"))
		must(t, err)
		j := prepare(t, host, string(source))
		j.answer = func(r Request) any {
			a := Response{Type: TypeAPIResponse, RequestID: r.RequestID}
			switch r.Method {
			case "infrastructure.list":
				a.Result = json.RawMessage(`{"scalers":[],"agents":[]}`)
			case "inventory.query":
				a.Result = json.RawMessage(`[{"agentId":"agent-1"}]`)
			case "inventory.get":
				a.Result = json.RawMessage(`null`)
			default:
				a.Error = "no issuer"
			}
			return a
		}
		j.execute(map[string]any{"workflowName": "rec-agent-api", "jobName": "ask"})
		j.wait().failed("Step 'oidc' failed")
		times := regexp.MustCompile(`after \d+ms|"elapsedMs":\d+`)
		got := times.ReplaceAllString(strings.Join([]string{j.log(0), j.log(1), j.log(4)}, "\n"), "T")
		want := `[infrastructure] {"scalers":[],"agents":[]}
[inventory] hosts 1
[inventory] none null
→ waitFor — waiting (timeout=2000ms, interval=50ms)
✓ waitFor — succeeded T (attempts=3)
[wait] {"outcome":"succeeded","value":{"n":3},T,"attempts":3}`
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestApprovals(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		for outcome, want := range map[string]string{
			"approved": "success", "expired": "Step 'gate' approval expired", "rejected": "Step 'gate' approval rejected: not today",
		} {
			j := prepare(t, host, workflow(`step('gate', { approval: { approvers: [{ team: 'ops' }], reason: 'ship it', timeout: 60.5 }, timeout: 5000, run: async () => {} })`))
			j.answer = func(r Request) any {
				if r.Type != TypeApprovalRequest || string(r.Clauses) != `[{"team":"ops"}]` || r.Reason != "ship it" || r.TimeoutSeconds != 60.5 || r.StepName != "gate" {
					t.Errorf("%+v", r)
				}
				return Response{Type: TypeApprovalResolved, RequestID: r.RequestID, Outcome: outcome, Reason: "not today"}
			}
			j.execute(nil)
			j.wait()
			if s := j.step("gate"); s.Status != want && (s.Error == nil || s.Error.Message != want) {
				t.Errorf("%s: %+v", outcome, s)
			}
			if !strings.Contains(j.log(0), "[kici] Step 'gate' is awaiting approval: ship it") {
				t.Error(j.log(0))
			}
		}
	})
}

// The step's time limit does not run while a person decides about its drift.
func TestApprovalOfDrift(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		for outcome, want := range map[string]string{"approved": "applied", "rejected": "declined"} {
			j := prepare(t, host, workflow(`step('gate', { approval: { when: 'drift' }, timeout: 60, check: async () => ({ want: 'secret-value' }), summarize: (d) => 'set ' + d.want, run: async () => ({ done: true }) })`))
			j.execute(map[string]any{"secrets": map[string]any{"S": "secret-value"}})
			j.until(func(m Message) bool { return m.Type == TypeApprovalRequest })
			r := j.Requests[0]
			equalJSON(t, r.Payload, `{"summaryMarkdown":"set ***","drift":{"want":"***"}}`)
			if r.StepIndex == nil || *r.StepIndex != 0 {
				t.Errorf("%+v", r)
			}
			pause := exec.Command("sleep", "0.2") // longer than the step's own limit
			must(t, pause.Run())
			must(t, j.process.Send(Response{Type: TypeApprovalResolved, RequestID: r.RequestID, Outcome: outcome}))
			j.wait()
			if s := j.step("gate"); s.CheckOutcome != want {
				t.Errorf("%s: %+v", outcome, s)
			}
		}
	})
}

// The outputs of a job travel in one frame: what counts are its bytes, and those of all steps together.
func TestOutputsHaveALimit(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		const limit, frame = 2 << 20, 8 // {"v":""}
		steps := func(last int) string {
			return workflow(fmt.Sprintf(`step('a', async () => ({ v: 'é'.repeat(1000) + '😀<&>' })), step('b', async () => ({ v: '<'.repeat(%d) }))`, last))
		}
		const first = frame + 2000 + 4 + 3
		j := run(t, host, steps(limit-first-frame), nil).succeeded()
		if got := len(j.Complete.Outputs["a"]) + len(j.Complete.Outputs["b"]); got != limit {
			t.Errorf("%d bytes have come", got)
		}
		j = run(t, host, steps(limit-first-frame+1), nil).failed("Step 'b' failed")
		want := fmt.Sprintf("Step 'b' returned outputs of %d bytes of JSON; the outputs of a job may have %d bytes together, of which %d are left. Files belong into artifacts",
			limit-first+1, limit, limit-first)
		if e := j.step("b").Error.Message; e != want {
			t.Errorf("got  %s\nwant %s", e, want)
		}
		j = run(t, host, workflow(`step('s', async (ctx) => { ctx.setSecretOutput('a', 'é'.repeat(32768)); ctx.setSecretOutput('b', 'é'.repeat(32769)); })`), nil).failed("Step 's' failed")
		if e := j.step("s").Error.Message; e != "secret output 'b' is over the limit of 65536 bytes" {
			t.Error(e)
		}
	})
}

func TestAbortWhileAwaitingApproval(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := start(t, host, workflow(`step('gate', { approval: true, run: async () => {} })`), nil)
		j.until(func(m Message) bool { return m.Type == TypeApprovalRequest })
		must(t, j.process.Send(Abort{Type: TypeAbort}))
		if j.wait().failed("Job was cancelled"); j.results() != "0:gate:cancelled" {
			t.Error(j.results())
		}
	})
}

func TestConcurrencyGroup(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		source := `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { concurrency: { group: ({ branch, event }) => branch + '-' + event.type }, jobs: [job('unit', { runsOn: 'linux', steps: [step('a', async () => {})] })] });`
		tests := []struct {
			name string
			acks []ConcurrencyAck
			want string // error, "" for success
			log  []string
		}{
			{"proceed", []ConcurrencyAck{{Action: "proceed"}}, "", []string{"proceeding with execution"}},
			{"wait, then proceed", []ConcurrencyAck{{Action: "wait", Reason: "full"}, {Action: "proceed"}}, "", []string{"queued (full), waiting for slot to free", "proceeding with execution"}},
			{"cancel", []ConcurrencyAck{{Action: "cancel", Reason: "superseded"}}, "Cancelled by concurrency policy: superseded", nil},
			{"wait twice", []ConcurrencyAck{{Action: "wait"}, {Action: "wait"}}, "Concurrency: unexpected second wait ack", []string{"queued, waiting for slot to free"}},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				j := prepare(t, host, source)
				j.execute(map[string]any{"hasConcurrencyGroup": true, "branch": "main"})
				j.until(func(m Message) bool {
					return m.Type == TypeConcurrency && strings.Contains(string(m.Raw), `"main-push"`)
				})
				for _, a := range tt.acks {
					a.Type = TypeConcurrencyAck
					must(t, j.process.Send(a))
				}
				if j.wait(); tt.want == "" {
					j.succeeded()
				} else {
					j.failed(tt.want)
				}
				var got []string
				for _, line := range j.Logs[JobLog] {
					if text, ok := strings.CutPrefix(line, "[kici] Concurrency: "); ok {
						got = append(got, text)
					}
				}
				if diff := cmp.Diff(tt.log, got); diff != "" || !slices.Contains(j.Logs[JobLog], "[kici] Concurrency group: main-push") {
					t.Errorf("log: %v %s", j.Logs[JobLog], diff)
				}
			})
		}
	})
}

// A job that waits for a place is ended as one that works is: it does not wait for its turn to hear of it.
func TestAJobThatWaitsForItsGroupCanBeEnded(t *testing.T) {
	source := `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { concurrency: { group: () => 'g' }, jobs: [job('unit', { runsOn: 'linux', steps: [step('a', async () => {})] })] });`
	for name, tt := range map[string]struct {
		request map[string]any
		end     func(j *job) error
		want    string
	}{
		"by its time":  {map[string]any{"hasConcurrencyGroup": true, "jobTimeoutMs": 700}, func(*job) error { return nil }, "job_timeout: job exceeded its timeout of 700ms"},
		"by a message": {map[string]any{"hasConcurrencyGroup": true}, func(j *job) error { return j.process.Send(Abort{Type: TypeAbort}) }, "Job was cancelled"},
		"by force":     {map[string]any{"hasConcurrencyGroup": true}, func(j *job) error { return j.process.Send(Abort{Type: TypeAbort, Force: true}) }, "Job was cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			onBothHosts(t, func(t *testing.T, host string) {
				j := prepare(t, host, source)
				j.execute(tt.request)
				j.until(func(m Message) bool { return m.Type == TypeConcurrency })
				must(t, j.process.Send(ConcurrencyAck{Type: TypeConcurrencyAck, Action: "wait"}))
				j.untilLog("waiting for slot to free")
				must(t, tt.end(j))
				j.wait()
				j.failed(tt.want)
			})
		})
	}
}

func TestConcurrencyGroupThatFails(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		j := run(t, host, `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { concurrency: { group: () => { throw new Error('no key') } }, jobs: [job('unit', { runsOn: 'linux', steps: [step('a', async () => {})] })] });`,
			map[string]any{"hasConcurrencyGroup": true})
		j.failed("Concurrency group evaluation failed: no key")
	})
}

// cacheServer keeps archives as the orchestrator's storage does, and answers the runner's questions about them.
type cacheServer struct {
	*httptest.Server
	mu    sync.Mutex
	blobs map[string][]byte
	saved map[string]string // key to hash
}

func newCacheServer(t *testing.T) *cacheServer {
	s := &cacheServer{blobs: map[string][]byte{}, saved: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.Method == http.MethodPut {
			s.blobs[r.URL.Path], _ = io.ReadAll(r.Body)
			return
		}
		_, _ = w.Write(s.blobs[r.URL.Path])
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *cacheServer) answer(r Request) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Response{Type: TypeCacheResponse, RequestID: r.RequestID}
	switch r.Op {
	case "restore":
		for _, key := range append([]string{r.Key}, r.RestoreKeys...) {
			for known, hash := range s.saved {
				if known == key || key != r.Key && strings.HasPrefix(known, key) {
					a.Hit, a.MatchedKey, a.TarHash, a.DownloadURL = true, known, hash, s.URL+"/"+known
					return a
				}
			}
		}
	case "beginSave":
		_, a.Skip = s.saved[r.Key]
		a.UploadURL = s.URL + "/" + r.Key
	case "completeSave":
		s.saved[r.Key] = r.TarHash
		return nil
	}
	return a
}

func TestCaches(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		server := newCacheServer(t)
		source := `import { workflow, job, step } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [job('unit', { runsOn: 'linux', cache: { key: 'job-v1', paths: ['jobdir'] }, steps: [
  step('first', async (ctx) => ({ hit: await ctx.cache.restore({ key: 'tool-v2', paths: ['.tool', '~/.tools'], restoreKeys: ['tool-'] }), tool: await ctx.$` + "`cat .tool/data ~/.tools/x || true`.text()" + ` })),
  step('fill', async (ctx) => { await ctx.$` + "`mkdir -p .tool ~/.tools jobdir; echo kept > .tool/data; ln -sf data .tool/link; echo home > ~/.tools/x; echo j > jobdir/f`" + `; await ctx.cache.save({ key: 'tool-v1', paths: ['.tool', '~/.tools'] }); }),
  step('declared', { cache: { key: 'step-v1', paths: ['out'] }, run: async ({ $ }) => ({ found: await $` + "`cat out/file 2>/dev/null || { mkdir out; echo made > out/file; }`.text()" + ` }) }),
  step('nothing', async (ctx) => { await ctx.cache.save({ key: 'absent', paths: ['does/not/exist'] }); await ctx.cache.save({ key: 'bad', paths: ['/etc'] }); })] })] });`
		runOnce := func() *job {
			j := prepare(t, host, source)
			j.answer = server.answer
			must(t, os.MkdirAll(filepath.Join(j.dir, "out-of-cache"), 0o755))
			j.execute(nil)
			return j.wait().succeeded()
		}
		outcomes := func(j *job) string {
			var list []string
			for _, s := range j.Steps {
				if strings.HasPrefix(s.StepType, "cache:") {
					var d struct{ CacheOutcome string }
					must(t, json.Unmarshal(s.Data, &d))
					list = append(list, s.StepName+" "+d.CacheOutcome)
				}
			}
			return strings.Join(list, ", ")
		}
		j := runOnce()
		equalJSON(t, j.Complete.Outputs, `{"first":{"hit":{"hit":false},"tool":""},"declared":{"found":""}}`)
		if got := outcomes(j); got != "cache restore: job-v1 miss, cache restore: step-v1 miss, cache save: step-v1 saved, cache save: job-v1 saved" {
			t.Error(got)
		}
		if !strings.Contains(j.log(3), "is not inside the repository") || !strings.Contains(j.log(3), "cache save: absent skipped") {
			t.Error(j.log(3))
		}
		j = runOnce()
		equalJSON(t, j.Complete.Outputs, `{"first":{"hit":{"hit":true,"matchedKey":"tool-v1"},"tool":"kept\nhome\n"},"declared":{"found":"made\n"}}`)
		if got := outcomes(j); got != "cache restore: job-v1 hit, cache restore: step-v1 hit" {
			t.Error(got)
		}
		if j.Steps[0].StepIndex != 3*4+100 {
			t.Error(j.Steps[0].StepIndex)
		}
	})
}

func TestCacheOfAnotherHashIsNotUsed(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		server := newCacheServer(t)
		server.saved["k"] = strings.Repeat("0", 64)
		server.blobs["/k"] = []byte("something else")
		j := prepare(t, host, workflow(`step('x', { cache: { key: 'k', paths: ['out'] }, run: async () => {} })`))
		j.answer = server.answer
		j.execute(nil)
		j.wait().succeeded()
		if !strings.Contains(j.log(3+100+1000), "hash mismatch") {
			t.Error(j.Logs)
		}
	})
}

func TestAgentThatDoesNotReadHoldsTheRunner(t *testing.T) {
	t.Parallel()
	j := start(t, "embedded", workflow("step('talk', { timeout: 20000, run: async ({ $ }) => { await $`head -c 2000000 /dev/zero | tr '\\\\0' 'y' | fold -w 99; touch done` } })"), nil)
	j.untilLog("yyy")
	// Nobody reads, so the pipes are full by now or will be, and two megabytes fit into none.
	if _, err := os.Stat(filepath.Join(j.dir, "done")); err == nil {
		t.Fatal("the runner took all of the output")
	}
	if j.wait().succeeded(); len(j.Logs[0]) != 20203 {
		t.Errorf("%d lines", len(j.Logs[0]))
	}
}

// A command that has ended while the agent does not read has more output in its pipe than the log has taken.
func TestOutputIsWholeAlthoughTheAgentIsSlow(t *testing.T) {
	t.Parallel()
	j := start(t, "embedded", workflow("step('talk', { timeout: 20000, run: async ({ $ }) => ({ n: (await $`head -c 400000 /dev/zero | tr '\\\\0' 'y' | fold -w 99`).stdout.length }) })"), nil)
	j.untilLog("yyy")
	pause := exec.Command("sleep", "1") // several times what a silent stream is given
	must(t, pause.Run())
	j.wait().succeeded()
	equalJSON(t, j.Complete.Outputs, `{"talk":{"n":404040}}`)
}
