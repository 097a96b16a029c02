package workspace

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// origin is a real repository that tests clone.
type repository struct {
	t   testing.TB
	dir string
}

func newRepository(t testing.TB) *repository {
	r := &repository{t: t, dir: filepath.Join(t.TempDir(), "origin.git")}
	r.in("", "init", "-q", "-b", "main", r.dir)
	r.commit("a.txt", "one\n")
	return r
}

func (r *repository) in(dir string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.test", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repository) git(args ...string) string { r.t.Helper(); return r.in(r.dir, args...) }

// commit writes a file and commits it on the current branch; it returns the commit.
func (r *repository) commit(name, content string) string {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
	r.git("add", "-A")
	r.git("commit", "-q", "-m", name)
	return r.git("rev-parse", "HEAD")
}

func (r *repository) url() string { return "file://" + r.dir }

func openWorkspace(t testing.TB, opts Options) *Workspace {
	t.Helper()
	if opts.TempDir == "" {
		opts.TempDir = t.TempDir()
	}
	w, err := Open(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func newCache(t testing.TB) *Cache {
	t.Helper()
	c, err := OpenCache(filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eachWay runs a test with and without a mirror.
func eachWay(t *testing.T, test func(t *testing.T, opts Options)) {
	t.Run("alone", func(t *testing.T) { test(t, Options{}) })
	t.Run("mirror", func(t *testing.T) { test(t, Options{Cache: newCache(t)}) })
	t.Run("copied mirror", func(t *testing.T) { test(t, Options{Cache: newCache(t), CopyObjects: true}) })
}

func mustClone(t testing.TB, opts Options, spec CloneSpec) *Workspace {
	t.Helper()
	w := openWorkspace(t, opts)
	if err := w.Clone(context.Background(), spec); err != nil {
		t.Fatal(err)
	}
	return w
}

func read(t testing.TB, w *Workspace, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.Dir(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCloneLeavesWhatAUserExpectsOfAClone(t *testing.T) {
	eachWay(t, func(t *testing.T, opts Options) {
		r := newRepository(t)
		sha := r.git("rev-parse", "HEAD")
		r.git("tag", "-a", "v1", "-m", "first")
		r.git("branch", "feature/x")
		for range 2 { // the second time from the mirror
			w := mustClone(t, opts, CloneSpec{URL: r.url(), Ref: "feature/x", SHA: sha})
			for args, want := range map[string]string{
				"status --porcelain":               "",
				"rev-parse HEAD":                   sha,
				"rev-parse --abbrev-ref HEAD":      "feature/x",
				"rev-parse origin/feature/x":       sha,
				"config remote.origin.url":         r.url(),
				"rev-list --count HEAD":            "1",
				"fsck --no-dangling":               "",
				"log -1 --format=%s":               "a.txt",
				"rev-parse --abbrev-ref @{u}":      "origin/feature/x",
				"for-each-ref --format=%(refname)": "refs/heads/feature/x\nrefs/remotes/origin/feature/x",
			} {
				if got := r.in(w.Dir(), strings.Fields(args)...); got != want {
					t.Errorf("git %s = %q, want %q", args, got, want)
				}
			}
			if got := read(t, w, "a.txt"); got != "one\n" {
				t.Errorf("a.txt = %q", got)
			}
			if got := read(t, w, ".git/info/exclude"); !strings.Contains(got, ".kici/.dep-restore-scratch-*") {
				t.Errorf("exclude = %q", got)
			}
			// A step may go on from here as it likes.
			r.in(w.Dir(), "fetch", "-q", "origin", "main")
			w = mustClone(t, opts, CloneSpec{URL: r.url(), Ref: "v1", SHA: sha})
			if got := r.in(w.Dir(), "describe", "--tags"); got != "v1" {
				t.Errorf("describe = %q, want v1", got)
			}
			w = mustClone(t, opts, CloneSpec{URL: r.url(), Ref: "", SHA: "HEAD"})
			if got := r.in(w.Dir(), "rev-parse", "--abbrev-ref", "HEAD"); got != "main" {
				t.Errorf("default branch = %q, want main", got)
			}
		}
	})
}

func TestCloneFindsTheCommitOfTheJob(t *testing.T) {
	eachWay(t, func(t *testing.T, opts Options) {
		r := newRepository(t)
		first := r.git("rev-parse", "HEAD")
		mustClone(t, opts, CloneSpec{URL: r.url(), Ref: "main", SHA: first})
		second := r.commit("a.txt", "two\n")

		check := func(what string, spec CloneSpec, content string) {
			t.Helper()
			spec.URL = r.url()
			w := mustClone(t, opts, spec)
			if got := read(t, w, "a.txt"); got != content {
				t.Errorf("%s: a.txt = %q, want %q", what, got, content)
			}
			if got := r.in(w.Dir(), "status", "--porcelain"); got != "" {
				t.Errorf("%s: status %q", what, got)
			}
		}
		check("the branch has moved on", CloneSpec{Ref: "main", SHA: first}, "one\n")
		check("the new tip", CloneSpec{Ref: "main", SHA: second}, "two\n")
		check("no commit named", CloneSpec{Ref: "main"}, "two\n")
		check("short id of the tip", CloneSpec{Ref: "main", SHA: second[:10]}, "two\n")
		check("short id of an older commit", CloneSpec{Ref: "main", SHA: first[:10]}, "one\n")

		r.git("reset", "-q", "--hard", first)
		forced := r.commit("a.txt", "three\n")
		check("forced push", CloneSpec{Ref: "main", SHA: forced}, "three\n")
		check("forced push, no commit named", CloneSpec{Ref: "main"}, "three\n")

		r.git("checkout", "-q", "-b", "gone")
		gone := r.commit("a.txt", "four\n")
		r.git("checkout", "-q", "main")
		r.git("branch", "-q", "-D", "gone")
		check("deleted branch", CloneSpec{Ref: "gone", SHA: gone}, "four\n")
	})
}

func TestCloneRefusesWhatItCannotHave(t *testing.T) {
	eachWay(t, func(t *testing.T, opts Options) {
		r := newRepository(t)
		tip := r.git("rev-parse", "HEAD")
		absent := strings.Repeat("12", 20)
		tests := []struct {
			name string
			spec CloneSpec
			want string
		}{
			{"another commit", CloneSpec{Ref: "main", SHA: absent}, "SHA mismatch: expected " + absent + ", got " + tip},
			{"an unknown branch", CloneSpec{Ref: "nope"}, "couldn't find remote ref"},
			{"an option for a branch", CloneSpec{Ref: "--upload-pack=touch x"}, "no name of a branch"},
			{"a path for a branch", CloneSpec{Ref: "a/../../b"}, "no name of a branch"},
			{"an option for a commit", CloneSpec{Ref: "main", SHA: "--output=x"}, "no commit id"},
			{"an option for a URL", CloneSpec{URL: "--upload-pack=x", Ref: "main"}, "URL"},
			{"a folder outside", CloneSpec{Ref: "main", Dir: "../x"}, "leads out of the workspace"},
			{"no repository", CloneSpec{URL: "file:///nonexistent/repository", Ref: "main"}, "/nonexistent/repository"},
		}
		for _, tt := range tests {
			if tt.spec.URL == "" {
				tt.spec.URL = r.url()
			}
			err := openWorkspace(t, opts).Clone(context.Background(), tt.spec)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: err = %v, want it to contain %q", tt.name, err, tt.want)
			}
		}
	})
}

func TestASpoiltMirrorHeals(t *testing.T) {
	spoil := map[string]func(t *testing.T, mirror string){
		"pack cut short": func(t *testing.T, mirror string) {
			packs, _ := filepath.Glob(filepath.Join(mirror, "objects/pack/*.pack"))
			if len(packs) == 0 {
				t.Fatal("no pack in the mirror")
			}
			for _, p := range packs {
				if err := os.Chmod(p, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(p, 20); err != nil {
					t.Fatal(err)
				}
			}
		},
		"pack missing":  func(t *testing.T, mirror string) { os.RemoveAll(filepath.Join(mirror, "objects/pack")) },
		"HEAD missing":  func(t *testing.T, mirror string) { os.Remove(filepath.Join(mirror, "HEAD")) },
		"config broken": func(t *testing.T, mirror string) { os.WriteFile(filepath.Join(mirror, "config"), []byte("[["), 0o600) },
		"not a folder": func(t *testing.T, mirror string) {
			os.RemoveAll(mirror)
			os.WriteFile(mirror, nil, 0o600)
		},
	}
	for name, damage := range spoil {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t)
			opts := Options{Cache: newCache(t)}
			sha := r.git("rev-parse", "HEAD")
			mustClone(t, opts, CloneSpec{URL: r.url(), Ref: "main", SHA: sha})
			mirrors, _ := filepath.Glob(filepath.Join(opts.Cache.dir, "*.git"))
			damage(t, mirrors[0])
			for range 2 {
				w := mustClone(t, opts, CloneSpec{URL: r.url(), Ref: "main", SHA: sha})
				if got := read(t, w, "a.txt"); got != "one\n" {
					t.Fatalf("a.txt = %q", got)
				}
			}
			next := r.commit("a.txt", "two\n")
			w := mustClone(t, opts, CloneSpec{URL: r.url(), Ref: "main", SHA: next})
			if got := read(t, w, "a.txt"); got != "two\n" {
				t.Fatalf("a.txt = %q", got)
			}
		})
	}
}

func TestClonesOfOneRepositoryAtOnce(t *testing.T) {
	r := newRepository(t)
	var shas []string
	for i := range 4 {
		shas = append(shas, r.commit("a.txt", fmt.Sprintf("version %d\n", i)))
	}
	dir := filepath.Join(t.TempDir(), "cache")
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			c, err := OpenCache(dir) // each as a process of its own would
			if err != nil {
				t.Error(err)
				return
			}
			w := openWorkspace(t, Options{Cache: c})
			if err := w.Clone(context.Background(), CloneSpec{URL: r.url(), Ref: "main", SHA: shas[i%4]}); err != nil {
				t.Error(err)
				return
			}
			b, _ := os.ReadFile(filepath.Join(w.Dir(), "a.txt"))
			if want := fmt.Sprintf("version %d\n", i%4); string(b) != want {
				t.Errorf("a.txt = %q, want %q", b, want)
			}
		})
	}
	wg.Wait()
}

func TestAMirrorStaysSmall(t *testing.T) {
	r := newRepository(t)
	opts := Options{Cache: newCache(t)}
	opts.Cache.maxPacks = 4
	for i := range opts.Cache.maxPacks + 3 {
		sha := r.commit("a.txt", fmt.Sprintf("version %d\n", i))
		w := mustClone(t, opts, CloneSpec{URL: r.url(), Ref: "main", SHA: sha})
		w.Close()
	}
	packs, _ := filepath.Glob(filepath.Join(opts.Cache.dir, "*.git/objects/pack/*.pack"))
	if len(packs) > opts.Cache.maxPacks {
		t.Errorf("%d packs", len(packs))
	}
	w := mustClone(t, opts, CloneSpec{URL: r.url(), Ref: "main"})
	if got := r.in(w.Dir(), "fsck", "--no-dangling"); got != "" {
		t.Errorf("fsck: %s", got)
	}
}

func TestTheCacheDropsTheLeastRecentlyUsedMirror(t *testing.T) {
	cache := newCache(t)
	for i := range maxMirrors + 2 {
		// Mirrors of other repositories, older the higher the number.
		dir := filepath.Join(cache.dir, fmt.Sprintf("%032d.git", i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		old := info.ModTime().AddDate(0, 0, -1-i)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	r := newRepository(t)
	mustClone(t, Options{Cache: cache}, CloneSpec{URL: r.url(), Ref: "main"})
	left, _ := filepath.Glob(filepath.Join(cache.dir, "*.git"))
	if len(left) != maxMirrors {
		t.Errorf("%d mirrors left, want %d", len(left), maxMirrors)
	}
	if _, err := os.Stat(filepath.Join(cache.dir, fmt.Sprintf("%032d.git", 0))); err != nil {
		t.Error("a recent mirror was dropped")
	}
}

func TestAnUnknownCredentialAlwaysAsksTheRemote(t *testing.T) {
	r := newRepository(t)
	cache := newCache(t)
	sha := r.git("rev-parse", "HEAD")
	spec := CloneSpec{URL: r.url(), Ref: "main", SHA: sha}
	mustClone(t, Options{Cache: cache}, spec)
	if err := os.Rename(r.dir, r.dir+".away"); err != nil {
		t.Fatal(err)
	}
	mustClone(t, Options{Cache: cache}, spec) // known: no question
	spec.Auth = &Auth{Kind: "basic", Secret: "another"}
	if err := openWorkspace(t, Options{Cache: cache}).Clone(context.Background(), spec); err == nil {
		t.Error("a credential that no remote has accepted was given the mirror's content")
	}
}

func TestCloneEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	// A git that tells when it runs, and then neither ends nor heeds signals.
	ready := filepath.Join(dir, "ready")
	if out, err := exec.Command("mkfifo", ready).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v %s", err, out)
	}
	script := "#!/bin/bash\ntrap '' TERM INT\necho > " + ready + "\nsleep 1000\n"
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	go func() {
		_, _ = os.ReadFile(ready)
		cancel()
	}()
	err := openWorkspace(t, Options{}).Clone(ctx, CloneSpec{URL: "https://git.example.test/x", Ref: "main"})
	if err == nil || ctx.Err() == nil {
		t.Fatalf("err = %v", err)
	}
}

func BenchmarkCloneFromMirror(b *testing.B) { benchmarkClone(b, Options{Cache: newCache(b)}) }
func BenchmarkCloneAlone(b *testing.B)      { benchmarkClone(b, Options{}) }

func benchmarkClone(b *testing.B, opts Options) {
	r := newRepository(b)
	for i := range 50 {
		if err := os.WriteFile(filepath.Join(r.dir, fmt.Sprintf("f%d", i)), bytes.Repeat([]byte{byte(i), '\n'}, 500), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	sha := r.commit("a.txt", "x")
	opts.TempDir = b.TempDir()
	spec := CloneSpec{URL: r.url(), Ref: "main", SHA: sha}
	mustClone(b, opts, spec)
	for b.Loop() {
		w, err := Open(context.Background(), opts)
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Clone(context.Background(), spec); err != nil {
			b.Fatal(err)
		}
		w.Close()
	}
}
