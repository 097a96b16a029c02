package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Time limits of the parts of a clone.
const (
	fetchLimit    = 120 * time.Second
	checkoutLimit = 30 * time.Second
)

// CloneSpec says what to fetch.
type CloneSpec struct {
	URL string // https, http, ssh, file, or host:path
	Ref string // short name of a branch or tag; "" is the default branch
	SHA string // commit id or a beginning of it; "" and "HEAD" take what the ref points to
	// Auth is the credential, nil for none.
	Auth *Auth
	// Dir is where to put it, relative to the workspace; "" is the workspace itself.
	Dir string
}

// Clone puts the source at the commit into the workspace, on a branch of the ref's name, or detached for a tag. The
// history holds that commit alone. Errors tell what git said, without secrets. A commit that cannot be had is
// "SHA mismatch: expected <sha>, got <tip of the ref>".
func (w *Workspace) Clone(ctx context.Context, spec CloneSpec) error {
	if err := spec.check(); err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	dir, err := inside(w.dir, spec.Dir)
	if err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	a, err := w.openAccess(spec.URL, spec.Auth)
	if err != nil {
		return fmt.Errorf("clone: %w", err)
	}
	defer a.close()
	if w.opts.Cache != nil {
		done, err := w.opts.Cache.clone(ctx, a, spec, dir, w.opts.CopyObjects)
		if done {
			return wrapClone(a, err)
		}
		// The mirror cannot be used. Whatever it left in the folder makes room for a fetch of its own.
		if err := empty(dir); err != nil {
			return fmt.Errorf("clone: %w", err)
		}
	}
	return wrapClone(a, cloneAlone(ctx, a, spec, dir))
}

func wrapClone(a *access, err error) error {
	if err != nil {
		return fmt.Errorf("clone %s: %w", a.url, err)
	}
	return nil
}

// badRef finds what git check-ref-format refuses, and a leading dash, which would be an option. Like every expression
// here it is compiled when it is needed: each step runner is started from this program, too, and has no use for it.
var badRef = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[-/.]|\.\.|//|/\.|@\{|[\x00-\x20\x7f~^:?*\[\\]|\.lock$|[/.]$`)
})

// abbreviated tells a commit id, or a beginning of one.
func abbreviated(id string) bool {
	return len(id) >= 4 && len(id) <= 64 && strings.Trim(id, "0123456789abcdef") == ""
}

// complete tells a whole commit id, in SHA-1 or SHA-256.
func complete(id string) bool {
	return (len(id) == 40 || len(id) == 64) && abbreviated(id)
}

// check refuses what git would read as something else than a name, before it stands on a command line or in a file.
func (s *CloneSpec) check() error {
	if s.SHA == "HEAD" {
		s.SHA = ""
	}
	s.SHA = strings.ToLower(s.SHA)
	s.Ref = strings.TrimPrefix(strings.TrimPrefix(s.Ref, "refs/heads/"), "refs/tags/")
	if s.SHA != "" && !abbreviated(s.SHA) {
		return fmt.Errorf("%q is no commit id", s.SHA)
	}
	if s.Ref != "" && badRef().MatchString(s.Ref) {
		return fmt.Errorf("%q is no name of a branch or tag", s.Ref)
	}
	return nil
}

// cloneAlone fetches straight into the workspace.
func cloneAlone(ctx context.Context, a *access, spec CloneSpec, dir string) error {
	gitDir := filepath.Join(dir, ".git")
	if err := initRepository(gitDir); err != nil {
		return err
	}
	t, err := fetch(ctx, a, spec, gitDir)
	if err != nil {
		return err
	}
	if err := describe(a, dir, t); err != nil {
		return err
	}
	return writeTree(ctx, a, dir, t)
}

// target is what a spec has been resolved to.
type target struct {
	commit string
	ref    string // name of the branch or tag, "" when unknown
	tag    string // object id of the tag, "" when the ref is a branch
}

// fetch gets the commit of the spec with its tree into the repository gitDir.
func fetch(ctx context.Context, a *access, spec CloneSpec, gitDir string) (target, error) {
	ref := spec.Ref
	if ref == "" {
		name, err := defaultBranch(ctx, a, gitDir)
		if err != nil {
			return target{}, err
		}
		ref = name
	}
	tip, err := fetchRef(ctx, a, gitDir, ref)
	switch {
	case refMissing(err) && complete(spec.SHA):
		tip = target{ref: ref} // the branch is gone, its commit may still be there
	case err != nil:
		return target{}, err
	case strings.HasPrefix(tip.commit, spec.SHA):
		return tip, nil
	}
	return fetchCommit(ctx, a, gitDir, spec.SHA, tip)
}

// fetchCommit gets a commit that is not, or no longer, what the ref points to. Servers that do not hand out single
// commits have it in the ref's recent history as a rule.
func fetchCommit(ctx context.Context, a *access, gitDir, sha string, tip target) (target, error) {
	got := target{commit: sha, ref: tip.ref}
	if tip.tag != "" {
		got.ref = "" // the tag names another commit
	}
	var err error
	if complete(sha) {
		if _, err = fetchArgs(ctx, a, gitDir, 1, sha); err == nil {
			return got, nil
		}
	}
	if tip.commit == "" {
		return target{}, err
	}
	if _, err := fetchArgs(ctx, a, gitDir, 50, fullName(tip)); err != nil {
		return target{}, err
	}
	out, err := a.git.run(ctx, checkoutLimit, gitDir, "rev-parse", "--verify", "--quiet", sha+"^{commit}")
	if ctx.Err() != nil {
		return target{}, err
	}
	if err != nil {
		return target{}, fmt.Errorf("%w: expected %s, got %s", errMismatch, sha, tip.commit)
	}
	got.commit = strings.TrimSpace(out)
	return got, nil
}

