package local_test

import (
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kici/internal/core/lockfile"
	"kici/internal/server/forge"
	"kici/internal/server/forge/git"
	"kici/internal/server/forge/local"
)

const lockText = `{"schemaVersion":29,"source":{"file":".kici/workflows/a.ts","export":"#default"},"contentHash":"x","workflows":[]}`

func run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@e.c"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit puts a lock file into the repository, making it if needed, and gives the commit's id.
func commit(t testing.TB, dir, lock string) string {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		run(t, ".", "init", "-q", "-b", "main", dir)
	}
	path := filepath.Join(dir, lockfile.Path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(lock), 0o644)); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "add", "-A")
	run(t, dir, "commit", "-q", "--allow-empty", "-m", "lock\n\nmore")
	return run(t, dir, "rev-parse", "HEAD")
}

func provider(t testing.TB) *local.Provider {
	t.Helper()
	r := git.NewReader(git.Options{})
	t.Cleanup(r.Close)
	return local.New(r)
}

func source(base string) forge.Source {
	return forge.Source{Options: forge.Options{Name: "s", Local: &forge.LocalConfig{RepoBasePath: base}}}
}

func TestLockFileIsReadAtTheCommitNamed(t *testing.T) {
	base := t.TempDir()
	first := commit(t, filepath.Join(base, "team/app"), lockText)
	broken := commit(t, filepath.Join(base, "team/app"), "{\n  \"schemaVersion\":\n")
	p := provider(t)
	lock, err := p.LockFile(t.Context(), source(base), "team/app", first)
	if err != nil || lock.SHA != first || lock.File.SchemaVersion != lockfile.SchemaVersion {
		t.Fatalf("%+v, %v", lock, err)
	}
	again, err := p.LockFile(t.Context(), source(base), "file://"+base+"/team/app", first)
	if err != nil || again.File != lock.File {
		t.Errorf("the same content was parsed again: %v", err)
	}
	for range 2 {
		_, err = p.LockFile(t.Context(), source(base), "team/app", broken)
		parseErr, ok := errors.AsType[*lockfile.ParseError](err)
		if !ok || parseErr.Kind != lockfile.InvalidJSON || parseErr.Line != 3 {
			t.Errorf("got %v", err)
		}
	}
}

