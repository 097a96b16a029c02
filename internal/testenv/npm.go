package testenv

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var installations sync.Map // of the folder's name to func() (string, error)

// Packages gives a folder in whose node_modules the packages are installed that the package.json and package-lock.json of
// dir name. They come from the registry that npm is set up with, once for a version of their lock file, and stay in the
// user's cache.
func Packages(t testing.TB, dir string) string {
	t.Helper()
	Need(t, "npm")
	Need(t, "node")
	once, _ := installations.LoadOrStore(dir, sync.OnceValues(func() (string, error) { return install(dir) }))
	folder, err := once.(func() (string, error))()
	if err != nil {
		Missing(t, "npm", err.Error())
	}
	return folder
}

func install(dir string) (folder string, err error) {
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	folder = filepath.Join(cache, "kici-tests", "npm-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	// Installed beside and moved, so that a test that is stopped half way leaves nothing that looks whole.
	half, err := os.MkdirTemp(filepath.Dir(folder), "half-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(half)
	if err := os.CopyFS(half, os.DirFS(dir)); err != nil {
		return "", err
	}
	npm := exec.Command("npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = half
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if err := os.Rename(half, folder); err != nil {
		if _, there := os.Stat(folder); there != nil { // another test process was faster otherwise
			return "", err
		}
	}
	return folder, nil
}
