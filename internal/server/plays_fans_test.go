package server_test

import (
	"testing"

	"kici/internal/server/servertest"
)

const (
	onWeb    = `,"runsOnAll":{"include":[[{"kind":"exact","value":"web"}]],"exclude":[]}`
	fourTime = `,"matrix":{"_type":"static","values":["1","2","3","4"]}`
)

// TestPlaysOfManyJobs plays hosts, waves, and jobs whose names begin alike.
func TestPlaysOfManyJobs(t *testing.T) {
	hosts := lockOf(lockJob("each", onWeb), lockJob("after", onLinux+`,"needs":["each"]`))
	perform(t, []play{
		{name: "a host that is away and comes back", lock: hosts, lines: `
			a joins linux web
			b joins web
			c joins web
			c is gone
			push
			a gets each(a)
			a starts each(a)
			a ends each(a) success {"outputs":{"s":{"k":"a"}}}
			b gets each(b)
			b starts each(b)
			b ends each(b) success {"outputs":{"s":{"k":"b"}}}
			each(c) waits no_agent
			each(a) becomes success
			each(b) becomes success
			server dies
			a is sent away 1006
			b is sent away 1006
			a joins
			each(c) waits no_agent
			c joins
			c gets each(c)
			c starts each(c)
			c ends each(c) success
			a gets after
			a starts after
			a ends after success`, want: []string{"success each (a)=success each (b)=success each (c)=success after=success"}},
		{name: "a host that is away and is left out", lock: lockOf(lockJob("each", onWeb+`,"onUnreachable":"skip"`)), lines: `
			a joins web
			c joins web
			c is gone
			push
			a gets each(a)
			a starts each(a)
			a ends each(a) success`, want: []string{"success each (a)=success"}},
		{name: "a host that is away and fails", lock: lockOf(lockJob("each", onWeb+`,"onUnreachable":"fail"`)), lines: `
			a joins web
			c joins web
			c is gone
			push
			a gets each(a)
			a starts each(a)
			a ends each(a) success`, want: []string{"failed each (a)=success each (c)=failed"}},
		{name: "a wave of two", lock: lockOf(lockJob("t", onLinux+fourTime+`,"maxParallel":2`)), lines: `
			a joins
			b joins
			c joins
			push
			a gets t(1)
			b gets t(2)
			t(3) waits wave
			a starts t(1)
			b starts t(2)
			a ends t(1) failed
			a gets t(3)
			a starts t(3)
			server restarts
			a is sent away 1001
			b is sent away 1001
			c is sent away 1001
			t(4) waits wave
			b joins
			b ends t(2) success
			b gets t(4)
			a joins
			b starts t(4)
			b ends t(4) success
			a ends t(3) success`, want: []string{"failed t (1)=failed t (2)=success t (3)=success t (4)=success"}},
		{name: "a wave that stops at the first failure", lock: lockOf(lockJob("t", onLinux+fourTime+`,"maxParallel":2,"failFast":true`)), lines: `
			a joins
			b joins
			push
			a gets t(1)
			b gets t(2)
			a starts t(1)
			a ends t(1) failed
			t(1) becomes failed
			b starts t(2)
			b ends t(2) success`, want: []string{"failed t (1)=failed t (2)=success t (3)=skipped t (4)=skipped"}},
		{name: "a wave whose agent is lost", change: lostSoon, lock: lockOf(lockJob("t", onLinux+fourTime+`,"maxParallel":1`)), lines: `
			a joins
			push
			a gets t(1)
			a starts t(1)
			a is gone
			a forgets
			t(1) becomes failed
			b joins
			b gets t(2)
			b starts t(2)
			cancel
			b stops t(2)`, want: []string{"failed t (1)=failed t (2)=cancelled t (3)=cancelled t (4)=cancelled"}},
		{name: "names that begin alike", lock: lockOf(lockJob("test", onLinux), lockJob("test-extra", onLinux), lockJob("t", onLinux+`,"needs":["test"]`)), lines: `
			a joins
			push
			a gets test
			a starts test
			a ends test success {"outputs":{"s":{"k":"test"}}}
			a gets test-extra
			a starts test-extra
			a ends test-extra failed
			a gets t
			a starts t
			a ends t success`, want: []string{"failed test=success test-extra=failed t=success"}},
		{name: "a rerun of what failed", lock: servertest.Lock("build", "after<build"), lines: `
			a joins
			push
			a gets build
			a starts build
			a ends build success
			a gets after
			a starts after
			a ends after failed
			after becomes failed
			rerun
			a gets build
			a starts build
			a ends build success
			a gets after
			server restarts
			a is sent away 1001
			a joins
			a starts after
			a ends after success`, want: []string{"failed build=success after=failed", "success build=success after=success"}},
	})
}

// TestPlaysOfSingleUse plays agents that a scaler would have started: they never come back.
func TestPlaysOfSingleUse(t *testing.T) {
	one := servertest.Lock("build")
	perform(t, []play{
		{name: "dies before it answers", lock: one, attempts: 2, lines: `
			a joins once
			push
			a gets build
			a is gone
			b joins once
			b gets build
			b starts build
			b ends build success
			b leaves`, want: []string{"success build=success"}},
		{name: "dies after it answered", lock: one, attempts: 2, lines: `
			a joins once
			push
			a gets build
			a acks build
			a is gone
			b joins
			b gets build
			b starts build
			b ends build success`, want: []string{"success build=success"}},
		{name: "dies with a job that runs", lock: one, attempts: 1, lines: `
			a joins once
			push
			a gets build
			a starts build
			a is gone`, want: []string{"failed build=failed"}},
		{name: "dies while its run is cancelled", lock: one, attempts: 1, lines: `
			a joins once
			push
			a gets build
			a starts build
			build becomes running
			cancel
			a hears job.cancel
			a is gone`, want: []string{"cancelled build=cancelled"}},
		{name: "the server dies with it", lock: one, attempts: 1, lines: `
			a joins once
			push
			a gets build
			a starts build
			build becomes running
			server dies
			a is sent away 1006
			a joins
			a ends build success`, want: []string{"success build=success"}},
	})
}

// TestPlaysOfCaches moves bytes beside the connection.
func TestPlaysOfCaches(t *testing.T) {
	const (
		save     = `a says build {"type":"cache.user.save.request","key":"k-1"}`
		saved    = `a says build {"type":"cache.user.save.complete","key":"k-1","tarHash":"aa","sizeBytes":5}`
		restore  = `a says build {"type":"cache.user.restore.request","key":"k-2","restoreKeys":["k-"]}`
		restored = "\na hears cache.user.restore.response "
		begin    = "a joins\npush\na gets build\na starts build\n"
	)
	one := servertest.Lock("build")
	perform(t, []play{
		{name: "saved and restored", lock: one, lines: begin + restore + restored + `"hit":false
			` + save + `
			a hears cache.user.save.response "skip":false
			a puts - - whole
			` + saved + `
			` + restore + restored + `"matchedKey":"k-1"
			` + save + `
			a hears cache.user.save.response "skip":true
			a ends build success`, want: []string{"success build=success"}},
		{name: "cut off", lock: one, lines: begin + save + `
			a hears cache.user.save.response "skip":false
			a cut - - whole
			` + saved + `
			` + restore + restored + `"hit":false
			` + save + `
			a hears cache.user.save.response "skip":false
			a puts - - whole
			` + saved + `
			` + restore + restored + `"hit":true
			a ends build success`, want: []string{"success build=success"}},
	})
}
