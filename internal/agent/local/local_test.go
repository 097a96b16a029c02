//go:build unix

package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/lockfile"
)

func TestJobsRunInTheOrderOfTheirNeeds(t *testing.T) {
	b := repository(t, `
  job('build', { runsOn: 'linux', env: { MODE: 'fast' }, steps: [step('make', async ({ $, env, log }) => {
    log.info('mode', env.MODE, env.GREETING); await $`+"`cat README.md`"+`; return { version: '1.2' }; })] }),
  job('test', { runsOn: ['gpu', /^x/], needs: ['build'], matrix: ['a', 'b'], steps: [step('run', async ({ matrix, jobOutputs, log }) => {
    log.info('tests', matrix.value, jobOutputs('build').make.version); return { ok: matrix.value }; })] }),
  job('ship', { runsOn: 'linux', needs: ['test'], steps: [step('out', async ({ needs, jobOutputs, log }) => {
    log.info('after', needs.test.map((n) => n.name + ' ' + n.status).join(', '), jobOutputs('test').byMatrix.b.run.ok); })] }),
  job('repair', { runsOn: 'linux', needs: [{ name: 'build', when: 'on-failure' }], steps: [step('never', async () => {})] })`)
	b.write("README.md", "not committed\n")
	b.Env["GREETING"] = "hello"
	r := b.run()
	b.ends(r, "success build=success test (a)=success test (b)=success ship=success repair=skipped")
	b.says("build › make | [make] mode fast hello", "build › make | not committed", "test (b) › run | [run] tests b 1.2", "after test (a) success, test (b) success b")
	if steps := r.Jobs[0].Steps; len(steps) != 1 || steps[0].Status != "success" || steps[0].DurationMs == nil || steps[0].CompletedAt.Before(steps[0].StartedAt.Time) {
		t.Errorf("%+v", steps)
	}
}

func TestTheCopyIsTheWorkingTree(t *testing.T) {
	b := repository(t, `job('look', { runsOn: 'linux', steps: [step('ls', async ({ $ }) => {
  await $`+"`git status --short && cat new.txt && git log --format=%s && ls; touch made; test -x run.sh`"+`; })] })`)
	b.write("gone.txt", "x")
	b.write("run.sh", "#!/bin/sh\n")
	must(t, os.Chmod(filepath.Join(b.Root, "run.sh"), 0o755))
	b.git("add", ".")
	b.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message=second")
	must(t, os.Remove(filepath.Join(b.Root, "gone.txt")))
	b.write("new.txt", "fresh")
	b.write("ignored", "no")
	b.write(".gitignore", "ignored\n# more\n")
	must(t, os.Symlink("new.txt", filepath.Join(b.Root, "link")))
	b.ends(b.run(), "success look=success")
	b.says(" M .gitignore", " D gone.txt", "?? link", "?? new.txt", "fresh", "second\n")
	if strings.Contains(b.Screen.text(), "| ignored") {
		t.Error("a file that git ignores was copied")
	}
	if _, err := os.Stat(filepath.Join(b.Root, "made")); err == nil {
		t.Error("the job wrote into the repository")
	}
}

func TestInstalledDependenciesComeAlong(t *testing.T) {
	b := repository(t, `job('a', { runsOn: 'linux', checkout: false, steps: [step('s', async () => {})] })`)
	b.write("big.txt", "not taken along")
	b.write(".kici/.gitignore", "node_modules\n")
	b.write(".kici/package.json", `{"dependencies": {"lib": "1.0.0"}}`)
	b.write(".kici/node_modules/lib/package.json", `{"name": "lib", "version": "1.0.0", "main": "index.js"}`)
	b.write(".kici/node_modules/lib/index.js", `export const word = 'installed';`)
	b.write(".kici/workflows/ci.ts", `import { workflow, job, step } from '@kici-dev/sdk'; import { word } from 'lib';
export default workflow('ci', { jobs: [job('a', { runsOn: 'linux', checkout: false, steps: [step('s', async ({ $, log }) => {
  log.info(word); await $`+"`ls; test ! -e big.txt`"+`; })] })] });`)
	b.ends(b.run(), "success a=success")
	b.says("installed")
}

