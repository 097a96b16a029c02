package server_test

import (
	"fmt"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/server/servertest"
)

const (
	// computing joins an agent that computes for others.
	computing = "a joins linux kici:role:init-runner kici:role:builder\n"
	dynamic   = `{"_type":"dynamic","source":{"file":".kici/workflows/ci.ts","index":1},"group":"g"}`
	dynEnv    = `,"dynamicEnv":true`
)

// TestPlaysOfWorkForOthers plays init jobs and generators that give, fail, change their mind and are lost.
func TestPlaysOfWorkForOthers(t *testing.T) {
	init := lockOf(lockJob("build", onLinux+dynEnv), lockJob("after", onLinux+`,"needs":["build"]`), lockJob("free", onLinux))
	group := lockOf(lockJob("first", onLinux), dynamic, lockJob("last", onLinux+`,"needs":[{"group":"g"}]`))
	made := func(names ...string) string {
		var jobs []string
		for _, n := range names {
			jobs = append(jobs, lockJob(n, onLinux))
		}
		return `{"dynamicComplete":true,"dynamicJobs":[` + strings.Join(jobs, ",") + `]}`
	}
	const evaluation = `generator`
	plays := []play{
		{name: "an init job that gives", lock: init, lines: computing + `
			push
			a gets initofbuild
			a starts initofbuild
			a ends initofbuild success {"initComplete":true,"initResult":{"env":{"A":"1"}}}
			a gets free
			a starts free
			a ends free success
			a gets build
			a starts build
			a ends build success
			a gets after
			a starts after
			a ends after success`, want: []string{"success __init__ci__build=success build=success after=success free=success"}},
		{name: "an init job that says nothing of its result", lock: init, lines: computing + `
			push
			a gets initofbuild
			a starts initofbuild
			a ends initofbuild success
			build becomes failed
			a gets free
			a starts free
			a ends free success`, want: []string{"failed __init__ci__build=failed build=failed after=skipped free=success"}},
		{name: "an init job whose agent is lost", change: lostSoon, lock: init, lines: computing + `
			push
			a gets initofbuild
			a starts initofbuild
			a is gone
			a forgets
			build becomes failed
			a joins
			a gets free
			a starts free
			a ends free success`, want: []string{"failed __init__ci__build=failed build=failed after=skipped free=success"}},
		{name: "an init job nobody can do", lock: init, lines: `
			b joins
			push
			b gets free
			b starts free
			build waits init
			b ends free success
			free becomes success
			cancel`, want: []string{"cancelled __init__ci__build=cancelled build=cancelled after=cancelled free=success"}},
		{name: "an init job over the death of the server", lock: init, lines: computing + `
			push
			a gets initofbuild
			a starts initofbuild
			build waits init
			server dies
			a is sent away 1006
			a joins
			a ends initofbuild success {"initComplete":true,"initResult":{"env":{"A":"1"}}}
			a gets free
			a starts free
			a ends free success
			a gets build
			a starts build
			build becomes running
			cancel
			a stops build`, want: []string{"cancelled __init__ci__build=success build=cancelled after=cancelled free=success"}},
		{name: "a generator", lock: group, lines: computing + `
			push
			a gets first
			a starts first
			a ends first success
			a gets ` + evaluation + `
			a starts ` + evaluation + `
			server restarts
			a is sent away 1001
			a joins
			a ends ` + evaluation + ` success ` + made("x", "y") + `
			a gets x
			a starts x
			a ends x success
			a gets y
			a starts y
			a ends y success
			a gets last
			a starts last
			a ends last success`, want: []string{"success first=success __dynamic__ci__1=success x=success y=success last=success"}},
		{name: "a generator that gives something else when it is asked again, on a rerun", lock: group, lines: computing + `
			push
			a gets first
			a starts first
			a ends first success
			a gets ` + evaluation + `
			a starts ` + evaluation + `
			a ends ` + evaluation + ` success ` + made("x", "y") + `
			a gets x
			a starts x
			a ends x failed
			a gets y
			a starts y
			a ends y success
			last becomes skipped
			y becomes success
			rerun
			a gets first
			a starts first
			a ends first success
			a gets ` + evaluation + `
			a starts ` + evaluation + `
			a ends ` + evaluation + ` success ` + made("x", "z") + `
			a gets x
			a starts x
			a ends x success {"droppedJobs":["z"]}`,
			want: []string{"failed first=success __dynamic__ci__1=success x=failed y=success last=skipped", "failed first=success __dynamic__ci__1=success x=success z=drift_dropped last=skipped"}},
		{name: "a generator that throws", lock: group, lines: computing + `
			push
			a gets first
			a starts first
			a ends first success
			a gets ` + evaluation + `
			a starts ` + evaluation + `
			a ends ` + evaluation + ` failed {"error":"thrown","dynamicFailed":true}`, want: []string{"failed first=success __dynamic__ci__1=failed last=skipped"}},
		{name: "a generator that gives nothing", lock: group, lines: computing + `
			push
			a gets first
			a starts first
			a ends first success
			a gets ` + evaluation + `
			a starts ` + evaluation + `
			a ends ` + evaluation + ` success ` + made() + `
			a gets last
			a starts last
			a ends last success`, want: []string{"success first=success __dynamic__ci__1=success last=success"}},
		{name: "cancelled while it evaluates, and it gives all the same", lock: group, lines: computing + `
			push
			a gets first
			a starts first
			a ends first success
			a gets ` + evaluation + `
			a starts ` + evaluation + `
			` + `first becomes success
			cancel
			a hears job.cancel
			a ends ` + evaluation + ` success ` + made("x"), want: []string{"cancelled first=success __dynamic__ci__1=success last=cancelled"}},
	}
	for _, category := range []string{ci.InitSecretResolution, ci.InitInstallSecrets, ci.InitLockResolution, ci.InitBuildCoordination, ci.InitEnvironmentRules,
		ci.InitDynamicEval, ci.InitNoAgent, ci.InitMatrixExpansion, "of-another-version"} {
		plays = append(plays, play{name: "init fails as " + category, lock: init, lines: computing + fmt.Sprintf(`
			push
			a gets initofbuild
			a starts initofbuild
			a ends initofbuild failed {"error":"e","initFailed":true,"initFailure":{"scope":"job","category":%q,"message":"m","jobName":"build"}}
			a gets free
			a starts free
			build waits init_failure
			a ends free success`, category), want: []string{"failed __init__ci__build=failed build=failed after=skipped free=success"}})
	}
	perform(t, plays)
}

