package workspace

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Bounds of the cache. What passes them is deleted, the least recently used mirror first; a mirror is only ever a
// faster way to the same files.
const (
	maxMirrors    = 32
	maxCacheBytes = 4 << 30
	maxPacks      = 40
	maxCommits    = 20 // commits of a mirror that survive that
	lockPatience  = 20 * time.Second
)

// Cache keeps a mirror of each repository on disk, so that a further clone costs no more than a check-out. Several
// agents may share the folder; a mirror is locked while it is worked on. Workspaces hold the objects as hard links or
// copies, so a mirror can be deleted at any time.
type Cache struct {
	dir string

	// granted remembers which credentials a remote has accepted for which repository, by a keyed hash. Only for those
	// may a job have what the mirror holds without the remote being asked.
	key     []byte
	granted *lru.Cache[string, struct{}]
	mu      sync.Mutex                    // one clean-up at a time
	trees   *lru.Cache[string, *snapshot] // by URL and commit

	maxPacks int // packs of a mirror before they are made one
}

// OpenCache uses the folder, which is made when it is missing.
func OpenCache(dir string) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open mirror cache: %w", err)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, by its documentation
	granted, err := lru.New[string, struct{}](1024)
	if err != nil {
		return nil, fmt.Errorf("open mirror cache: %w", err)
	}
	trees, err := lru.New[string, *snapshot](maxSnapshots)
	if err != nil {
		return nil, fmt.Errorf("open mirror cache: %w", err)
	}
	return &Cache{dir: dir, key: key, granted: granted, trees: trees, maxPacks: maxPacks}, nil
}

// mirror is one locked mirror: <cache>/<hash of the URL>.git, a bare repository with a reference for each commit that
// is known to be complete, and below seen/ a file for each of them that says what the ref was.
type mirror struct {
	dir  string
	lock *os.File
}

// clone makes the workspace from the mirror. done is false when the caller should do it without: the mirror is busy,
// or broken, in which case it has been deleted.
func (c *Cache) clone(ctx context.Context, a *access, spec CloneSpec, dir string, copyObjects bool) (done bool, err error) {
	t, err := c.repository(ctx, a, spec, dir, copyObjects)
	if err != nil {
		return ctx.Err() != nil || fromRemote(err), err
	}
	if err := c.writeTree(ctx, a, dir, t); err != nil {
		c.drop(a.url)
		return ctx.Err() != nil, err
	}
	return true, nil
}

// repository makes the repository of the workspace. The mirror is locked no longer than that takes.
func (c *Cache) repository(ctx context.Context, a *access, spec CloneSpec, dir string, copyObjects bool) (target, error) {
	m, err := c.open(ctx, a.url)
	if err != nil {
		return target{}, err
	}
	defer m.lock.Close()
	permit := c.permit(a)
	t, ok := target{}, false
	if c.granted.Contains(permit) {
		t, ok = m.recall(spec)
	}
	fetched := !ok
	if fetched {
		if t, err = m.fetch(ctx, a, spec); err != nil {
			if ctx.Err() == nil && !fromRemote(err) {
				m.remove()
			}
			return target{}, err
		}
		c.granted.Add(permit, struct{}{})
	}
	if err := m.populate(a, t, dir, copyObjects); err != nil {
		m.remove()
		return target{}, err
	}
	now := time.Now()
	_ = os.Chtimes(m.dir, now, now) // tells how recently it was used
	if fetched {
		m.keepSmall(ctx, a, c.maxPacks)
		c.keepSmall(m.dir)
	}
	return t, nil
}

// writeTree writes the files: a small tree from memory, where it has been before, any other by git.
func (c *Cache) writeTree(ctx context.Context, a *access, dir string, t target) error {
	key := a.url + "\x00" + t.commit
	if s, ok := c.trees.Get(key); ok && packsWhole(dir) {
		if s.restore(dir) == nil {
			return nil
		}
		if err := empty(dir, ".git"); err != nil { // git sorts it out
			return err
		}
	}
	if err := writeTree(ctx, a, dir, t); err != nil {
		return err
	}
	if s, err := takeSnapshot(dir); err == nil {
		c.trees.Add(key, s)
	}
	return nil
}

// drop deletes a mirror of which git could not write the files. One that is busy serves others well, so it stays.
func (c *Cache) drop(url string) {
	dir := c.path(url)
	if lock, err := acquire(context.Background(), dir+".lock", 0); err == nil {
		_ = removeAll(dir)
		lock.Close()
	}
}

// permit stands for a repository and the credential used for it.
func (c *Cache) permit(a *access) string {
	h := hmac.New(sha256.New, c.key)
	io.WriteString(h, a.url+"\x00"+a.token)
	return string(h.Sum(nil))
}

// open locks the mirror of the URL, making it first when there is none.
func (c *Cache) open(ctx context.Context, url string) (*mirror, error) {
	dir := c.path(url)
	lock, err := acquire(ctx, dir+".lock", lockPatience)
	if err != nil {
		return nil, err
	}
	m := &mirror{dir: dir, lock: lock}
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err == nil {
		return m, nil
	}
	if err := m.create(); err != nil {
		lock.Close()
		return nil, err
	}
	return m, nil
}