// What a workflow installs from a private registry is installed with the secrets of this machine.
func TestDependenciesAreInstalledWithLocalSecrets(t *testing.T) {
	b := repository(t, `job('a', { runsOn: 'linux', steps: [step('s', async () => {})] })`)
	b.write(".kici/package.json", `{"dependencies": {"lib": "1.0.0"}}`)
	always := true
	b.Workflow.Registries = []lockfile.Registry{{URL: "https://npm.example.org/", Scope: "@acme", TokenSecret: "prod:NPM", AlwaysAuth: &always}}
	b.Workflow.InstallEnv = []string{"prod:EXTRA"}
	bin := t.TempDir()
	must(t, os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\nmkdir node_modules\ncat .npmrc > ../seen\nprintenv | grep -e KICI_NPM -e EXTRA | cut -d= -f2 >> ../seen\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	b.Environ = os.Environ()
	b.ends(b.run(), "failed a=failed")
	b.Secrets = Secrets{Contexts: map[string]map[string]string{"prod": {"NPM": "the-token", "EXTRA": "the-extra"}}}
	b.Keep = true
	r := b.run()
	b.ends(r, "success a=success")
	seen, err := os.ReadFile(filepath.Join(r.Kept[0], "seen"))
	must(t, err)
	for _, want := range []string{"@acme:registry=https://npm.example.org/", "always-auth=true", "\nthe-token\n", "\nthe-extra\n"} {
		if !strings.Contains(string(seen), want) {
			t.Errorf("%q is not in\n%s", want, seen)
		}
	}
}

// Submodules are copied as the repository is, those in submodules too.
func TestSubmodulesComeAlong(t *testing.T) {
	b := repository(t, `job('look', { runsOn: 'linux', steps: [step('ls', async ({ $ }) => {
  await $`+"`cat lib/lib.txt lib/deep/deep.txt && git -C lib log --format=%s && git -C lib status --short && git status --short && ls; touch lib/made`"+`; })] }),
  job('bare', { runsOn: 'linux', checkout: false, steps: [step('ls', async ({ $ }) => { await $`+"`test ! -e lib/lib.txt`"+`; })] })`)
	const any = "job('a', { runsOn: 'linux', run: async () => {} })"
	inner, outer, absent := repository(t, any), repository(t, any), repository(t, any)
	for _, part := range []struct {
		of   *bench
		name string
	}{{inner, "deep.txt"}, {outer, "lib.txt"}, {absent, "no.txt"}} {
		part.of.write(part.name, "committed "+part.name)
		part.of.git("add", ".")
		part.of.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message=of "+part.name)
	}
	const allow = "protocol.file.allow=always"
	outer.git("-c", allow, "submodule", "--quiet", "add", inner.Root, "deep")
	outer.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message=with deep")
	b.git("-c", allow, "submodule", "--quiet", "add", outer.Root, "lib")
	b.git("-c", allow, "submodule", "--quiet", "add", absent.Root, "absent")
	b.git("-c", allow, "submodule", "--quiet", "update", "--init", "--recursive")
	b.git("submodule", "--quiet", "deinit", "--force", "absent")
	b.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message=submodules")
	b.write("lib/lib.txt", "changed here")
	b.ends(b.run(), "success look=success bare=success")
	b.says("changed here", "committed deep.txt", "with deep", " M lib.txt", " m lib", "The submodule absent is not checked out in the repository")
	if _, err := os.Stat(filepath.Join(b.Root, "lib", "made")); err == nil {
		t.Error("the job wrote into the submodule")
	}
}

func TestInPlaceRunsInTheRepository(t *testing.T) {
	b := repository(t, "job('make', { runsOn: 'linux', steps: [step('touch', async ({ $ }) => { await $`touch made`; })] })")
	b.InPlace = true
	b.ends(b.run(), "success make=success")
	if _, err := os.Stat(filepath.Join(b.Root, "made")); err != nil {
		t.Error(err)
	}
}

func TestFoldersAreKeptOnDemand(t *testing.T) {
	b := repository(t, "job('make', { runsOn: 'linux', steps: [step('touch', async ({ $ }) => { await $`touch made`; })] })")
	b.Keep = true
	r := b.run()
	if len(r.Kept) != 1 {
		t.Fatalf("kept %v", r.Kept)
	}
	if _, err := os.Stat(filepath.Join(r.Kept[0], "made")); err != nil {
		t.Error(err)
	}
}

const failing = `
  job('bad', { runsOn: 'linux', steps: [step('fail', async () => { throw new Error('broken'); })] }),
  job('other', { runsOn: 'linux', steps: [step('ok', async () => {})] }),
  job('after', { runsOn: 'linux', needs: ['bad'], steps: [step('ok', async () => {})] }),
  job('report', { runsOn: 'linux', needs: [{ name: 'bad', when: 'on-failure' }], steps: [step('ok', async ({ needs, log }) => { log.info('bad is ' + needs.bad.status); })] })`

func TestAFailureStopsWhatIsNotBegun(t *testing.T) {
	b := repository(t, failing)
	b.Jobs = 1
	r := b.run()
	b.ends(r, "failed bad=failed other=cancelled after=skipped report=success")
	b.says("bad is failed")
	if got := *r.Jobs[1].ErrorMessage; !strings.Contains(got, "not begun, since bad failed") {
		t.Error(got)
	}
	if got := *r.Jobs[0].ErrorMessage; !strings.Contains(got, "Step 'fail' failed") {
		t.Error(got)
	}
}

func TestKeepGoingRunsTheRest(t *testing.T) {
	b := repository(t, failing)
	b.Jobs, b.KeepGoing = 1, true
	b.ends(b.run(), "failed bad=failed other=success after=skipped report=success")
}

func TestOneJobComesWithItsNeeds(t *testing.T) {
	b := repository(t, failing)
	b.Only = "after"
	b.ends(b.run(), "failed bad=failed after=skipped")
	b.Only = "absent"
	o := b.Options
	_, err := Run(t.Context(), o)
	if none, ok := errors.AsType[*NoJobError](err); !ok || strings.Join(none.Have, ",") != "bad,other,after,report" {
		t.Error(err)
	}
}

func TestFunctionsThatOnlyAnAgentRuns(t *testing.T) {
	b := repository(t, `
  job('wide', { runsOn: 'linux', matrix: async ({ ctx }) => ['x', ctx.event.type], steps: [step('s', async ({ matrix, log }) => { log.info('cell ' + matrix.value); })] }),
  job('env', { runsOn: 'linux', env: async () => ({ COMPUTED: 'yes' }), steps: [step('s', async ({ env, log }) => { log.info('computed ' + env.COMPUTED); return { v: 1 }; })] }),
  dynamicJob('shards', { needs: ['env'], generate: async ({ ctx }) => [1, 2].map((n) => job('shard-' + n, { runsOn: 'linux',
    steps: [step('s', async ({ log }) => { log.info('shard ' + n + ' of ' + ctx.needs.env.result.s.v); })] })) }),
  job('last', { runsOn: 'linux', needs: ['wide', dynamicGroup('shards')], steps: [step('s', async ({ needs, log }) => { log.info('last after ' + needs.shards.length); })] })`)
	b.ends(b.run(), "success __init__ci__wide=success wide (x)=success wide (push)=success __init__ci__env=success env=success"+
		" __dynamic__ci__2=success shard-1=success shard-2=success last=success")
	b.says("cell push", "computed yes", "shard 2 of 1", "last after 2")
}

func TestFunctionsThatFail(t *testing.T) {
	b := repository(t, `
  job('wide', { runsOn: 'linux', matrix: async () => { throw new Error('no matrix'); }, steps: [] }),
  dynamicJob('g', async () => { throw new Error('no jobs'); }),
  job('after', { runsOn: 'linux', needs: ['wide', dynamicGroup('g')], steps: [] })`)
	b.KeepGoing = true
	r := b.run()
	b.ends(r, "failed __init__ci__wide=failed wide=failed __dynamic__ci__1=failed after=skipped")
	if got := *r.Jobs[1].ErrorMessage; !strings.Contains(got, "no matrix") {
		t.Error(got)
	}
}

func TestAJobForAllHostsRunsHereOnce(t *testing.T) {
	b := repository(t, `job('each', { runsOnAll: ['web', 'linux'], steps: [step('s', async ({ host, log }) => { log.info('on ' + host); })] })`)
	b.ends(b.run(), "success each (here)=success")
	b.says("on here")
}

func TestALimitedFanOutTakesTurns(t *testing.T) {
	b := repository(t, `job('wide', { runsOn: 'linux', matrix: ['a', 'b', 'c'], maxParallel: 1, failFast: true, steps: [step('s', async ({ matrix }) => {
  if (matrix.value === 'b') throw new Error('no'); })] })`)
	b.KeepGoing = true
	b.ends(b.run(), "failed wide (a)=success wide (b)=failed wide (c)=skipped")
}

func TestSecretsAreThoseOfTheContexts(t *testing.T) {
	b := repository(t, `
  job('one', { runsOn: 'linux', environments: ['prod'], steps: [step('s', async ({ secrets, log, setSecretOutput, $ }) => {
    await $`+"`echo leaked ${await secrets.get('TOKEN')}`"+`; log.info((await secrets.get('COMMON')).length, secrets.list().join());
    setSecretOutput('MADE', 'made-secret'); return { token: await secrets.get('TOKEN') }; })] }),
  job('two', { runsOn: 'linux', needs: ['one'], steps: [step('s', async ({ secrets, log, jobOutputs }) => { if (jobOutputs('one').s.token !== 'prod-' + 'token') throw new Error('masked for jobs'); log.info('has', secrets.has('MADE'), secrets.has('TOKEN')); log.info(await secrets.get('MADE')); })] })`)
	b.Secrets = Secrets{Common: map[string]string{"COMMON": "common-value", "TOKEN": "wrong-token"}, Contexts: map[string]map[string]string{"prod": {"TOKEN": "prod-token"}}}
	r := b.run()
	b.ends(r, "success one=success two=success")
	if got := string(r.Jobs[0].Outputs); got != `{"s":{"token":"***"}}` {
		t.Error(got)
	}
	b.says("leaked ***", "12 COMMON,TOKEN", "has true true")
	for _, secret := range []string{"prod-token", "made-secret"} {
		if strings.Contains(b.Screen.text(), secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
}

// Of a secret in several contexts that of the last one counts, and a step is told which that is, as on a server.
func TestASecretIsThatOfTheLastContext(t *testing.T) {
	b := repository(t, `
  job('a', { runsOn: 'linux', environments: ['prod', 'empty', 'base'], steps: [step('s', async ({ secrets, log }) => {
    for (const name of ['TOKEN', 'KEY', 'COMMON']) { const { value, scope } = secrets.getMeta(name); log.info(name, value.length, scope || 'none'); } })] })`)
	b.Secrets = Secrets{Common: map[string]string{"COMMON": "1", "TOKEN": "22"},
		Contexts: map[string]map[string]string{"prod": {"TOKEN": "333", "KEY": "4444"}, "base": {"TOKEN": "55555"}, "other": {"TOKEN": "666666"}}}
	b.ends(b.run(), "success a=success")
	b.says("TOKEN 5 base", "KEY 4 prod", "COMMON 1 none")
}

func TestCheckModeChangesNothing(t *testing.T) {
	const jobs = `job('conf', { runsOn: 'linux', steps: [checkStep('file', { check: async () => ({ missing: true }),
  summarize: () => 'the file is missing', apply: async ({ log }) => { log.info('applied'); } })] })`
	b := repository(t, jobs)
	b.CheckMode = "check"
	r := b.run()
	b.ends(r, "success conf=success")
	if !r.Drift || *r.Jobs[0].Steps[0].DriftSummary != "the file is missing" || strings.Contains(b.Screen.text(), "applied") {
		t.Errorf("drift %v, %+v\n%s", r.Drift, r.Jobs[0].Steps, b.Screen.text())
	}
	b.CheckMode = "check-fail-on-drift"
	if r = b.run(); !r.Drift || r.Run.Status != "failed" {
		t.Errorf("%v, %s", r.Drift, r.Run.Status)
	}
}

func TestWhatNeedsAServerSaysSo(t *testing.T) {
	b := repository(t, `job('ask', { runsOn: 'linux', container: 'node:24', steps: [
  step('approved', { approval: true, run: async ({ log }) => { log.info('went on'); } }),
  step('emit', async ({ emit }) => { await emit('shipped', { v: 1 }); }),
  step('api', async ({ kici }) => { await kici.inventory.query(); })] })`)
	b.ends(b.run(), "failed ask=failed")
	b.says("The container of the job is not used", "asks for an approval, which who runs it here has given", "went on",
		`Event 'shipped' is not delivered: a local run has no server. Its payload: {"v":1}`)
}

const long = `
  job('long', { runsOn: 'linux', onCancel: async ({ log }) => { log.info('cleaned up'); }, steps: [step('sleep', async ({ $, log }) => {
    log.info('at work'); await $` + "`sleep 60`" + `; })] }),
  job('after', { runsOn: 'linux', needs: ['long'], steps: [] })`

func TestAnInterruptedRunEndsWithItsHooks(t *testing.T) {
	b := repository(t, long)
	b.Screen.wait = "at work"
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-b.Screen.seen
		interrupt()
	}()
	r := b.runUntil(ctx)
	b.ends(r, "cancelled long=cancelled after=cancelled")
	b.says("cleaned up")
	if got := *r.Run.FailureReason; got != "interrupted" {
		t.Error(got)
	}
}

func TestAForcedEndRunsNoHooks(t *testing.T) {
	b := repository(t, long)
	b.Screen.wait = "at work"
	force := make(chan struct{})
	b.Force = force
	go func() {
		<-b.Screen.seen
		close(force)
	}()
	b.ends(b.run(), "cancelled long=cancelled after=cancelled")
	if strings.Contains(b.Screen.text(), "cleaned up") {
		t.Error("a hook ran")
	}
}

func TestARunThatTakesTooLongFails(t *testing.T) {
	b := repository(t, long)
	b.Workflow.TimeoutMs = 100
	r := b.run()
	b.ends(r, "cancelled long=cancelled after=cancelled")
	if got := *r.Run.FailureReason; !strings.Contains(got, "workflow timeout of 100ms") {
		t.Errorf("%s: %s", r.Run.Status, got)
	}
}

func TestAWorkflowThatCannotBePlanned(t *testing.T) {
	b := repository(t, `job('a', { runsOn: 'linux', steps: [] })`)
	b.Workflow.Jobs = append(b.Workflow.Jobs, b.Workflow.Jobs[0])
	r := b.run()
	if r.Run.Status != "failed" || r.Run.InitFailure == nil || !strings.Contains(*r.Run.FailureReason, "two jobs called 'a'") {
		t.Errorf("%+v", r.Run)
	}
}

func TestSecretsComeFromThreeFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	s, err := LoadSecrets(dir)
	if err != nil || len(s.Common)+len(s.Contexts) > 0 {
		t.Fatalf("%v, %v", s, err)
	}
	write(".env.local", "# mine\nexport A=1\nB=\"two words\"\nC=x=y#z\n")
	write("secrets.yaml", "A: 2\nprod:\n  TOKEN: from-yaml\n  PORT: 8080\n")
	write(".secrets", "A = 3\n[prod]\nTOKEN=from-ini\n[ stage ]\nTOKEN='quoted'\n")
	if s, err = LoadSecrets(dir); err != nil {
		t.Fatal(err)
	}
	want := Secrets{Common: map[string]string{"A": "3", "B": "two words", "C": "x=y#z"},
		Contexts: map[string]map[string]string{"prod": {"TOKEN": "from-ini", "PORT": "8080"}, "stage": {"TOKEN": "quoted"}}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
}

func TestSecretsThatCannotBeRead(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{".env.local", "A=1\nsecret-value\n", "line 2: expected NAME=value"},
		{".env.local", "[prod]\n", "line 1: expected NAME=value"},
		{".secrets", "A=1\n[]\n", "line 2: a section is written [context]"},
		{".secrets", "=secret-value\n", "line 1: expected NAME=value"},
		{"secrets.yaml", "- secret-value\n", "expected a mapping, found a list"},
		{"secrets.yaml", "prod:\n  A: [secret-value]\n", "secret A must be a text, found a list"},
		{"secrets.yaml", strings.Repeat("#", maxSecrets+1), "more than 1048576"},
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, tt.name), []byte(tt.text), 0o600))
		_, err := LoadSecrets(dir)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.name) || strings.Contains(err.Error(), "secret-value") {
			t.Errorf("%q: %v", tt.text[:min(len(tt.text), 40)], err)
		}
	}
}

func TestRepositoriesAreNamedAsTheirRemote(t *testing.T) {
	for url, want := range map[string]string{
		"https://github.com/acme/app.git": "acme/app", "git@github.com:acme/app.git": "acme/app", "ssh://git@host:22/team/acme/app": "acme/app",
		"/srv/git/acme/app.git": "acme/app", "app": "local/x",
	} {
		if got := identifier(url, "local/x"); got != want {
			t.Errorf("%s: %s", url, got)
		}
	}
	r, err := Describe(t.Context(), t.TempDir())
	if err != nil || r.Root != "" {
		t.Errorf("%+v, %v", r, err)
	}
	b := repository(t, `job('a', { runsOn: 'linux', steps: [] })`)
	if r, err = Describe(t.Context(), filepath.Join(b.Root, ".kici")); err != nil || len(r.SHA) != 40 || r.Name != "local/"+filepath.Base(b.Root) {
		t.Errorf("%+v, %v", r, err)
	}
}
