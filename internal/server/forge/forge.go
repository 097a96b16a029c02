// Package forge holds the sources, the configured origins of deliveries and repositories: their table, how a delivery is
// verified, and the ports that every kind of source answers. What is particular to one kind is in the packages below.
package forge

import (
	"context"
	"encoding/json"
	"errors"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

// The kinds of sources.
const (
	Generic = "generic" // any sender of HTTP requests; it has no repository of its own
	Local   = "local"   // repositories in a folder of the server's machine
)

// Errors that callers tell apart. They come wrapped, with the names of what is meant.
var (
	ErrUnknownSource = errors.New("no such source")
	ErrNameTaken     = errors.New("a source of this name exists already")
	// ErrNoRepository says that the source has no repository of that name.
	ErrNoRepository = errors.New("no such repository")
	// ErrNoCommit says that the repository has no such commit, branch or tag.
	ErrNoCommit = errors.New("no such commit, branch or tag")
	// ErrNoLockFile says that the commit exists and has no lock file.
	ErrNoLockFile = errors.New("no lock file at this commit")
	// ErrRefused says that a name from a payload was not even looked up, such as a path that leaves the source's folder.
	ErrRefused = errors.New("refused")
)

// Facts are what a kind of source reads from a delivery.
type Facts struct {
	Event ci.Event
	// Repo identifies the repository within the source, "" when the delivery names none.
	Repo string
	// Ref is where the lock file is read and what is checked out: a commit, or a name such as HEAD.
	Ref string
	// Branch is the branch that the event presents and CheckoutRef the short branch or tag name to clone; both are ""
	// for the repository's default branch.
	Branch      string
	CheckoutRef string
	// CommitMessage is the first line of what the event is about, Sender who caused it; both for people only.
	CommitMessage string
	Sender        string
}

// Normaliser turns a verified delivery into facts; ok=false means that this kind of source has no meaning for it.
type Normaliser interface {
	Normalise(event string, payload json.RawMessage) (facts Facts, ok bool)
}

// Lock is a lock file and the commit it was read at. The file may be shared with other callers: nobody changes it.
type Lock struct {
	File     *lockfile.File
	SHA      string // the full commit id, also when a name was asked for
	CloneURL string // what agents clone
}

// LockFiles reads the lock file of a repository at a commit or name. Errors: *lockfile.ParseError when the file is
// there and unusable (all else of the lock is set then); ErrNoLockFile, ErrNoCommit, ErrNoRepository and ErrRefused, which the same request would meet
// again; anything else may pass by itself.
type LockFiles interface {
	LockFile(ctx context.Context, src Source, repo, ref string) (Lock, error)
}

// Commit is what a name in a repository stands for.
type Commit struct {
	SHA     string
	Ref     string // the full name: refs/heads/… or refs/tags/…
	Message string // whole, as the author wrote it
	Default string // the repository's default branch, short
}

// Refs resolves a branch or tag name, the empty name being the default branch, or a commit id (Ref is then the default
// branch's). Errors as for LockFiles.
type Refs interface {
	Commit(ctx context.Context, src Source, repo, ref string) (Commit, error)
}
