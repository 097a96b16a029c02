package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"kici/internal/testenv"
)

var installed struct {
	once   sync.Once
	folder string
	why    string
}

// packages gives a folder in whose node_modules the packages of testdata/npm are installed: zod and typescript. They come
// from the registry that npm is set up with, once for a version of their lock file, and stay in the user's cache.
func packages(t testing.TB) string {
	t.Helper()
	testenv.Need(t, "npm")
	testenv.Need(t, "node")
	installed.once.Do(func() { installed.folder, installed.why = install() })
	if installed.why != "" {
		testenv.Missing(t, "npm", installed.why)
	}
	return installed.folder
}

func install() (folder, why string) {
	lock, err := os.ReadFile("testdata/npm/package-lock.json")
	if err != nil {
		return "", err.Error()
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err.Error()
	}
	sum := sha256.Sum256(lock)
	folder = filepath.Join(cache, "kici-tests", "npm-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(folder); err == nil {
		return folder, ""
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err.Error()
	}
	// Installed beside and moved, so that a test that is stopped half way leaves nothing that looks whole.
	half, err := os.MkdirTemp(filepath.Dir(folder), "half-")
	if err != nil {
		return "", err.Error()
	}
	defer os.RemoveAll(half)
	if err := os.CopyFS(half, os.DirFS("testdata/npm")); err != nil {
		return "", err.Error()
	}
	npm := exec.Command("npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = half
	if out, err := npm.CombinedOutput(); err != nil {
		return "", err.Error() + "\n" + string(out)
	}
	if err := os.Rename(half, folder); err != nil {
		if _, there := os.Stat(folder); there != nil { // another test process was faster otherwise
			return "", err.Error()
		}
	}
	return folder, ""
}

// installZod puts the installed zod into a repository as its own.
func installZod(t testing.TB, root string) {
	t.Helper()
	into := filepath.Join(root, "node_modules", "zod")
	if err := os.CopyFS(into, os.DirFS(filepath.Join(packages(t), "node_modules", "zod"))); err != nil {
		t.Fatal(err)
	}
}
