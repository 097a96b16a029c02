//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kici/internal/client"
	"kici/internal/core/adminwire"
	"kici/internal/core/ci"
	"kici/internal/rig"
	"kici/internal/testenv"
)

// kinds are workflows whose jobs exist only once an agent has computed them, and some that cannot be computed.
const kinds = `import { dynamicGroup, dynamicJob, job, push, step, workflow } from '@kici-dev/sdk';
const on = push({ branches: 'main' });
const small = (name, needs = []) => job(name, { runsOn: 'linux', needs, steps: [step('show', async (ctx) => ctx.log.info(JSON.stringify(ctx.needs ?? {})))] });
export const fields = workflow('bad-fields', { on, jobs: [
  job('none', { runsOn: 'linux', matrix: async () => [], steps: [step('x', async () => {})] }),
  job('number', { runsOn: 'linux', env: async () => 7, steps: [step('x', async () => {})] }),
  small('behind', ['none']), small('whatever', [{ name: 'none', when: 'always' }]), small('alone'),
] });
export const throwing = workflow('throwing', { on, jobs: [
  dynamicJob('parts', async () => { throw new Error('no jobs today'); }), dynamicJob('nothing', () => []),
  small('behind', [dynamicGroup('parts')]), small('whatever', [dynamicGroup('parts', { when: 'always' })]), small('empty', [dynamicGroup('nothing')]), small('alone'),
] });
export const cycle = workflow('cycle', { on, jobs: [
  dynamicJob('a', () => [small('x', [dynamicGroup('b')])]), dynamicJob('b', () => [small('y', [dynamicGroup('a')]), small('p', ['q']), small('q', ['p']), small('free')]),
] });
`

// sample reads a sample workflow so that it listens to main and leaves its marks where this test looks.
func sample(t *testing.T, name, marks string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../testdata/samples/workflows", name))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.NewReplacer("branches: 'sibling'", "branches: 'main'", "branches: 'target'", "branches: 'main'", "/var/tmp", marks).Replace(string(raw)))
}

// The one package that the samples use, as far as they use it.
const (
	msPackage = `{"name":"ms","version":"2.1.3","main":"index.js"}`
	msModule  = `module.exports = (text) => parseInt(text) * { m: 60000, h: 3600000 }[text.at(-1)];`
)

