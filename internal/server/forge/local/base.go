package local

import (
	"io/fs"
	"os"
	"path/filepath"

	lru "github.com/hashicorp/golang-lru/v2"
)

// maxBases is how many base folders are remembered. Beyond it the one that was unused for longest is resolved anew.
const maxBases = 1000

// bases remembers where the base folders of sources really are. Resolving one asks about every folder on the way to it,
// with every delivery. That way belongs to the operator, as the name of the folder does: whoever may write to repositories
// alone changes nothing of it, and what is below the folder is looked at each time.
type bases struct{ places *lru.Cache[string, place] }

// place is a folder with every symbolic link on the way to it resolved.
type place struct {
	path   string
	folder fs.FileInfo
}

func newBases() bases {
	places, err := lru.New[string, place](maxBases)
	if err != nil {
		panic(err) // only a size below one is refused
	}
	return bases{places}
}

// real gives the place of a base folder. It is remembered for as long as both the folder's name and the place lead to the
// same folder.
func (b bases) real(base string) (string, error) {
	if known, ok := b.places.Get(base); ok && known.holds(base) {
		return known.path, nil
	}
	path, err := filepath.EvalSymlinks(base)
	if err != nil {
		return "", err
	}
	folder, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	b.places.Add(base, place{path, folder})
	return path, nil
}

func (p place) holds(base string) bool {
	there, err := os.Lstat(p.path)
	if err != nil || !os.SameFile(there, p.folder) {
		return false
	}
	if base == p.path {
		return true
	}
	named, err := os.Stat(base)
	return err == nil && os.SameFile(named, p.folder)
}
