package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/report"
	"kici/internal/server/servertest"
)

// better are recordings that ended badly for the recorded server, or that took a way of their own. Each says how the runs
// end here, with their jobs.
var better = []struct {
	recording
	jobs []string // of each run: name=status, the internal jobs too
}{
	{recording{name: "cancel-superseded-two-agents", lock: "capture", repo: captureRepo, runs: []string{"cancelled", "success"}},
		[]string{"sleeps=cancelled", "sleeps=success"}},
	{recording{name: "queue-two-agents", lock: "queue-mode", repo: "local/queue-mode", runs: []string{"success", "success"}},
		[]string{"turn=success", "turn=success"}},
	{recording{name: "drain-and-reject", lock: "drain", repo: "local/drain", runs: []string{"success", "success"}},
		[]string{"ticks=success", "ticks=success"}},
	{recording{name: "generator-groups", lock: "generator", repo: "local/generator", runs: []string{"success"}},
		[]string{"plan=success __dynamic__rec-generate__1=success shard-1=success shard-2=success __dynamic__rec-generate__2=success deploy-eu=success deploy-us=success report=success"}},
	{recording{name: "generator-drift-sibling", lock: "generator-drift", repo: "local/generator-drift", runs: []string{"failed"}},
		[]string{"__dynamic__rec-drift-sibling__0=success keep=success lost-1=drift_dropped lost-2=drift_dropped after=success"}},
	{recording{name: "generator-drift-target", lock: "generator-drift", repo: "local/generator-drift", runs: []string{"failed"}},
		[]string{"__dynamic__rec-drift-target__0=success gone=failed after=skipped"}},
	{recording{name: "init-jobs-with-contexts", lock: "init-runner", repo: "local/init-runner", runs: []string{"success"}, contexts: true}, []string{initJobs}},
	{recording{name: "init-jobs-after-build", lock: "init-runner", repo: "local/init-runner", runs: []string{"success"}, contexts: true}, []string{initJobs}},
	{recording{name: "build-caches-cold", lock: "build-caches", repo: "local/build-caches", runs: []string{"success"}}, []string{"__build__rec-build=success uses-dep=success again=success"}},
	{recording{name: "build-caches-warm", lock: "build-caches", repo: "local/build-caches", runs: []string{"success"}}, []string{"__build__rec-build=success uses-dep=success again=success"}},
	{recording{name: "big-log-rate-limited", lock: "big-log", repo: "local/big-log", runs: []string{"success"}}, []string{"loud=success"}},
	{recording{name: "big-log-burst-crash", lock: "big-log-burst", repo: "local/big-log-burst", runs: []string{"failed"}}, []string{"loud=failed"}},
	{recording{name: "user-cache-filesystem", lock: "user-cache", repo: "local/user-cache", runs: []string{"failed"}}, []string{"fill=success use=failed"}},
	{recording{name: "user-cache-s3", lock: "user-cache", repo: "local/user-cache", runs: []string{"failed"}}, []string{"fill=success use=failed"}},
	{recording{name: "outputs-and-secret-outputs", lock: "outputs-secrets", repo: "local/outputs-secrets", runs: []string{"success"}}, nil},
	{recording{name: "agent-api", lock: "agent-api", repo: "local/agent-api", runs: []string{"failed"}}, []string{"ask=failed"}},
}

const initJobs = "__init__rec-init__dyn-env=success dyn-env=success __init__rec-init__dyn-many=success dyn-many=success __init__rec-init__dyn-matrix=success " +
	"dyn-matrix (a, s)=success dyn-matrix (a, l)=success dyn-matrix (b, s)=success dyn-matrix (z, xl)=success after=success"

// TestRecordedAgentsFareBetter plays recorded agents against a server that need not do what the recorded one did: it
// gives out what that one forgot, withholds what it should not have given out, and every run ends.
func TestRecordedAgentsFareBetter(t *testing.T) {
	for _, r := range better {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
				lines := loadRecording(t, r.name)
				if r.contexts {
					makeContexts(t, h)
				}
				th := &theatre{stage: direct(t, lines), t: t, home: h, repo: r.repo, sha: commitRecorded(t, h, r.recording, lines),
					peers: map[int]*actor{}, taken: map[string]int{}, seen: map[string]bool{}}
				h.Start(t)
				th.play(len(r.runs))
				ends, jobs := endings(t, h)
				if diff := cmp.Diff(r.runs, ends); diff != "" {
					t.Errorf("ends of the runs (-want +got):\n%s%s", diff, strings.Join(jobs, "\n"))
				}
				if diff := cmp.Diff(r.jobs, jobs); diff != "" && r.jobs != nil {
					t.Errorf("jobs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// endings lists every run with its jobs, oldest first.
func endings(t *testing.T, h *servertest.Home) (runs, jobs []string) {
	t.Helper()
	found, err := report.Runs(t.Context(), h.DB.Read(), report.RunFilter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(found)
	for _, r := range found {
		runs = append(runs, string(r.Status))
		list, err := report.Jobs(t.Context(), h.DB.Read(), r.RunID, false)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, j := range list {
			names = append(names, fmt.Sprintf("%s=%s", j.JobName, j.Status))
		}
		jobs = append(jobs, strings.Join(names, " "))
	}
	return runs, jobs
}

// TestARecordedAgentKeepsItsJobOverARestart plays the agent whose server was killed under it. The recorded one was sent
// away with its frames again and again, and its run failed; here it goes on, and its run succeeds with every line.
func TestARecordedAgentKeepsItsJobOverARestart(t *testing.T) {
	const name = "orchestrator-killed-and-restarted-mid-job"
	r := recording{name: name, lock: "capture", repo: captureRepo}
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		lines := loadRecording(t, name)
		p := newPlayer(t, h, r.repo, commitRecorded(t, h, r, lines))
		server := h.Start(t)
		cut := slices.IndexFunc(lines, func(l line) bool { return l.Event == "orch-close" })
		back := slices.IndexFunc(lines, func(l line) bool { return l.Conn == 3 && l.Dir == "a2o" })
		gone := slices.IndexFunc(lines, func(l line) bool { return l.Conn == 3 && l.Event == "orch-close" })
		p.play(lines[:cut])
		server.Stop()
		h.Start(t)
		p.peers[3] = h.Dial(t)
		p.play(lines[back:gone])
		job := p.dispatches[0].got
		for _, a := range done(job).actions[2:] { // what the recorded server threw away
			p.peers[3].SendRaw(a.send)
		}
		h.AwaitRuns(t, 1)
		if ends, jobs := endings(t, h); !slices.Equal(ends, []string{"success"}) {
			t.Errorf("the run ended as %s: %s", ends, jobs)
		}
	})
}
