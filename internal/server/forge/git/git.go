// Package git reads objects of repositories on this machine at a commit, through a pool of long-running
// `git cat-file --batch` processes. Nothing that a repository's own configuration names is ever executed: the processes
// run no hook, filter, credential helper or transport, and see no configuration of the machine or of a user.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Errors that callers tell apart; they come wrapped with names. Any other error may pass by itself.
var (
	ErrNoRepository = errors.New("not a git repository")
	ErrNoCommit     = errors.New("no such commit, branch or tag")
	ErrNoFile       = errors.New("no such file at this commit")
	ErrTooLarge     = errors.New("file too large")
	ErrBadName      = errors.New("not a valid name")
)

// Blob is the content of a file.
type Blob struct {
	ID   string // object id: equal ids mean equal content
	Data []byte
}

// Commit is a commit as far as people see it.
type Commit struct {
	SHA     string
	Message string // whole
}

// Show reads a file at a revision. See ShowCommit.
func (r *Reader) Show(ctx context.Context, repo, rev, path string, maxBytes int64) (Blob, error) {
	_, blob, err := r.ShowCommit(ctx, repo, rev, path, maxBytes)
	return blob, err
}

// ShowCommit reads a file and the commit it is of. The revision is a commit id, a branch or tag name, or HEAD. A file
// above maxBytes is ErrTooLarge (the commit's id is given with it), a folder ErrNoFile; of a symbolic link the text is read, it is never followed. repo is
// the path of a repository, bare or not; path is relative to its root.
func (r *Reader) ShowCommit(ctx context.Context, repo, rev, path string, maxBytes int64) (Commit, Blob, error) {
	if err := checkRevision(rev); err != nil {
		return Commit{}, Blob{}, err
	}
	if !filepath.IsLocal(path) || strings.HasPrefix(path, "./") || strings.ContainsAny(path, "\n\x00") {
		return Commit{}, Blob{}, fmt.Errorf("path %q: %w", path, ErrBadName)
	}
	var commit, file object
	err := r.with(ctx, repo, func(p *process) (err error) {
		commit, file, err = p.readBoth(rev, path, maxBytes)
		return err
	})
	switch {
	case err != nil: // told below
	case commit.kind != "commit":
		err = ErrNoCommit
	case file.kind != "blob":
		err = ErrNoFile
	}
	if err != nil {
		return Commit{SHA: commit.id}, Blob{}, fmt.Errorf("read %s at %s: %w", path, rev, err)
	}
	return commit.commit(), Blob{ID: file.id, Data: file.data}, nil
}

// maxCommit bounds commit objects, whose message may be of any length.
const maxCommit = 1 << 20

// Commit reads the commit that a revision names; an annotated tag is followed to its commit.
func (r *Reader) Commit(ctx context.Context, repo, rev string) (Commit, error) {
	if err := checkRevision(rev); err != nil {
		return Commit{}, err
	}
	var obj object
	err := r.with(ctx, repo, func(p *process) (err error) {
		if err := p.ask(rev + "^{commit}"); err != nil {
			return err
		}
		obj, err = p.read(maxCommit)
		return err
	})
	if err == nil && obj.kind != "commit" {
		err = ErrNoCommit
	}
	if err != nil {
		return Commit{}, fmt.Errorf("read commit %s: %w", rev, err)
	}
	return obj.commit(), nil
}

func (o object) commit() Commit {
	_, message, _ := bytes.Cut(o.data, []byte("\n\n"))
	return Commit{SHA: o.id, Message: string(message)}
}

// Resolve gives the commit id that a ref or id names.
func (r *Reader) Resolve(ctx context.Context, repo, ref string) (sha string, err error) {
	commit, err := r.Commit(ctx, repo, ref)
	return commit.SHA, err
}

// DefaultBranch is the branch that HEAD names, which need not have a commit yet.
func (r *Reader) DefaultBranch(ctx context.Context, repo string) (string, error) {
	dir, err := Dir(repo)
	if err != nil {
		return "", err
	}
	out, err := run(ctx, dir, "symbolic-ref", "--quiet", "HEAD")
	if err != nil {
		return "", fmt.Errorf("default branch of %s: %w", repo, err)
	}
	branch, ok := strings.CutPrefix(strings.TrimSpace(out), "refs/heads/")
	if !ok {
		return "", fmt.Errorf("default branch of %s: HEAD names %q: %w", repo, strings.TrimSpace(out), ErrNoCommit)
	}
	return branch, nil
}

// IsCommitID tells whether s is a full object id (SHA-1 or SHA-256).
func IsCommitID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F')
	})
}

// checkRevision lets only ids and names of refs through, by git's own rules for names. The rest of the revision
// language (main~1000000, :/text, ^{/pattern}) comes from senders here and would let them search whole histories.
func checkRevision(rev string) error {
	bad := rev == "" || len(rev) > 1024 || rev[0] == '-' || rev == "@" ||
		strings.HasSuffix(rev, "/") || strings.HasSuffix(rev, ".") ||
		strings.Contains(rev, "..") || strings.Contains(rev, "@{") || strings.Contains(rev, "//") ||
		strings.ContainsAny(rev, " ~^:?*[\\\x7f") ||
		strings.ContainsFunc(rev, func(r rune) bool { return r < 0x20 })
	for part := range strings.SplitSeq(rev, "/") {
		bad = bad || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	if bad || strings.HasPrefix(rev, "/") {
		return fmt.Errorf("revision %q: %w", rev, ErrBadName)
	}
	return nil
}