// installMs puts a package manager on the PATH of the agent that has no need of a network: it knows that package.
func installMs(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nmkdir -p node_modules/ms && echo '%s' > node_modules/ms/package.json && echo '%s' > node_modules/ms/index.js\n", msPackage, msModule)
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestJobsThatAgentsCompute runs every kind of job on a system with one plain agent.
func TestJobsThatAgentsCompute(t *testing.T) {
	testenv.Need(t, "node") // two of the samples import modules of it
	installMs(t)
	w := &world{t: t}
	marks := t.TempDir()
	var err error
	w.Rig, err = rig.New(t.Context(), rig.Options{Name: "kinds", Repo: "app", Workflow: []byte(kinds), Files: map[string][]byte{
		".kici/workflows/init-runner.ts":     sample(t, "init-runner.ts", marks),
		".kici/workflows/generator.ts":       sample(t, "generator.ts", marks),
		".kici/workflows/generator-drift.ts": sample(t, "generator-drift.ts", marks),
		".kici/workflows/user-cache.ts":      sample(t, "user-cache.ts", marks),
		".kici/workflows/build-caches.ts":    sample(t, "build-caches.ts", marks),
		".kici/package.json":                 sample(t, "build-caches.package.json", marks),
		".kici/package-lock.json":            sample(t, "build-caches.package-lock.json", marks),
		".kici/data/seed.txt":                []byte("seed\n"),
		".kici/node_modules/ms/package.json": []byte(msPackage), // for the compiler; the agent has to install it
		".kici/node_modules/ms/index.js":     []byte(msModule),
		".gitignore":                         []byte("node_modules\n"),
	}})
	w.must(err)
	t.Cleanup(w.Close)
	for _, name := range []string{"base", "production"} {
		_, err := w.API.PutContext(t.Context(), client.Org, name, nil)
		w.must(err)
	}
	level := "prod-level"
	w.must(w.API.SetVariable(t.Context(), client.Org, "production", "LEVEL", adminwire.SetVariable{Value: &level}))
	w.must(w.StartAgent("agent-1"))
	delivery, err := w.Push(t.Context())
	w.must(err)
	runs := w.runsOf(delivery)
	tests := []struct {
		workflow string
		status   ci.RunStatus
		jobs     map[string]ci.JobStatus
		reasons  map[string]string // part of what a job says of its end
		logs     map[string]string // part of the first step's log
	}{
		{"rec-init", "success", map[string]ci.JobStatus{
			"__init__rec-init__dyn-env": "success", "__init__rec-init__dyn-many": "success", "__init__rec-init__dyn-matrix": "success",
			"dyn-env": "success", "dyn-many": "success", "dyn-matrix (a, s)": "success", "dyn-matrix (a, l)": "success",
			"dyn-matrix (b, s)": "success", "dyn-matrix (z, xl)": "success", "after": "success",
		}, nil, map[string]string{
			"dyn-env":            `"LEVEL":"prod-level"}`,
			"dyn-many":           `[show] {"environment":"base","PURE":"main","LEVEL":"prod-level"}`,
			"dyn-matrix (z, xl)": `[one] {"letter":"z","size":"xl"}`,
			"after":              `"b, s":{"one":{"combo":"b-s"}}`,
		}},
		{"rec-generate", "success", map[string]ci.JobStatus{
			"plan": "success", "__dynamic__rec-generate__1": "success", "__dynamic__rec-generate__2": "success",
			"shard-1": "success", "shard-2": "success", "deploy-eu": "success", "deploy-us": "success", "report": "success",
		}, nil, map[string]string{
			"__dynamic__rec-generate__2": `needs {"result":{"list":{"targets":["eu","us"]}},"status":"success"}`,
			"deploy-us":                  "[deploy] deploy to us",
			"report": `[sum] {"shards":[{"name":"shard-1","result":{"work":{"n":1}},"status":"success"},{"name":"shard-2","result":{"work":{"n":2}},"status":"success"}],` +
				`"deploys":[{"name":"deploy-eu","result":{"deploy":{"url":"https://eu.example.org"}},"status":"success"},{"name":"deploy-us","result":{"deploy":{"url":"https://us.example.org"}},"status":"success"}]}`,
		}},
		{"rec-drift-sibling", "failed", map[string]ci.JobStatus{
			"__dynamic__rec-drift-sibling__0": "success", "keep": "success", "lost-1": "drift_dropped", "lost-2": "drift_dropped", "after": "success",
		}, map[string]string{"lost-1": "determinism drift"}, map[string]string{
			"keep": "[work] in keep", "after": `{"name":"lost-1","result":{},"status":"drift_dropped"}`,
		}},
		{"rec-drift-target", "failed", map[string]ci.JobStatus{
			"__dynamic__rec-drift-target__0": "success", "gone": "failed", "after": "skipped",
		}, map[string]string{"gone": "non-deterministic re-evaluation: the generator no longer gives job 'gone'"}, nil},
		{"rec-user-cache", "success", map[string]ci.JobStatus{"fill": "success", "use": "success"}, nil, map[string]string{
			"fill": "[imperative] first {\"hit\":false}\n[kici] cache save: tool-v1 saved\n[imperative] second {\"hit\":true,\"matchedKey\":\"tool-v1\"}\n[kici] cache save: tool-v1 skipped",
			"use":  "[prefix] prefix {\"hit\":true,\"matchedKey\":\"tool-v1\"}\npayload",
		}},
		{"rec-build", "success", map[string]ci.JobStatus{"uses-dep": "success", "again": "success"}, nil, map[string]string{
			"uses-dep": "[show] 2h is 7200000\n", "again": "[show] 1m is 60000",
		}},
		{"bad-fields", "failed", map[string]ci.JobStatus{
			"__init__bad-fields__none": "failed", "__init__bad-fields__number": "failed", "none": "failed", "number": "failed",
			"behind": "skipped", "whatever": "success", "alone": "success",
		}, map[string]string{
			"none": "dynamic matrix for job 'none' resolved to zero combinations", "number": "the function must return an object, got number",
		}, map[string]string{"whatever": `[show] {"none":{"result":{},"status":"failed"}}`}},
		{"throwing", "failed", map[string]ci.JobStatus{
			"__dynamic__throwing__0": "failed", "__dynamic__throwing__1": "success", "behind": "skipped", "whatever": "success", "empty": "success", "alone": "success",
		}, map[string]string{"__dynamic__throwing__0": "generator of group 'parts' failed: no jobs today"}, map[string]string{"empty": `[show] {"nothing":[]}`}},
		{"cycle", "failed", map[string]ci.JobStatus{
			"__dynamic__cycle__0": "success", "__dynamic__cycle__1": "success", "x": "failed", "y": "failed", "p": "failed", "q": "failed", "free": "success",
		}, map[string]string{"x": "cycle detected: ", "p": "cycle detected: "}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.workflow, func(t *testing.T) {
			run := runs[tt.workflow]
			jobs, err := w.API.Jobs(t.Context(), run.RunID)
			w.must(err)
			got := map[string]ci.JobStatus{}
			for _, j := range jobs {
				if strings.HasPrefix(j.JobName, "__build__") && j.Status == ci.JobSuccess {
					continue // whether one is needed is the server's to know
				}
				got[j.JobName] = j.Status
				if want := tt.reasons[j.JobName]; want != "" && !strings.Contains(why(j), want) {
					t.Errorf("%s ended because of %q, not %q", j.JobName, why(j), want)
				}
				if want := tt.logs[j.JobName]; want != "" && !strings.Contains(w.logOf(run.RunID, j.JobID), want) {
					t.Errorf("log of %s\n%s\nlacks %s", j.JobName, w.logOf(run.RunID, j.JobID), want)
				}
			}
			if run.Status != tt.status || !maps.Equal(got, tt.jobs) {
				t.Errorf("the run ended as %s\ngot  %v\nwant %v\n%s", run.Status, got, tt.jobs, reasons(jobs))
			}
		})
	}
}

// runsOf waits until all runs of the delivery have ended and gives them by their workflows.
func (w *world) runsOf(d rig.Delivery) map[string]adminwire.Run {
	w.t.Helper()
	byWorkflow := map[string]adminwire.Run{}
	w.until("all runs to end", func() (bool, error) {
		list, err := w.API.Runs(w.t.Context(), client.RunQuery{Delivery: d.ID, Limit: 100})
		for _, run := range list.Runs {
			byWorkflow[run.WorkflowName] = run
		}
		open := slices.ContainsFunc(list.Runs, func(r adminwire.Run) bool { return !r.Status.Terminal() })
		return len(list.Runs) == workflowsOfKinds && !open, err
	})
	return byWorkflow
}

// workflowsOfKinds is how many workflows the repository of the test has.
const workflowsOfKinds = 9

// why is what a job says of its end.
func why(j adminwire.Job) string {
	text := ""
	if j.Reason != nil {
		text = j.Reason.Message
	}
	if j.ErrorMessage != nil {
		text += " " + *j.ErrorMessage
	}
	return text
}

func reasons(jobs []adminwire.Job) string {
	var out strings.Builder
	for _, j := range jobs {
		fmt.Fprintf(&out, "%s: %s\n", j.JobName, why(j))
	}
	return out.String()
}

// logOf is the log of a job's first step.
func (w *world) logOf(runID, jobID string) string {
	w.t.Helper()
	page, err := w.API.Logs(w.t.Context(), runID, jobID, 0, client.LogQuery{})
	w.must(err)
	var lines []string
	for _, l := range page.Lines {
		var line struct{ Msg string }
		w.must(json.Unmarshal([]byte(l.Value), &line))
		lines = append(lines, line.Msg)
	}
	return strings.Join(lines, "\n")
}
