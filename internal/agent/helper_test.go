//go:build unix

package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/core/wire"
)

const helpedWorkflow = `import { workflow, job, step, dynamicJob } from '@kici-dev/sdk';
const steps = [step('x', async () => {})];
export default workflow('ci', { jobs: [
  job('many', { runsOn: 'linux', steps, matrix: async ({ $, log }) => { log.info('reading'); return (await $` + "`cat list.txt`" + `).lines(); } }),
  job('bad', { runsOn: 'linux', steps, matrix: async () => [] }),
  dynamicJob('g', async ({ env }) => [job('made', { runsOn: 'linux', env: { TARGET: env.TARGET ?? 'none' }, steps: [step('see', async (ctx) => ({ target: ctx.env.TARGET }))] })]),
  dynamicJob('wrong', async () => { throw new Error('no jobs today'); }),
  dynamicJob('endless', async ({ $, log }) => { log.info('at work'); await $` + "`sleep 60`" + `; return []; }),
] });
`

// helpedAgent is an agent with the real runner, and what sends it jobs of a repository with that workflow.
func helpedAgent(t *testing.T) (p *peer, send func(job string, config map[string]any, change ...func(*wire.JobDispatch))) {
	t.Helper()
	url, sha := repository(t, map[string]string{"list.txt": "a\nb\n", ".kici/workflows/ci.ts": helpedWorkflow})
	s := newFakeServer(t)
	startAgent(t, s.url, "", func(c *Config) { c.RunnerCommand = []string{os.Args[0], "__runner"} })
	p = s.accept()
	p.register(allFeatures...)
	return p, func(job string, config map[string]any, change ...func(*wire.JobDispatch)) {
		config["checkout"] = true
		config["name"], config["baseJobName"] = nil, nil // such jobs have none
		p.send(dispatch(job, config, append(change, func(d *wire.JobDispatch) { d.RepoURL, d.SHA = url, sha })...))
		p.ack(expect[wire.JobAck](p).MessageID)
	}
}

// helpStepOf checks the one step of a job and gives its final state.
func helpStepOf(t *testing.T, p *peer, job, name string) wire.StepStatus {
	t.Helper()
	var of []wire.StepStatus
	for _, m := range all[wire.StepStatus](p) {
		if m.JobID == job {
			of = append(of, m)
		}
	}
	if len(of) != 2 || of[0].State != ci.StepRunning || of[0].StepName != name || of[1].StepName != name || of[0].StepIndex != 0 || of[1].StepIndex != 0 {
		t.Fatalf("steps of %s: %+v", job, of)
	}
	return of[1]
}

func TestJobsThatWorkForOthers(t *testing.T) {
	p, send := helpedAgent(t)
	source := func(index int) map[string]any {
		return map[string]any{"file": ".kici/workflows/ci.ts", "index": index}
	}
	tests := []struct {
		name, step string
		config     map[string]any
		state      ci.JobStatus
		want       string // data of the end
		log        string // a line of the step
	}{
		{"init", "init", map[string]any{"initOnly": true, "targetJobName": "many", "dynamicMatrix": true, "timeoutMs": 20000, "source": ".kici/workflows/ci.ts"},
			ci.JobSuccess, `{"initComplete":true,"initResult":{"matrixValues":[{"value":"a"},{"value":"b"}]}}`, "reading"},
		{"failing init", "init", map[string]any{"initOnly": true, "targetJobName": "bad", "dynamicMatrix": true, "source": ".kici/workflows/ci.ts"},
			ci.JobFailed, `{"error":"dynamic matrix for job 'bad' resolved to zero combinations","initFailed":true,"initFailure":{"category":"matrix_expansion",` +
				`"jobName":"bad","message":"dynamic matrix for job 'bad' resolved to zero combinations","scope":"job"}}`, ""},
		{"generator", "evaluate", map[string]any{"dynamicJobFn": true, "source": source(2)},
			ci.JobSuccess, `{"dynamicComplete":true,"dynamicJobs":[{"_type":"static","name":"made","runsOn":[{"kind":"exact","value":"linux"}],"runsOnPick":"deterministic",` +
				`"needs":[],"steps":[{"name":"see","hasOutputs":false,"sourceLocation":{"file":".kici/workflows/ci.ts","line":6,"column":117}}],"env":{"TARGET":"none"}}]}`,
			"[kici] The generator gave 1 job: made"},
		{"failing generator", "evaluate", map[string]any{"dynamicJobFn": true, "source": source(3)},
			ci.JobFailed, `{"dynamicFailed":true,"error":"generator of group 'wrong' failed: no jobs today"}`, "[kici] generator of group 'wrong' failed: no jobs today"},
		{"drift", "evaluate", map[string]any{"dynamicJobFn": true, "source": source(2), "contentHash": strings.Repeat("0", 64)},
			ci.JobFailed, "Lock file is out of date: workflow source changed", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			send(tt.name, tt.config)
			end, data := terminal(p)
			if got := string(end.Data); end.State != tt.state || got != tt.want && !strings.HasPrefix(data.Error, tt.want) {
				t.Errorf("end = %s\ngot  %s\nwant %s", end.State, got, tt.want)
			}
			step := helpStepOf(t, p, tt.name, tt.step)
			if string(step.State) != string(tt.state) || wire.ParseStepData(step.Data).Error != data.Error {
				t.Errorf("step ended as %s %s", step.State, step.Data)
			}
			if got := strings.Join(lines(p, 0), "\n"); !strings.Contains(got, tt.log) || len(lines(p, wire.JobLevel)) > 0 {
				t.Errorf("log %q, of the job %q", got, lines(p, wire.JobLevel))
			}
		})
	}
}

