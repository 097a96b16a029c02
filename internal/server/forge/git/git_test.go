package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kici/internal/server/forge/git"
)

// repo makes a repository with the branch main and gives its path.
func repo(t testing.TB, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	run(t, ".", append([]string{"init", "-q", "-b", "main", dir}, args...)...)
	return dir
}

func run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@e.c", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes a file, commits it and gives the commit's id.
func commit(t testing.TB, dir, path, content string) string {
	t.Helper()
	full := filepath.Join(dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "add", "-A")
	run(t, dir, "commit", "-q", "-m", "change "+path+"\n\nbody")
	return run(t, dir, "rev-parse", "HEAD")
}

func reader(t testing.TB, o git.Options) *git.Reader {
	t.Helper()
	r := git.NewReader(o)
	t.Cleanup(r.Close)
	return r
}

func TestShowReadsTheCommitThatIsNamed(t *testing.T) {
	dir := repo(t)
	first := commit(t, dir, "a b/lock", "one")
	second := commit(t, dir, "a b/lock", "two")
	run(t, dir, "tag", "-a", "v1", "-m", "tag", first)
	bare := filepath.Join(t.TempDir(), "bare.git")
	run(t, ".", "clone", "-q", "--bare", dir, bare)
	worktree := filepath.Join(t.TempDir(), "worktree")
	run(t, dir, "worktree", "add", "-q", "--detach", worktree, first)
	if err := os.WriteFile(filepath.Join(dir, "a b/lock"), []byte("not committed"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := reader(t, git.Options{})
	for _, at := range []string{dir, bare, worktree} {
		for rev, want := range map[string]string{first: "one", second: "two", "main": "two", "refs/heads/main": "two", "v1": "one"} {
			blob, err := r.Show(t.Context(), at, rev, "a b/lock", 100)
			if err != nil || string(blob.Data) != want {
				t.Errorf("%s at %s: %q, %v; want %q", at, rev, blob.Data, err, want)
			}
		}
		c, err := r.Commit(t.Context(), at, "v1")
		if err != nil || c.SHA != first || c.Message != "change a b/lock\n\nbody\n" {
			t.Errorf("%s: commit %+v, %v", at, c, err)
		}
	}
	if branch, err := r.DefaultBranch(t.Context(), bare); err != nil || branch != "main" {
		t.Errorf("default branch %q, %v", branch, err)
	}
}

func TestShowTellsWhatIsMissing(t *testing.T) {
	dir := repo(t)
	sha := commit(t, dir, "folder/file", strings.Repeat("x", 50))
	if err := os.Mkdir(filepath.Join(filepath.Dir(dir), "plain"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := reader(t, git.Options{})
	tests := []struct {
		name, repo, rev, path string
		want                  error // a file of 50 bytes is at hand where 40 may be read
	}{
		{"file", dir, sha, "other", git.ErrNoFile},
		{"folder", dir, sha, "folder", git.ErrNoFile},
		{"commit", dir, strings.Repeat("0", 40), "folder/file", git.ErrNoCommit},
		{"branch", dir, "dev", "folder/file", git.ErrNoCommit},
		{"too large", dir, sha, "folder/file", git.ErrTooLarge},
		{"no folder", filepath.Join(dir, "none"), sha, "f", git.ErrNoRepository},
		{"folder without repository", filepath.Join(filepath.Dir(dir), "plain"), sha, "f", git.ErrNoRepository},
		{"history search", dir, ":/change", "f", git.ErrBadName},
		{"ancestor", dir, "main~1000000", "f", git.ErrBadName},
		{"option", dir, "--help", "f", git.ErrBadName},
		{"reflog", dir, "main@{1}", "f", git.ErrBadName},
		{"line break", dir, "main\nHEAD", "f", git.ErrBadName},
		{"path with line break", dir, sha, "f\nHEAD", git.ErrBadName},
		{"path upwards", dir, sha, "../f", git.ErrBadName},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := r.Show(t.Context(), tt.repo, tt.rev, tt.path, 40); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
	// After a file that was too large the next answer is right again.
	if blob, err := r.Show(t.Context(), dir, sha, "folder/file", 50); err != nil || len(blob.Data) != 50 {
		t.Errorf("%d bytes, %v", len(blob.Data), err)
	}
}

// A process that is kept sees what is pushed, packed, moved and replaced under it.
func TestKeptProcessSeesNewCommits(t *testing.T) {
	dir := repo(t)
	commit(t, dir, "f", "0")
	r := reader(t, git.Options{})
	show := func(rev, want string) {
		t.Helper()
		blob, err := r.Show(t.Context(), dir, rev, "f", 100)
		if err != nil || string(blob.Data) != want {
			t.Errorf("at %s: %q, %v; want %q", rev, blob.Data, err, want)
		}
	}
	show("main", "0")
	show(commit(t, dir, "f", "1"), "1")
	show("main", "1")
	run(t, dir, "gc", "-q", "--prune=now")
	show("main", "1")
	sha := commit(t, dir, "f", "2")
	run(t, dir, "repack", "-q", "-a", "-d")
	run(t, dir, "pack-refs", "--all")
	show(sha, "2")
	show("main", "2")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	run(t, ".", "init", "-q", "-b", "main", dir)
	show(commit(t, dir, "f", "another repository"), "another repository")
	run(t, dir, "gc", "-q", "--prune=now")
	show("main", "another repository")
}

// A repository is somebody else's: whatever its configuration, hooks and attributes name must not run.
func TestHostileRepositoryRunsNothing(t *testing.T) {
	dir := repo(t)
	sha := commit(t, dir, "f", "x")
	canary := filepath.Join(t.TempDir(), "ran")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntouch '"+canary+"'\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"core.fsmonitor": script, "core.sshCommand": script, "core.pager": script, "core.editor": script, "core.gitProxy": script,
		"core.alternateRefsCommand": script, "credential.helper": script, "gpg.program": script, "diff.external": script,
		"uploadpack.packObjectsHook": script, "filter.x.smudge": script, "filter.x.clean": script, "diff.x.textconv": script,
		"alias.cat-file": "!" + script, "alias.symbolic-ref": "!" + script,
		"extensions.partialClone": "origin", "remote.origin.promisor": "true", "remote.origin.partialclonefilter": "blob:none",
		"remote.origin.url": "file://" + dir, "remote.origin.uploadpack": script, "protocol.allow": "always", "protocol.ext.allow": "always",
		"core.repositoryformatversion": "1",
	} {
		run(t, dir, "config", key, value)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git/info/attributes"), []byte("* filter=x diff=x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// With its blob gone, an unguarded git would fetch it through the program above.
	blob := run(t, dir, "rev-parse", sha+":f")
	object := filepath.Join(dir, ".git/objects", blob[:2], blob[2:])
	r := reader(t, git.Options{})
	if got, err := r.Show(t.Context(), dir, sha, "f", 10); err != nil || string(got.Data) != "x" {
		t.Errorf("%q, %v", got.Data, err)
	}
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	for _, rev := range []string{sha, "main", strings.Repeat("a", 40)} {
		if _, err := r.Show(t.Context(), dir, rev, "f", 10); err == nil {
			t.Errorf("%s: read an object that is gone", rev)
		}
	}
	if _, err := r.DefaultBranch(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("a program that the repository names was run")
	}
	// The test would prove nothing if git did not run it either when left alone.
	cmd := exec.Command("git", "-C", dir, "-c", "safe.directory=*", "cat-file", "blob", blob)
	_ = cmd.Run()
	if _, err := os.Stat(canary); err != nil {
		t.Log("this git does not fetch missing objects by itself; the guard was not needed")
	}
}

func TestReadersShareABoundedPool(t *testing.T) {
	dir := repo(t)
	var shas []string
	for i := range 8 {
		shas = append(shas, commit(t, dir, "f", strings.Repeat(fmt.Sprint(i), 10_000)))
	}
	r := git.NewReader(git.Options{PerRepository: 2})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 20 {
				n := (worker + i) % len(shas)
				blob, err := r.Show(t.Context(), dir, shas[n], "f", 1<<20)
				if err != nil || !bytes.Equal(blob.Data, bytes.Repeat([]byte(fmt.Sprint(n)), 10_000)) {
					t.Errorf("commit %d: %d bytes, %v", n, len(blob.Data), err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(children(t)); n < 1 || n > 2 {
		t.Errorf("%d processes are kept, want 1 or 2", n)
	}
	r.Close()
	if pids := children(t); len(pids) != 0 {
		t.Errorf("processes %v are left after Close", pids)
	}
	if _, err := r.Show(t.Context(), dir, "main", "f", 1<<20); err == nil {
		t.Error("a closed reader reads")
	}
}

func TestCancelledReadEndsItsProcess(t *testing.T) {
	dir := repo(t)
	commit(t, dir, "f", "x")
	r := git.NewReader(git.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Show(ctx, dir, "main", "f", 10); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Show(t.Context(), dir, "main", "f", 10); err != nil {
		t.Error(err)
	}
	r.Close()
	if pids := children(t); len(pids) != 0 {
		t.Errorf("processes %v are left", pids)
	}
}

// children lists the processes whose parent is this test, zombies as well.
func children(t *testing.T) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("no /proc to look for processes in")
	}
	var pids []string
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		rest := raw[bytes.LastIndexByte(raw, ')')+1:]
		if fields := strings.Fields(string(rest)); len(fields) > 1 && fields[1] == fmt.Sprint(os.Getpid()) {
			pids = append(pids, strings.Split(path, "/")[2])
		}
	}
	return pids
}

func BenchmarkWarmShow(b *testing.B) {
	dir := repo(b)
	sha := commit(b, dir, ".kici/kici.lock.json", strings.Repeat("x", 20_000))
	r := reader(b, git.Options{IdleTime: time.Hour})
	for b.Loop() {
		if _, err := r.Show(b.Context(), dir, sha, ".kici/kici.lock.json", 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzRevision(f *testing.F) {
	dir := repo(f)
	sha := commit(f, dir, "f", "x")
	r := reader(f, git.Options{})
	for _, rev := range []string{sha, "main", "HEAD", "@", "main^{/x}", "refs/heads/main", "", "a b", "\x00", "main:f", "f.lock"} {
		f.Add(rev)
	}
	f.Fuzz(func(t *testing.T, rev string) {
		// Whatever is asked, the pipe stays in step: the next answer is that of the next question.
		if _, err := r.Show(t.Context(), dir, rev, "f", 100); err != nil && !errors.Is(err, git.ErrBadName) && !errors.Is(err, git.ErrNoCommit) && !errors.Is(err, git.ErrNoFile) {
			t.Errorf("%q: %v", rev, err)
		}
		if blob, err := r.Show(t.Context(), dir, sha, "f", 100); err != nil || string(blob.Data) != "x" {
			t.Errorf("after %q: %q, %v", rev, blob.Data, err)
		}
	})
}