// TestARunOfAsManyJobsAsThereMayBe goes over a restart of its server.
func TestARunOfAsManyJobsAsThereMayBe(t *testing.T) {
	t.Parallel() // it waits more than it works
	values := make([]string, 256)
	for i := range values {
		values[i] = fmt.Sprintf(`"%d"`, i)
	}
	var jobs []string
	for i := range ci.MaxJobsPerRun / len(values) {
		jobs = append(jobs, lockJob(fmt.Sprint("t", i), onLinux+`,"matrix":{"_type":"static","values":[`+strings.Join(values, ",")+`]}`))
	}
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		first := h.Start(t)
		sha := h.Commit(t, app, lockOf(jobs...))
		ledger := servertest.NewLedger(nil)
		for i := range 4 {
			h.Employ(t, &servertest.Agent{ID: fmt.Sprint("agent-", i), Ledger: ledger, Features: careful})
		}
		h.Push(t, app, "main", sha)
		servertest.Await(t, "some of the jobs", func() bool {
			return h.Count(t, "SELECT count(*) FROM execution_jobs WHERE completed_at IS NOT NULL") > 100
		}, nil)
		first.Stop()
		h.Start(t)
		h.AwaitRuns(t, 1)
		requireAllGreen(t, h, 1)
		if n := h.Count(t, "SELECT count(*) FROM execution_jobs WHERE status = 'success'"); n != ci.MaxJobsPerRun {
			t.Errorf("%d jobs succeeded", n)
		}
	})
}
