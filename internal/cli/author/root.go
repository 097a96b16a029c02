package author

import (
	"context"
	"os"
	"path/filepath"

	"kici/internal/agent/local"
	"kici/internal/cli/console"
)

// workflowsRoot is the root of the repository for a command that was called in some folder of it: where the folder of
// workflows is, or belongs, since servers read the one at the root. A folder that has one is a root itself.
func workflowsRoot(ctx context.Context, dir, kiciDir string) (string, error) {
	if err := RefuseNoFolder(dir); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, kiciDir)); err == nil && !filepath.IsAbs(kiciDir) {
		return dir, nil
	}
	return GitRoot(ctx, dir), nil
}

// GitRoot is the root of the repository that git knows of, else the folder itself, which keeps its name when it is that
// root.
func GitRoot(ctx context.Context, dir string) string {
	repo, err := local.Describe(ctx, dir)
	if err != nil || repo.Root == "" {
		return dir
	}
	root, err1 := os.Stat(repo.Root)
	here, err2 := os.Stat(dir)
	if err1 == nil && err2 == nil && os.SameFile(root, here) {
		return dir
	}
	return repo.Root
}

// RefuseNoFolder makes a mistake of the call of a --dir that is no folder.
func RefuseNoFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return console.Usage("--dir: %w", err)
	case !info.IsDir():
		return console.Usage("--dir: %s is no folder", dir)
	}
	return nil
}

// InRoot is the place of a folder that is named from the root of the repository, or absolutely.
func InRoot(root, dir string) string {
	if filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(root, dir)
}
