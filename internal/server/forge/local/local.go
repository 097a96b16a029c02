// Package local serves repositories that lie in a folder of the server's machine, for development, tests and teams
// without a forge. Lock files are read at the commit that an event names, never from a working tree.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/server/forge"
	"kici/internal/server/forge/git"
)

// targetBranch stands where an event names no branch.
const targetBranch = "__local__"

// Provider is the ports of local sources.
type Provider struct {
	git   *git.Reader
	locks *lockCache
}

// New makes a Provider that reads through the given reader, which stays the caller's to close.
func New(reader *git.Reader) *Provider {
	return &Provider{git: reader, locks: newLockCache()}
}

// Normalise takes any event name as it is given. A push of a tag keeps the type push.
func (p *Provider) Normalise(event string, payload json.RawMessage) (forge.Facts, bool) {
	body, err := forge.DecodeBody(payload)
	if err != nil {
		return forge.Facts{}, false
	}
	ref := body.Text("ref")
	short := strings.TrimPrefix(strings.TrimPrefix(ref, "refs/heads/"), "refs/tags/")
	f := forge.Facts{
		Event: ci.Event{Type: event, Action: body.Text("action"), TargetBranch: targetBranch, Payload: payload,
			Provider: forge.Local, SenderUsername: body.Text("sender.login")},
		Repo: repoOf(body), Ref: refOf(event, body), Branch: short, CheckoutRef: short,
		CommitMessage: body.CommitMessage(event), Sender: body.Text("sender.login"),
	}
	if short != "" {
		f.Event.TargetBranch = short
	}
	if head := body.Text("pull_request.head.ref"); head != "" {
		f.Branch, f.CheckoutRef = body.Text("pull_request.base.ref"), head
	}
	return f, true
}

// repoOf takes names without an owner too: a repository may lie directly below the base folder.
func repoOf(body forge.Body) string {
	if name := body.Text("repository.full_name"); name != "" {
		return name
	}
	if name := body.Text("repository"); name != "" {
		return name
	}
	return body.OwnerAndName()
}

// refOf is where the lock file is read. A push that names no commit means the tip of its branch.
func refOf(event string, body forge.Body) string {
	var paths []string
	switch event {
	case "push":
		paths = []string{"after", "ref"}
	case "pull_request", "pull_request_review", "pull_request_review_comment":
		paths = []string{"pull_request.head.sha"}
	case "status":
		paths = []string{"sha"}
	case "release":
		paths = []string{"release.target_commitish"}
	}
	for _, path := range paths {
		if ref := body.Text(path); ref != "" {
			return ref
		}
	}
	return "HEAD"
}

// LockFile is forge.LockFiles.
func (p *Provider) LockFile(ctx context.Context, src forge.Source, repo, ref string) (forge.Lock, error) {
	dir, err := locate(src, repo)
	if err != nil {
		return forge.Lock{}, err
	}
	commit, err := p.git.Commit(ctx, dir, ref)
	if err != nil {
		return forge.Lock{}, translate(err, repo)
	}
	blob, err := p.git.Show(ctx, dir, commit.SHA, lockfile.Path, lockfile.MaxBytes)
	if errors.Is(err, git.ErrTooLarge) {
		return forge.Lock{}, &lockfile.ParseError{Repo: repo, Ref: ref, Kind: lockfile.TooLarge,
			Message: fmt.Sprintf("Lock file at %s ref=%s is larger than the limit of %d bytes", repo, ref, lockfile.MaxBytes)}
	}
	if err != nil {
		return forge.Lock{}, translate(err, repo)
	}
	file, ok := p.locks.get(blob.ID)
	if !ok {
		var parseErr *lockfile.ParseError
		if file, parseErr = lockfile.Load(blob.Data, repo, ref); parseErr != nil {
			return forge.Lock{}, parseErr // never cached: its text names the repository and the ref
		}
		p.locks.add(blob.ID, file, len(blob.Data))
	}
	return forge.Lock{File: file, SHA: commit.SHA}, nil
}

// Commit is forge.Refs. Of a branch and a tag of one name the branch is meant.
func (p *Provider) Commit(ctx context.Context, src forge.Source, repo, ref string) (forge.Commit, error) {
	dir, err := locate(src, repo)
	if err != nil {
		return forge.Commit{}, err
	}
	branch, err := p.git.DefaultBranch(ctx, dir)
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
		commit, err := p.git.Commit(ctx, dir, name)
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