func TestWhatIsMissingIsTold(t *testing.T) {
	base := t.TempDir()
	sha := commit(t, filepath.Join(base, "app"), lockText)
	run(t, filepath.Join(base, "app"), "rm", "-q", "-r", ".kici")
	run(t, filepath.Join(base, "app"), "commit", "-q", "-m", "gone")
	p := provider(t)
	for _, tt := range []struct {
		name, base, repo, ref string
		want                  error
	}{
		{"repository", base, "other", sha, forge.ErrNoRepository},
		{"base folder", filepath.Join(base, "none"), "app", sha, forge.ErrNoRepository},
		{"commit", base, "app", strings.Repeat("0", 40), forge.ErrNoCommit},
		{"lock file", base, "app", "main", forge.ErrNoLockFile},
		{"search", base, "app", ":/gone", forge.ErrRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := p.LockFile(t.Context(), source(tt.base), tt.repo, tt.ref); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestPathsThatLeaveTheBaseAreRefused(t *testing.T) {
	root := t.TempDir()
	base, outside := filepath.Join(root, "base"), filepath.Join(root, "outside")
	commit(t, outside, lockText)
	commit(t, filepath.Join(base, "good"), lockText)
	commit(t, filepath.Join(base, "nested"), lockText)
	run(t, ".", "init", "-q", "--bare", filepath.Join(base, "bare.git"))
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(outside, "linked")
	link("good", "alias")
	link(outside, "dotgit.git")
	link(filepath.Join(outside, ".git"), "bare.git/.git")
	link(filepath.Join(outside, ".git"), "nested/.git/.git")
	if err := errors.Join(os.Mkdir(filepath.Join(base, "worktree"), 0o755),
		os.WriteFile(filepath.Join(base, "worktree/.git"), []byte("gitdir: "+outside+"/.git\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	p := provider(t)
	for _, repo := range []string{
		"../outside", "good/../../outside", outside, "file://" + outside, "file://other-host" + base + "/good", "linked", "dotgit",
		"bare.git", "bare", "worktree", "", ".", base, "/", "good\x00", "good\n", "file://" + base + "/%2e%2e/outside",
		strings.Repeat("a", 300),
	} {
		if lock, err := p.LockFile(t.Context(), source(base), repo, "main"); !errors.Is(err, forge.ErrRefused) || lock.CloneURL != "" {
			t.Errorf("%q: %+v, %v", repo, lock, err)
		}
	}
	for _, repo := range []string{"good", "./good", "alias", "nested", base + "/good", "file://" + base + "/good", "file://localhost" + base + "/good"} {
		if _, err := p.LockFile(t.Context(), source(base), repo, "main"); err != nil {
			t.Errorf("%q: %v", repo, err)
		}
	}
}

// An operator may move the folder of repositories, or let its name lead elsewhere.
func TestABaseFolderMayMove(t *testing.T) {
	root := t.TempDir()
	first, second, base := filepath.Join(root, "first"), filepath.Join(root, "second"), filepath.Join(root, "current")
	sha := commit(t, filepath.Join(first, "app"), lockText)
	commit(t, filepath.Join(second, "app"), lockText+" ")
	p := provider(t)
	want := func(dir string) {
		t.Helper()
		for range 2 { // the second time from what is remembered
			lock, err := p.LockFile(t.Context(), source(base), "app", "main")
			if dir == "" {
				if !errors.Is(err, forge.ErrNoRepository) {
					t.Errorf("%+v, %v", lock, err)
				}
			} else if err != nil || lock.CloneURL != "file://"+dir+"/app" || (lock.SHA == sha) != (dir != second) {
				t.Errorf("%+v, %v; want that of %s", lock, err, dir)
			}
		}
	}
	link := func(target string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(base), os.Symlink(target, base)); err != nil {
			t.Fatal(err)
		}
	}
	link(first)
	want(first)
	link(second)
	want(second)
	link(filepath.Join(root, "none"))
	want("")
	link(first)
	want(first)
	moved := filepath.Join(root, "moved")
	if err := os.Rename(first, moved); err != nil {
		t.Fatal(err)
	}
	want("")
	link(moved)
	want(moved)
	if err := errors.Join(os.Remove(base), os.Rename(moved, base)); err != nil {
		t.Fatal(err)
	}
	want(base)
	if err := errors.Join(os.Rename(base, first), os.Symlink(second, base)); err != nil {
		t.Fatal(err)
	}
	want(second)
}

func TestCloneURLs(t *testing.T) {
	root := t.TempDir()
	base := filepath.Join(root, "a b%20")
	dir := filepath.Join(base, "team/my app")
	sha := commit(t, dir, lockText)
	broken := commit(t, dir, "{")
	p := provider(t)
	src := source(base)
	lock, err := p.LockFile(t.Context(), src, "team/my app", sha)
	if err != nil {
		t.Fatal(err)
	}
	run(t, root, "clone", "-q", lock.CloneURL, "copy") // git itself says whether the URL means this folder
	src.Local.CloneURLBase = "https://git.example/repos/"
	for _, repo := range []string{"team/my app", "file://" + (&url.URL{Path: base}).EscapedPath() + "/team/my%20app"} {
		for _, ref := range []string{sha, "main", broken} { // a run of which nothing else is known names what it is of, too
			lock, err := p.LockFile(t.Context(), src, repo, ref)
			if _, bad := errors.AsType[*lockfile.ParseError](err); bad != (ref != sha) || lock.CloneURL != "https://git.example/repos/team/my%20app" {
				t.Errorf("%q at %s: %+v, %v", repo, ref, lock, err)
			}
		}
	}
}

func TestRefsResolveBranchesFirst(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "app")
	first := commit(t, dir, lockText)
	run(t, dir, "tag", "v1")
	run(t, dir, "tag", "main")
	second := commit(t, dir, lockText+" ")
	p := provider(t)
	for ref, want := range map[string]forge.Commit{
		"":               {SHA: second, Ref: "refs/heads/main"},
		"HEAD":           {SHA: second, Ref: "refs/heads/main"},
		"main":           {SHA: second, Ref: "refs/heads/main"},
		"v1":             {SHA: first, Ref: "refs/tags/v1"},
		"refs/tags/v1":   {SHA: first, Ref: "refs/tags/v1"},
		first:            {SHA: first, Ref: "refs/heads/main"},
		"refs/tags/main": {SHA: first, Ref: "refs/tags/main"},
	} {
		want.Message, want.Default = "lock\n\nmore\n", "main"
		if got, err := p.Commit(t.Context(), source(base), "app", ref); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", ref, got, err, want)
		}
	}
	for ref, want := range map[string]error{"dev": forge.ErrNoCommit, "main~1": forge.ErrRefused} {
		if _, err := p.Commit(t.Context(), source(base), "app", ref); !errors.Is(err, want) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func FuzzLocate(f *testing.F) {
	root := f.TempDir()
	base := filepath.Join(root, "base")
	sha := commit(f, filepath.Join(base, "good"), lockText)
	commit(f, filepath.Join(root, "outside"), lockText)
	if err := os.Symlink("../outside", filepath.Join(base, "link")); err != nil {
		f.Fatal(err)
	}
	for _, repo := range []string{"good", "../outside", "link", "/", "file://x", "file:///%00", "good/../link", "a\\b"} {
		f.Add(repo)
	}
	p := provider(f)
	inside := (&url.URL{Scheme: "file", Path: filepath.Join(base, "good")}).String()
	f.Fuzz(func(t *testing.T, repo string) {
		lock, err := p.LockFile(t.Context(), source(base), repo, sha)
		if err == nil && lock.CloneURL != inside {
			t.Errorf("%q leads to %s", repo, lock.CloneURL)
		}
		if err != nil && !errors.Is(err, forge.ErrRefused) && !errors.Is(err, forge.ErrNoRepository) {
			t.Errorf("%q: %v", repo, err)
		}
	})
}

// Most deliveries name a commit for the first time.
func BenchmarkNewCommit(b *testing.B) {
	base := b.TempDir()
	commit(b, filepath.Join(base, "app"), lockText)
	p := provider(b)
	for b.Loop() {
		if _, err := p.LockFile(b.Context(), source(base), "app", "main"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKnownCommit(b *testing.B) {
	base := b.TempDir()
	sha := commit(b, filepath.Join(base, "app"), lockText)
	p := provider(b)
	for b.Loop() {
		if _, err := p.LockFile(b.Context(), source(base), "app", sha); err != nil {
			b.Fatal(err)
		}
	}
}
