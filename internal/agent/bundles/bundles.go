// Package bundles remembers what step runners have made of workflows, so that the next job need not make it again.
package bundles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	lru "github.com/hashicorp/golang-lru/v2"

	"kici/internal/agent/runner"
)

// Bounds of the memory of bundles. The least recently used goes first; a bundle that is not here is made again by the
// runner, which costs some milliseconds.
const (
	maxBundles     = 32
	maxBundleBytes = 256 << 10
	maxKeyFiles    = 256
	maxKeyBytes    = 1 << 20
)

// Memory holds bundles by the content of the files that they are made of: the jobs of a run, and the runs of a commit, have
// the same.
type Memory struct {
	made *lru.Cache[string, runner.Bundle]
}

// New makes an empty memory.
func New() *Memory {
	made, _ := lru.New[string, runner.Bundle](maxBundles) // fails for a size below 1 only
	return &Memory{made: made}
}

// Find gives the bundle of the key; nil when there is none.
func (b *Memory) Find(key string) *runner.Bundle {
	if key == "" {
		return nil
	}
	if found, ok := b.made.Get(key); ok {
		return &found
	}
	return nil
}

// Keep remembers a bundle, unless it is too large.
func (b *Memory) Keep(key string, made runner.Bundle) {
	if made.Part != "" && len(made.Part)+len(made.Map) <= maxBundleBytes {
		b.made.Add(key, made)
	}
}

// Key is a hash of all that decides how a workflow of the repository in root is bundled, as long as that lies in the folder
// .kici. It is "" when more may have a say (installed packages, links) or when there is too much to read.
func Key(root, workflow string) string {
	tree, err := os.OpenRoot(root)
	if err != nil {
		return ""
	}
	defer tree.Close()
	for _, name := range []string{"node_modules", ".kici/node_modules"} {
		if _, err := tree.Lstat(name); err == nil {
			return ""
		}
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\n", workflow)
	files, size := 0, 0
	add := func(name string) error {
		raw, err := tree.ReadFile(name)
		if err != nil {
			return err
		}
		files, size = files+1, size+len(raw)
		if files > maxKeyFiles || size > maxKeyBytes {
			return errLarge
		}
		fmt.Fprintf(hash, "%s\x00%d\n", name, len(raw))
		_, _ = hash.Write(raw) // never fails
		return nil
	}
	if _, err := tree.Lstat("package.json"); err == nil { // it may say of what kind modules are
		if err := add("package.json"); err != nil {
			return ""
		}
	}
	err = fs.WalkDir(tree.FS(), ".kici", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return errLink
		}
		return add(path.Clean(name))
	})
	if err != nil {
		return ""
	}
	return hex.EncodeToString(hash.Sum(nil))
}

var (
	errLarge = fmt.Errorf("more than %d files or %d bytes", maxKeyFiles, maxKeyBytes)
	errLink  = errors.New("no regular file")
)
