//go:build unix

package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestArtifactsOfALocalRunLieInItsFolder(t *testing.T) {
	b := repository(t, `job('make', { runsOn: 'linux', steps: [step('up', async ({ $, artifacts, log }) => {
    await $`+"`printf one > f && mkdir d && printf two > d/g`"+`;
    await artifacts.upload({ name: '../report', paths: 'f' }); await artifacts.upload({ name: 'all', paths: ['d'] }); })] }),
  job('other', { runsOn: 'linux', needs: ['make'], steps: [step('up', async ({ $, artifacts }) => {
    await $`+"`printf x > f`"+`; await artifacts.upload({ name: '../report', paths: 'f' }); })] })`)
	b.Artifacts = filepath.Join(t.TempDir(), "artifacts", "ci")
	b.write("leftover", "")
	must(t, os.MkdirAll(b.Artifacts, 0o755))
	must(t, os.WriteFile(filepath.Join(b.Artifacts, "of the run before"), nil, 0o644))
	r := b.run()
	b.ends(r, "failed make=success other=failed")
	b.says(`job make has an artifact "../report" already`)
	want := []string{filepath.Join(b.Artifacts, "%2E.%2Freport"), filepath.Join(b.Artifacts, "all.tar.gz")}
	if d := cmp.Diff(want, r.Artifacts); d != "" {
		t.Error(d)
	}
	entries, err := os.ReadDir(b.Artifacts)
	must(t, err)
	if raw, err := os.ReadFile(want[0]); err != nil || string(raw) != "one" || len(entries) != 2 {
		t.Errorf("%q, %v among %v", raw, err, entries)
	}
	if raw, err := os.ReadFile(filepath.Join(filepath.Dir(b.Artifacts), ".gitignore")); err != nil || string(raw) != "*\n" {
		t.Errorf("the folder does not hide from git: %q, %v", raw, err)
	}
}

func TestAFileNameIsPlainAndItsTextsOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 1, 20)
		a, b := string(text.Draw(t, "a")), string(text.Draw(t, "b"))
		name := FileName(a)
		if a != b && name == FileName(b) || strings.ContainsAny(name, "/\\") || name == "." || name == ".." || filepath.Base(name) != name {
			t.Fatalf("%q and %q have %q and %q", a, b, name, FileName(b))
		}
	})
}
