package demo

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kici/internal/author/compile"
)

// workflow is what the demo runs: three jobs with needs, a matrix, outputs passed on, and a secret.
//
//go:embed workflow.ts
var workflow []byte

// repoName is the repository's identifier: its path below the base folder of the source.
const repoName = "demo/hello"

// makeRepository makes a git repository with the compiled workflow in it and gives its folder and the commit.
func makeRepository(ctx context.Context, base string) (dir, sha string, err error) {
	dir = filepath.Join(base, filepath.FromSlash(repoName))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", fmt.Errorf("make repository: %w", err)
	}
	if _, err := compile.Init(ctx, compile.InitOptions{Dir: dir}); err != nil {
		return "", "", err
	}
	folder := filepath.Join(dir, compile.DefaultDir, "workflows")
	if err := replaceFiles(folder, "hello.ts", workflow); err != nil {
		return "", "", err
	}
	if _, err := compile.Compile(ctx, compile.Options{Dir: dir, KiciDir: compile.DefaultDir}); err != nil {
		return "", "", fmt.Errorf("compile the demo's workflow:\n%w", err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "Say hello in four jobs"}} {
		if _, err := git(ctx, dir, args...); err != nil {
			return "", "", err
		}
	}
	sha, err = git(ctx, dir, "rev-parse", "HEAD")
	return dir, sha, err
}

// replaceFiles leaves one file in a folder.
func replaceFiles(folder, name string, content []byte) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
			return fmt.Errorf("make repository: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	return nil
}

// git runs git in a repository, as nobody in particular and without the settings of this machine's user.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=kici demo", "GIT_AUTHOR_EMAIL=demo@localhost", "GIT_COMMITTER_NAME=kici demo", "GIT_COMMITTER_EMAIL=demo@localhost")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