// path is where the mirror of the URL lies.
func (c *Cache) path(url string) string {
	sum := sha256.Sum256([]byte(url))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:16])+".git")
}

// create makes an empty mirror in place of whatever a killed agent left half done.
func (m *mirror) create() error {
	m.remove()
	for _, d := range []string{"refs/kici", "seen"} {
		if err := os.MkdirAll(filepath.Join(m.dir, d), 0o700); err != nil {
			return err
		}
	}
	return initRepository(m.dir)
}

// acquire takes the lock file, waiting no longer than patience. Closing the file gives it back, as does the end of
// the process.
func acquire(ctx context.Context, path string, patience time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		busy, err := tryLock(f)
		if err == nil {
			return f, nil
		}
		if !busy || time.Now().After(deadline) {
			f.Close()
			return nil, fmt.Errorf("lock mirror: %w", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// recall finds the commit of the spec among those the mirror is known to hold, under the same ref. Without a full
// commit id only the remote knows what the ref points to.
func (m *mirror) recall(spec CloneSpec) (target, bool) {
	if !complete(spec.SHA) || spec.Ref == "" {
		return target{}, false
	}
	raw, err := os.ReadFile(filepath.Join(m.dir, "seen", spec.SHA))
	if err != nil {
		return target{}, false
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) == 3 && f[0] == spec.Ref {
			return target{commit: spec.SHA, ref: f[1], tag: f[2]}, true
		}
	}
	return target{}, false
}

// fetch gets what is missing and notes what has come.
func (m *mirror) fetch(ctx context.Context, a *access, spec CloneSpec) (target, error) {
	t, err := fetch(ctx, a, spec, m.dir)
	if err != nil {
		return target{}, err
	}
	// The reference makes the next fetch a small one: the remote is told what is here.
	if err := os.WriteFile(filepath.Join(m.dir, "refs", "kici", t.commit), []byte(t.commit+"\n"), 0o600); err != nil {
		return target{}, err
	}
	f, err := os.OpenFile(filepath.Join(m.dir, "seen", t.commit), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return target{}, err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s\t%s\t%s\n", spec.Ref, t.ref, t.tag)
	return t, err
}

// populate builds the workspace's own repository from the mirror's packs.
func (m *mirror) populate(a *access, t target, dir string, copyObjects bool) error {
	gitDir := filepath.Join(dir, ".git")
	if err := makeFolders(gitDir); err != nil {
		return err
	}
	packs := filepath.Join(m.dir, "objects", "pack")
	entries, err := os.ReadDir(packs)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := place(filepath.Join(packs, e.Name()), filepath.Join(gitDir, "objects", "pack", e.Name()), copyObjects); err != nil {
			return err
		}
	}
	// Without this list git would look for the parents of the commits, which are not here.
	shallow := filepath.Join(m.dir, "shallow")
	if err := place(shallow, filepath.Join(gitDir, "shallow"), true); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return describe(a, dir, t)
}

// place links a file, or copies it where linking is not wanted or not possible.
func place(from, to string, copyAlways bool) error {
	if !copyAlways && os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func (m *mirror) remove() { _ = removeAll(m.dir) }

// keepSmall joins the packs of a much used mirror and lets old commits go. A failure costs the mirror, not the job.
func (m *mirror) keepSmall(ctx context.Context, a *access, maxPacks int) {
	packs, _ := filepath.Glob(filepath.Join(m.dir, "objects", "pack", "*.pack"))
	if len(packs) <= maxPacks {
		return
	}
	entries, err := os.ReadDir(filepath.Join(m.dir, "seen"))
	if err != nil {
		m.remove()
		return
	}
	slices.SortFunc(entries, func(x, y fs.DirEntry) int { return modTime(y).Compare(modTime(x)) })
	for _, e := range entries[min(len(entries), maxCommits):] {
		_ = os.Remove(filepath.Join(m.dir, "seen", e.Name()))
		_ = os.Remove(filepath.Join(m.dir, "refs", "kici", e.Name()))
	}
	_ = os.Remove(filepath.Join(m.dir, "FETCH_HEAD"))
	if _, err := a.git.run(ctx, fetchLimit, m.dir, "repack", "-a", "-d", "-q"); err != nil {
		m.remove()
		return
	}
	_, _ = a.git.run(ctx, fetchLimit, m.dir, "prune", "--expire=now") // also shortens the list of shallow commits
}

func modTime(e fs.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// keepSmall deletes the least recently used mirrors until count and size are within bounds. The one in use stays, as
// do those that another agent has locked.
func (c *Cache) keepSmall(used string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() })
	slices.SortFunc(entries, func(x, y fs.DirEntry) int { return modTime(y).Compare(modTime(x)) })
	var size int64
	for i, e := range entries {
		dir := filepath.Join(c.dir, e.Name())
		size += mirrorSize(dir)
		if (i < maxMirrors && size <= maxCacheBytes) || dir == used {
			continue
		}
		if lock, err := acquire(context.Background(), dir+".lock", 0); err == nil {
			_ = removeAll(dir)
			lock.Close()
		}
	}
}

func mirrorSize(dir string) int64 {
	entries, err := os.ReadDir(filepath.Join(dir, "objects", "pack"))
	if err != nil {
		return 0
	}
	var size int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}
