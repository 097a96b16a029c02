package server_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/logs"
	"kici/internal/server/report"
	"kici/internal/server/servertest"
	"kici/internal/vectors"
)

// recording says what a recording's name does not: from which lock file its workflows came, and how its runs end.
type recording struct {
	name string
	lock string
	repo string
	runs []string          // statuses, in the order of the runs' first dispatches
	more map[string]string // statuses of jobs that were never dispatched, by name
	// contexts: its jobs have those of makeContexts, and what they are given is compared.
	contexts bool
}

const captureRepo = "local/cap"

var recordings = []recording{
	{name: "two-steps-success", lock: "capture", repo: captureRepo, runs: []string{"success"}},
	{name: "failing-step", lock: "capture", repo: captureRepo, runs: []string{"failed"}, more: map[string]string{"after": "skipped"}},
	{name: "needs-matrix-outputs", lock: "capture", repo: captureRepo, runs: []string{"success"}},
	{name: "agent-reconnect-mid-job", lock: "capture", repo: captureRepo, runs: []string{"success"}},
	{name: "timeouts-and-retry", lock: "capture", repo: captureRepo, runs: []string{"failed", "failed"}},
	{name: "hooks", lock: "hooks", repo: "local/hooks", runs: []string{"failed"}},
	{name: "parallel-groups", lock: "parallel-groups", repo: "local/parallel-groups", runs: []string{"failed"}},
	{name: "outputs-and-secret-outputs", lock: "outputs-secrets", repo: "local/outputs-secrets", runs: []string{"success"}},
	{name: "contexts-secrets", lock: "contexts-secrets", repo: "local/contexts-secrets", runs: []string{"failed"}, contexts: true},
	{name: "agent-api", lock: "agent-api", repo: "local/agent-api", runs: []string{"failed"}},
}

// TestRecordedAgents plays what real agents sent to a real server, and requires the same kinds of answers in the same
// order on every connection, the same end of every run, and all that the agents said in the store. Nothing differs in
// the answers: these agents know none of our extensions, so no frame of theirs is acknowledged.
func TestRecordedAgents(t *testing.T) {
	for _, r := range recordings {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) { testRecording(t, h, r) })
		})
	}
}

func testRecording(t *testing.T, h *servertest.Home, r recording) {
	lines := loadRecording(t, r.name)
	p := newPlayer(t, h, r.repo, commitRecorded(t, h, r, lines))
	if r.contexts {
		makeContexts(t, h)
	}
	server := h.Start(t)
	p.play(lines)
	h.AwaitRuns(t, len(r.runs))
	if diff := cmp.Diff(p.wanted, p.kinds); diff != "" {
		t.Errorf("frames of the server (- recorded, + ours):\n%s", diff)
	}
	for _, pair := range p.dispatches {
		compareDispatch(t, pair)
		if r.contexts {
			compareGrant(t, pair)
		}
	}
	var ended []string
	for _, run := range p.runs {
		detail, _, err := report.RunOf(t.Context(), h.DB.Read(), run)
		if err != nil {
			t.Fatal(err)
		}
		ended = append(ended, string(detail.Status))
	}
	if diff := cmp.Diff(r.runs, ended); diff != "" {
		t.Errorf("ends of the runs:\n%s", diff)
	}
	server.Stop() // the logs are the server's alone while it runs
	compareJobs(t, h, p, told(t, lines), r.more)
}

