package compile

import (
	"os"
	"path/filepath"
	"testing"

	"kici/internal/testenv"
)

// packages gives a folder in whose node_modules are zod and typescript.
func packages(t testing.TB) string {
	t.Helper()
	return testenv.Packages(t, "testdata/npm")
}

// installZod puts the installed zod into a repository as its own.
func installZod(t testing.TB, root string) {
	t.Helper()
	into := filepath.Join(root, "node_modules", "zod")
	if err := os.CopyFS(into, os.DirFS(filepath.Join(packages(t), "node_modules", "zod"))); err != nil {
		t.Fatal(err)
	}
}
