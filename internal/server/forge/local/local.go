// Package local serves repositories that lie in a folder of the server's machine, for development, tests and teams
// without a forge. Lock files are read at the commit that an event names, never from a working tree.
package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"kici/internal/core/lockfile"
	"kici/internal/decide/envelope"
	"kici/internal/server/forge"
	"kici/internal/server/forge/git"
)

// Provider is the ports of local sources.
type Provider struct {
	git   *git.Reader
	locks *lockCache
	bases bases
}

// New makes a Provider that reads through the given reader, which stays the caller's to close.
func New(reader *git.Reader) *Provider {
	return &Provider{git: reader, locks: newLockCache(), bases: newBases()}
}

// Normalise takes any event name as it is given. A push of a tag keeps the type push.
func (p *Provider) Normalise(event string, payload json.RawMessage) (forge.Facts, bool) {
	n, err := envelope.Normalize(envelope.Delivery{Kind: envelope.Local, Event: event, Payload: payload})
	if err != nil || n.Event == nil {
		return forge.Facts{}, false
	}
	ref, sender := n.Text("ref"), n.Text("sender", "login")
	f := forge.Facts{Event: *n.Event, Repo: n.Repo, Ref: n.Ref, Sender: sender, CommitMessage: message(n)}
	f.Event.SenderUsername = sender
	if owner, name := n.Text("repository", "owner", "login"), n.Text("repository", "name"); f.Repo == "" && owner != "" && name != "" {
		f.Repo = owner + "/" + name
	}
	if event == "push" && n.Text("after") == "" && ref != "" {
		f.Ref = ref // a push that names no commit means the tip of its branch
	}
	f.Branch = strings.TrimPrefix(strings.TrimPrefix(ref, "refs/heads/"), "refs/tags/")
	if !strings.HasPrefix(f.Branch, "refs/") { // such as refs/notes/x, which is nothing to clone by
		f.CheckoutRef = f.Branch
	}
	if head := n.Text("pull_request", "head", "ref"); head != "" {
		f.Branch, f.CheckoutRef = n.Text("pull_request", "base", "ref"), head
	}
	return f, true
}

// message is the line by which people know what the event is about.
func message(n envelope.Normalized) string {
	first, _, _ := strings.Cut(n.Text("head_commit", "message"), "\n")
	return cmp.Or(first, n.Text("pull_request", "title"), n.Text("issue", "title"))
}

// LockFile is forge.LockFiles.
func (p *Provider) LockFile(ctx context.Context, src forge.Source, repo, ref string) (forge.Lock, error) {
	r, err := p.locate(src, repo)
	if err != nil {
		return forge.Lock{}, err
	}
	lock := forge.Lock{SHA: ref, CloneURL: r.cloneURL()}
	var ok bool
	if lock.File, ok = p.locks.get(atCommit(r.dir, ref)); ok {
		return lock, nil
	}
	commit, blob, err := p.git.ShowCommit(ctx, r.dir, ref, lockfile.Path, lockfile.MaxBytes)
	lock.SHA = commit.SHA
	if errors.Is(err, git.ErrTooLarge) {
		return lock, &lockfile.ParseError{Repo: repo, Ref: ref, Kind: lockfile.TooLarge,
			Message: fmt.Sprintf("Lock file at %s ref=%s is larger than the limit of %d bytes", repo, ref, lockfile.MaxBytes)}
	}
	if err != nil {
		return forge.Lock{}, translate(err, repo)
	}
	if lock.File, ok = p.locks.get(blob.ID); !ok {
		var parseErr *lockfile.ParseError
		if lock.File, parseErr = lockfile.Load(blob.Data, repo, ref); parseErr != nil {
			return lock, parseErr // never cached: its text names the repository and the ref
		}
		p.locks.add(blob.ID, lock.File, len(blob.Data))
	}
	p.locks.add(atCommit(r.dir, commit.SHA), lock.File, len(blob.Data))
	return lock, nil
}

// Commit is forge.Refs. Of a branch and a tag of one name the branch is meant.
func (p *Provider) Commit(ctx context.Context, src forge.Source, repo, ref string) (forge.Commit, error) {
	r, err := p.locate(src, repo)
	if err != nil {
		return forge.Commit{}, err
	}
	branch, err := p.git.DefaultBranch(ctx, r.dir)
	if err != nil {
		return forge.Commit{}, translate(err, repo)
	}
	candidates := []string{"refs/heads/" + ref, "refs/tags/" + ref}
	switch {
	case ref == "" || ref == "HEAD":
		candidates = []string{"refs/heads/" + branch}
	case strings.HasPrefix(ref, "refs/"), git.IsCommitID(ref):
		candidates = []string{ref}
	}
	for _, name := range candidates {
		commit, err := p.git.Commit(ctx, r.dir, name)
		if errors.Is(err, git.ErrNoCommit) {
			continue
		}
		if err != nil {
			return forge.Commit{}, translate(err, repo)
		}
		if git.IsCommitID(name) {
			name = "refs/heads/" + branch
		}
		return forge.Commit{SHA: commit.SHA, Ref: name, Message: commit.Message, Default: branch}, nil
	}
	return forge.Commit{}, fmt.Errorf("%q in %s: %w", strings.Join(candidates, " or "), repo, forge.ErrNoCommit)
}

// translate puts the errors of git that would come again into the words of the ports.
func translate(err error, repo string) error {
	for _, pair := range [][2]error{{git.ErrNoRepository, forge.ErrNoRepository}, {git.ErrNoCommit, forge.ErrNoCommit},
		{git.ErrNoFile, forge.ErrNoLockFile}, {git.ErrBadName, forge.ErrRefused}} {
		if errors.Is(err, pair[0]) {
			return fmt.Errorf("%s: %w (%w)", repo, pair[1], err)
		}
	}
	return fmt.Errorf("%s: %w", repo, err)
}