func TestGeneratedJobSeesTheVariablesOfItsOwnAndItsGeneratorThoseOfBefore(t *testing.T) {
	p, send := helpedAgent(t)
	send("job-1", map[string]any{"jobEnv": map[string]string{"TARGET": "eu"}, "dynamicSource": map[string]any{"index": 2, "expectedJobNames": []string{"made", "lost"}}},
		func(d *wire.JobDispatch) {
			var config map[string]any
			if err := json.Unmarshal(d.JobConfig, &config); err != nil {
				t.Fatal(err)
			}
			config["name"] = "made"
			d.JobConfig, _ = json.Marshal(config)
		})
	end, data := terminal(p)
	if end.State != ci.JobSuccess || string(data.Outputs) != `{"see":{"target":"eu"}}` || !cmp.Equal(data.DroppedJobs, []string{"lost"}) {
		t.Errorf("end = %s %s\n%s", end.State, end.Data, strings.Join(lines(p, -1), "\n"))
	}
}

func TestGeneratorsSeeNothingOfTheAgent(t *testing.T) {
	url, sha := repository(t, map[string]string{".kici/workflows/ci.ts": `import { workflow, job, dynamicJob } from '@kici-dev/sdk';
export default workflow('ci', { jobs: [dynamicJob('g', async ({ env, $ }) => [job('seen', { runsOn: 'linux', steps: [], env: { own: Object.keys(env).join(), child: await $` + "`env`.text()" + ` } })])] });
`})
	s := newFakeServer(t)
	startAgent(t, s.url, "", func(c *Config) {
		c.RunnerCommand, c.Token = []string{os.Args[0], "__runner"}, "kat_agent"
		c.Environ = append(c.Environ, "KICI_AGENT_TOKEN=kat_agent", "KICI_LABELS=linux", "DATABASE_URL=postgres://u:pw@h/d")
	})
	p := s.accept()
	expect[wire.AuthRequest](p)
	p.send(wire.AuthSuccess{ConnectionID: "c"})
	p.register()
	p.send(dispatch("job-1", map[string]any{"checkout": true, "dynamicJobFn": true, "source": map[string]any{"index": 0}},
		func(d *wire.JobDispatch) { d.RepoURL, d.SHA = url, sha }))
	end, _ := terminal(p)
	if end.State != ci.JobSuccess || !strings.Contains(string(end.Data), "PATH") {
		t.Fatalf("end = %s %s", end.State, end.Data)
	}
	for _, secret := range []string{"KICI_AGENT_TOKEN", "KICI_LABELS", "DATABASE_URL", "kat_agent", "postgres"} {
		if strings.Contains(string(end.Data), secret) {
			t.Errorf("the generator saw %s: %s", secret, end.Data)
		}
	}
}