// commitRecorded makes the repository of a recording, with a branch for every one that its dispatches name.
func commitRecorded(t *testing.T, h *servertest.Home, r recording, lines []line) string {
	t.Helper()
	lock, err := os.ReadFile(vectors.Samples("locks", r.lock+".lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var branches []string
	for _, l := range lines {
		var d struct{ Type, Ref string }
		if l.Dir == "o2a" && json.Unmarshal(l.Msg, &d) == nil && d.Type == "job.dispatch" && !slices.Contains(branches, d.Ref) {
			branches = append(branches, d.Ref)
		}
	}
	return h.Commit(t, r.repo, lock, branches...)
}

// compareJobs compares what is stored of every job with what the agents said of it.
func compareJobs(t *testing.T, h *servertest.Home, p *player, want map[string]*toldJob, more map[string]string) {
	t.Helper()
	store, err := logs.Open(t.Context(), logs.Options{Root: filepath.Join(h.Settings.DataDir, "logs"), DB: h.DB})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	byOurs := map[string]*toldJob{}
	for recorded, job := range want {
		byOurs[p.ids[recorded]] = job
	}
	for _, run := range p.runs {
		jobs, err := report.Jobs(t.Context(), h.DB.Read(), run, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			expected, dispatched := byOurs[j.JobID]
			if !dispatched {
				if string(j.Status) != more[j.JobName] {
					t.Errorf("job %s, which was never dispatched, is %s, want %s", j.JobName, j.Status, more[j.JobName])
				}
				continue
			}
			if diff := cmp.Diff(*expected, stored(t, store, run, j)); diff != "" {
				t.Errorf("job %s (- said, + stored):\n%s", j.JobName, diff)
			}
		}
	}
}

// stored is what the server has of a job, in the words in which its agent told it.
func stored(t *testing.T, store *logs.Store, run string, j adminwire.Job) toldJob {
	t.Helper()
	out := toldJob{Status: string(j.Status), Outputs: string(j.Outputs), Steps: map[int]toldStep{}, Logs: map[int][]string{}}
	indices := []int{-1}
	for _, s := range j.Steps {
		step := toldStep{Name: s.StepName, Status: string(s.Status), Type: s.StepType}
		if s.ErrorMessage != nil {
			step.Error = strings.TrimSpace(*s.ErrorMessage)
		}
		if s.ExitCode != nil {
			step.ExitCode = *s.ExitCode
		}
		out.Steps[s.StepIndex] = step
		indices = append(indices, s.StepIndex)
	}
	for _, i := range indices {
		if lines := messages(t, store, logs.Path(run, j.JobName, i)); len(lines) > 0 {
			out.Logs[i] = lines
		}
	}
	return out
}

// messages reads the texts of a log's lines.
func messages(t *testing.T, store *logs.Store, path string) (out []string) {
	t.Helper()
	for from := int64(0); ; {
		lines, _, next, err := store.Lines(t.Context(), path, from, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range lines {
			var record struct{ Msg string }
			if err := json.Unmarshal([]byte(raw), &record); err != nil {
				t.Fatal(err)
			}
			out = append(out, record.Msg)
		}
		if next == 0 {
			return out
		}
		from = next
	}
}

// compareDispatch compares what an agent needs of a dispatch to do its work.
func compareDispatch(t *testing.T, pair dispatchPair) {
	t.Helper()
	type facts struct {
		Ref, LockFileURL    string
		UpstreamJobOutputs  any
		UpstreamJobStatuses any
	}
	a, b := pair.recorded, pair.got
	if diff := cmp.Diff(facts{a.Ref, a.LockFileURL, values(t, a.UpstreamJobOutputs), a.UpstreamJobStatuses},
		facts{b.Ref, b.LockFileURL, values(t, b.UpstreamJobOutputs), b.UpstreamJobStatuses}); diff != "" {
		t.Errorf("dispatch of %s (- recorded, + ours):\n%s", jobNames(t, a), diff)
	}
	if diff := cmp.Diff(needed(t, a.JobConfig), needed(t, b.JobConfig)); diff != "" {
		t.Errorf("jobConfig of %s (- recorded, + ours):\n%s", jobNames(t, a), diff)
	}
}

// readByAgents are the members of a job's configuration that agents read.
var readByAgents = []string{"workflowName", "name", "baseJobName", "source", "contentHash", "resolvedHashFiles", "provider", "environment",
	"environmentVars", "jobEnv", "env", "dispatchInputs", "matrixValues", "host", "agent", "fanoutIndex", "fanoutTotal", "needs",
	"timeout", "checkMode", "isTestRun", "fullRepo", "checkout", "dynamicSource", "container"}

func needed(t *testing.T, config json.RawMessage) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(config, &all); err != nil {
		t.Fatal(err)
	}
	all["contentHash"] = all["contentHash"] != nil // some recordings were made with an earlier text of their workflow
	out := map[string]any{}
	for _, key := range readByAgents {
		if v, ok := all[key]; ok {
			out[key] = v
		}
	}
	if event, ok := all["event"].(map[string]any); ok {
		// The payload is the test's own, and the rest later versions of the protocol added.
		for _, key := range []string{"payload", "changedFilesStatus", "senderUsername", "sourceRepo"} {
			delete(event, key)
		}
		out["event"] = event
	}
	return out
}

// values reads documents whose members have no order.
func values(t *testing.T, documents map[string]json.RawMessage) map[string]any {
	t.Helper()
	out := map[string]any{}
	for name, raw := range documents {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		out[name] = v
	}
	return out
}

// TestRecordedAgentSurvivesTheKillOfItsServer plays an agent whose server was killed and started again in the middle of
// a job. The recorded server then refused the agent's frames and closed its connections, again and again; ours takes
// them, so all that the agent sent on its later connections is sent on the first of them.
func TestRecordedAgentSurvivesTheKillOfItsServer(t *testing.T) {
	const name, connBefore, connAfter = "orchestrator-killed-and-restarted-mid-job", 1, 3
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		lines := loadRecording(t, name)
		p := newPlayer(t, h, captureRepo, commitRecorded(t, h, recording{lock: "capture", repo: captureRepo}, lines))
		process := h.Launch(t)
		var before, after []line
		for _, l := range lines {
			switch {
			case l.Conn == connBefore && l.Dir != "ctl" || l.Conn == connBefore && l.Event == "open":
				before = append(before, l)
			case l.Conn == connAfter && (l.Dir != "ctl" || l.Event == "open"), l.Conn > connAfter && isJobLog(l):
				l.Conn = connAfter
				after = append(after, l)
			}
		}
		p.play(before)
		p.peers[connBefore].Settle() // the recorded server had applied it all, seconds before
		process.Kill()
		process = h.Launch(t)
		p.play(after)
		peer := p.peers[connAfter]
		peer.Settle()
		p.note(connAfter, peer.Rest()...)
		if diff := cmp.Diff(p.wanted, p.kinds); diff != "" {
			t.Errorf("frames of the server (- recorded, + ours):\n%s", diff)
		}
		// The recorded agent's end of the job was lost with one of its connections.
		job := wire.InFlightJob{RunID: p.dispatches[0].got.RunID, JobID: p.dispatches[0].got.JobID}
		peer.Send(wire.StepStatus{MessageID: "s", RunID: job.RunID, JobID: job.JobID, StepName: "tick", State: ci.StepSuccess, Timestamp: 1})
		peer.Send(wire.JobStatus{MessageID: "j", RunID: job.RunID, JobID: job.JobID, State: ci.JobSuccess, Timestamp: 1})
		h.AwaitRuns(t, 1)
		compareJob(t, h, "success", "", 1)
		if err := process.Terminate(); err != nil {
			t.Errorf("the second server did not end well: %v", err)
		}
		want := told(t, lines)
		for _, w := range want {
			w.Status, w.Steps = "success", map[int]toldStep{0: {Name: "tick", Status: "success"}}
		}
		compareJobs(t, h, p, want, nil)
	})
}

func isJobLog(l line) bool {
	var m struct{ Type string }
	return l.Dir == "a2o" && json.Unmarshal(l.Msg, &m) == nil && m.Type == "log.chunk"
}