func fullName(t target) string {
	if t.tag != "" {
		return "refs/tags/" + t.ref
	}
	return "refs/heads/" + t.ref
}

// fetchRef gets the tip of a branch or, when there is none of that name, of a tag.
func fetchRef(ctx context.Context, a *access, gitDir, ref string) (target, error) {
	commit, err := fetchArgs(ctx, a, gitDir, 1, "refs/heads/"+ref)
	if err == nil {
		return target{commit: commit, ref: ref}, nil
	}
	if !refMissing(err) {
		return target{}, err
	}
	object, tagErr := fetchArgs(ctx, a, gitDir, 1, "refs/tags/"+ref)
	if refMissing(tagErr) {
		return target{}, err
	}
	if tagErr != nil {
		return target{}, tagErr
	}
	out, err := a.git.run(ctx, checkoutLimit, gitDir, "rev-parse", "--verify", object+"^{commit}")
	if err != nil {
		return target{}, err
	}
	return target{commit: strings.TrimSpace(out), ref: ref, tag: object}, nil
}

// fetchArgs fetches one name or commit and returns the object that the remote gave for it.
func fetchArgs(ctx context.Context, a *access, gitDir string, depth int, want string) (string, error) {
	_, err := a.git.run(ctx, fetchLimit, gitDir, "fetch", "--quiet", "--no-tags", "--no-recurse-submodules",
		"--no-auto-maintenance", fmt.Sprintf("--depth=%d", depth), a.url, want)
	if err != nil {
		return "", err
	}
	head, err := os.ReadFile(filepath.Join(gitDir, "FETCH_HEAD"))
	if err != nil {
		return "", err
	}
	object, _, _ := strings.Cut(string(head), "\t")
	if !complete(object) {
		return "", errors.New("git fetch: the remote gave no commit")
	}
	return object, nil
}

var headRef = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^ref: refs/heads/(\S+)\tHEAD$`) })

func defaultBranch(ctx context.Context, a *access, gitDir string) (string, error) {
	out, err := a.git.run(ctx, fetchLimit, gitDir, "ls-remote", "--symref", a.url, "HEAD")
	if err != nil {
		return "", err
	}
	m := headRef().FindStringSubmatch(out)
	if m == nil {
		return "", errors.New("the repository has no default branch")
	}
	return m[1], nil
}

// makeFolders makes the folders of an empty repository, and no more of them than git needs to find: it makes the others
// itself. git init would be one more process, and would copy hooks from the user's template.
func makeFolders(gitDir string) error {
	for _, d := range []string{"", "objects", "objects/pack", "refs", "info"} {
		if err := os.Mkdir(filepath.Join(gitDir, d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.WriteFile(filepath.Join(gitDir, "info", "exclude"), []byte(".kici/.dep-restore-scratch-*\n"), 0o600)
}

// initRepository makes an empty repository to fetch into. Received packs stay packs, so that a mirror is a handful of
// files.
func initRepository(gitDir string) error {
	config := "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n[fetch]\n\tunpackLimit = 1\n"
	return errors.Join(makeFolders(gitDir),
		os.WriteFile(filepath.Join(gitDir, "config"), []byte(config), 0o600),
		os.WriteFile(filepath.Join(gitDir, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
}

// describe turns the fetched repository below dir into what a clone would have left, but for the files.
func describe(a *access, dir string, t target) error {
	gitDir := filepath.Join(dir, ".git")
	// References go into one file: a branch name never becomes a path.
	refs, head, tracking := "", t.commit+"\n", "+refs/heads/*:refs/remotes/origin/*"
	switch {
	case t.tag != "":
		refs = t.tag + " refs/tags/" + t.ref + "\n"
	case t.ref != "":
		refs = t.commit + " refs/heads/" + t.ref + "\n" + t.commit + " refs/remotes/origin/" + t.ref + "\n"
		head = "ref: refs/heads/" + t.ref + "\n"
		tracking = "+refs/heads/" + t.ref + ":refs/remotes/origin/" + t.ref
	}
	config := "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n" +
		"[remote \"origin\"]\n\turl = " + configValue(a.url) + "\n\tfetch = " + configValue(tracking) + "\n"
	if t.ref != "" && t.tag == "" {
		config += "[branch " + configValue(t.ref) + "]\n\tremote = origin\n\tmerge = " + configValue("refs/heads/"+t.ref) + "\n"
	}
	for name, text := range map[string]string{"HEAD": head, "packed-refs": refs, "config": config} {
		if err := os.WriteFile(filepath.Join(gitDir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	_ = os.Remove(filepath.Join(gitDir, "FETCH_HEAD"))
	return nil
}

// writeTree writes the files.
func writeTree(ctx context.Context, a *access, dir string, t target) error {
	_, err := a.git.run(ctx, checkoutLimit, dir, "read-tree", "-m", "-u", t.commit)
	return err
}