func TestGeneratorIsCancelled(t *testing.T) {
	p, send := helpedAgent(t)
	send("job-1", map[string]any{"dynamicJobFn": true, "source": map[string]any{"index": 4}})
	expect(p, func(c wire.LogChunk) bool { return strings.Contains(strings.Join(c.Lines, "\n"), "at work") })
	p.send(wire.JobCancel{MessageID: "c", RunID: "run-1", JobID: "job-1", Reason: "the run was cancelled"})
	if end, _ := terminal(p); end.State != ci.JobCancelled || !strings.Contains(string(end.Data), `"dynamicFailed":true`) {
		t.Errorf("end = %s %s", end.State, end.Data)
	}
	if step := helpStepOf(t, p, "job-1", "evaluate"); step.State != ci.StepCancelled {
		t.Errorf("step ended as %s", step.State)
	}
}

// blobStore keeps what is put, and can refuse it.
type blobStore struct {
	*httptest.Server
	mu    sync.Mutex
	blobs map[string][]byte
	code  int
}

func newBlobStore(t *testing.T) *blobStore {
	s := &blobStore{blobs: map[string][]byte{}, code: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.Method == http.MethodGet {
			_, _ = w.Write(s.blobs[r.URL.Path])
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(body)) {
			t.Errorf("upload of %d bytes, announced as %d: %v", len(body), r.ContentLength, err)
		}
		s.blobs[r.URL.Path] = body
		w.WriteHeader(s.code)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestSourceAndDependenciesArePackedAndUsed builds with a package manager of the test's own: what it installs a later
// job gets from the archive alone.
func TestSourceAndDependenciesArePackedAndUsed(t *testing.T) {
	store := newBlobStore(t)
	workflow := `import { workflow, job, step } from '@kici-dev/sdk';
import { two } from 'twice';
import { word } from './word';
export default workflow('ci', { jobs: [job('build', { runsOn: 'linux', steps: [step('see', async () => ({ n: two(21), word }))] })] });
`
	url, sha := repository(t, map[string]string{".kici/workflows/ci.ts": workflow, ".kici/workflows/word.ts": "export const word = 'from the repository';\n",
		".kici/package.json": `{"dependencies":{"twice":"1"}}`})
	s := newFakeServer(t)
	startAgent(t, s.url, "", func(c *Config) {
		c.RunnerCommand = []string{os.Args[0], "__runner"}
		fakeNpm(t, `mkdir -p node_modules/twice && echo '{"main":"i.js"}' > node_modules/twice/package.json && echo 'export const two = (n) => 2 * n;' > node_modules/twice/i.js; echo installed`)
	})
	p := s.accept()
	p.register(allFeatures...)
	hash := lockfile.WorkflowHash(workflow, lockfile.CompileSchemaVersion, "")
	p.send(dispatch("build-1", map[string]any{"checkout": true, "buildOnly": true, "buildSourceNeeded": true, "buildDepsNeeded": true, "targetPlatform": "linux",
		"targetArch": "x64", "lockfileHash": "feed", "contentHash": hash}, func(d *wire.JobDispatch) { d.RepoURL, d.SHA = url, sha }))
	p.ack(expect[wire.JobAck](p).MessageID)
	depsHash := ""
	for _, kind := range []string{"deps", "source"} {
		r := expect[wire.CacheUploadRequest](p)
		if r.CacheType != kind || r.Platform != "linux" || r.Arch != "x64" || r.JobID != "build-1" {
			t.Errorf("request %+v", r)
		}
		p.send(wire.CacheUploadResponse{RequestID: r.MessageID, UploadURL: store.URL + "/" + kind})
		done := expect[wire.CacheUploadComplete](p)
		if done.CacheType != kind || done.ContentHash != r.ContentHash || done.LockfileHash != r.LockfileHash || (done.DepsHash == "") != (kind == "source") {
			t.Errorf("complete %+v after %+v", done, r)
		}
		if kind == "deps" { // a server that starts anew in between must not lose them
			p.cut()
			p = s.accept()
			p.register(allFeatures...)
			if again := expect[wire.CacheUploadComplete](p); again != done {
				t.Errorf("told again %+v", again)
			}
			p.ack(done.MessageID)
		}
		depsHash += done.DepsHash // the source has none
		progress := expect(p, func(m wire.JobStatus) bool { return len(m.Data) > 0 })
		if progress.State != ci.JobRunning || !strings.Contains(string(progress.Data), `"buildEvent":"`+kind+`_packed"`) {
			t.Errorf("event %s %s", progress.State, progress.Data)
		}
	}
	if end, _ := terminal(p); end.State != ci.JobSuccess || string(end.Data) != `{"buildComplete":true,"workflowName":"ci"}` {
		t.Fatalf("end = %s %s\n%s", end.State, end.Data, strings.Join(lines(p, 0), "\n"))
	}
	helpStepOf(t, p, "build-1", "build")
	if got := strings.Join(lines(p, 0), "\n"); !strings.Contains(got, "\n[kici] installed\n") {
		t.Error(got)
	}
	fakeNpm(t, "echo must not run; exit 1")
	use := func(job, hash string) (wire.JobStatus, wire.JobData) {
		p.send(dispatch(job, map[string]any{"checkout": true}, func(d *wire.JobDispatch) {
			d.RepoURL, d.SHA = url, sha
			d.SourceTarURL, d.DepsURL, d.DepsHash = store.URL+"/source", store.URL+"/deps", hash
		}))
		p.ack(expect[wire.JobAck](p).MessageID)
		return terminal(p)
	}
	if end, data := use("job-1", depsHash); end.State != ci.JobSuccess || string(data.Outputs) != `{"see":{"n":42,"word":"from the repository"}}` {
		t.Errorf("end = %s %s\n%s", end.State, end.Data, strings.Join(lines(p, -1), "\n"))
	}
	if end, data := use("job-2", strings.Repeat("0", 64)); end.State != ci.JobFailed || !strings.Contains(data.Error, "hash mismatch") {
		t.Errorf("end = %s %s", end.State, end.Data)
	}
}

// fakeNpm puts a package manager on the agent's PATH.
func fakeNpm(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestBuildThatCannotBeStored(t *testing.T) {
	workflow := "export default 1;\n"
	url, sha := repository(t, map[string]string{".kici/workflows/ci.ts": workflow})
	store := newBlobStore(t)
	store.code = http.StatusForbidden
	s := newFakeServer(t)
	startAgent(t, s.url, "success")
	p := s.accept()
	p.register(allFeatures...)
	secret := store.URL + "/blob?sig=verysecret"
	for i, tt := range []struct{ url, want string }{
		{"", "store the source: the server has no place for it"},
		{secret, "store the source: upload to " + strings.TrimPrefix(store.URL, "http://") + ": status 403 Forbidden"},
		{"http://127.0.0.1:1/blob?sig=verysecret", "store the source: upload to 127.0.0.1:1: "},
	} {
		p.send(dispatch(fmt.Sprint("build-", i), map[string]any{"checkout": true, "buildOnly": true, "buildSourceNeeded": true,
			"contentHash": lockfile.WorkflowHash(workflow, lockfile.CompileSchemaVersion, "")}, func(d *wire.JobDispatch) { d.RepoURL, d.SHA = url, sha }))
		p.ack(expect[wire.JobAck](p).MessageID)
		p.send(wire.CacheUploadResponse{RequestID: expect[wire.CacheUploadRequest](p).MessageID, UploadURL: tt.url})
		end, data := terminal(p)
		if end.State != ci.JobFailed || !strings.HasPrefix(data.Error, tt.want) || !strings.Contains(string(end.Data), `"buildFailed":true`) {
			t.Errorf("end = %s %s", end.State, end.Data)
		}
	}
	if strings.Contains(p.transcript(), "verysecret") {
		t.Error("the signature of an upload URL was sent")
	}
}

func TestQuestionOfABuildSurvivesALostConnection(t *testing.T) {
	workflow := "export default 1;\n"
	url, sha := repository(t, map[string]string{".kici/workflows/ci.ts": workflow})
	store := newBlobStore(t)
	s := newFakeServer(t)
	startAgent(t, s.url, "success")
	p := s.accept()
	p.register(allFeatures...)
	p.send(dispatch("build-1", map[string]any{"checkout": true, "buildOnly": true, "buildSourceNeeded": true,
		"contentHash": lockfile.WorkflowHash(workflow, lockfile.CompileSchemaVersion, "")}, func(d *wire.JobDispatch) { d.RepoURL, d.SHA = url, sha }))
	p.ack(expect[wire.JobAck](p).MessageID)
	first := expect[wire.CacheUploadRequest](p)
	p.cut()
	p = s.accept()
	p.register(allFeatures...)
	again := expect[wire.CacheUploadRequest](p)
	if again != first {
		t.Errorf("asked again as %+v, first as %+v", again, first)
	}
	p.send(wire.CacheUploadResponse{RequestID: again.MessageID, UploadURL: store.URL + "/source"})
	if end, _ := terminal(p); end.State != ci.JobSuccess {
		t.Errorf("end = %s %s", end.State, end.Data)
	}
}
