package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Repository is what git tells of a folder.
type Repository struct {
	Root string // absolute; "" when the folder is in no repository
	Name string // owner/name as the remote origin has it, else the folder's own
	SHA  string // of the commit that is checked out; "" when there is none yet
}

// Describe asks git about the repository that a folder is in. Without one, Root is "".
func Describe(ctx context.Context, dir string) (Repository, error) {
	root, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 128 {
		return Repository{}, nil
	}
	if err != nil {
		return Repository{}, fmt.Errorf("ask git about %s: %w", dir, err)
	}
	r := Repository{Root: strings.TrimSpace(root)}
	r.Name = "local/" + filepath.Base(r.Root)
	if url, err := git(ctx, r.Root, "config", "--get", "remote.origin.url"); err == nil {
		r.Name = identifier(strings.TrimSpace(url), r.Name)
	}
	if sha, err := git(ctx, r.Root, "rev-parse", "--verify", "--quiet", "HEAD"); err == nil {
		r.SHA = strings.TrimSpace(sha)
	}
	return r, nil
}

// identifier is owner/name of a clone URL.
func identifier(url, fallback string) string {
	rest := strings.TrimSuffix(url, ".git")
	if _, after, ok := strings.Cut(rest, "://"); ok {
		_, rest, _ = strings.Cut(after, "/")
	} else if _, after, ok := strings.Cut(rest, ":"); ok {
		rest = after
	}
	owner, name := path.Base(path.Dir(rest)), path.Base(rest)
	if owner == "." || owner == "/" || name == "" || name == "." {
		return fallback
	}
	return owner + "/" + name
}

// git runs git in a folder and gives what it prints. Variables that would let it work on another repository stay out:
// inside of a hook, git has set them.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "GIT_") && !strings.HasPrefix(kv, "GIT_CONFIG_")
	}), "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return string(out), err
}
