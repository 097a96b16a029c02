// Package blob keeps bytes by path: a small interface over what both a file system and an object store can do, both
// behind it, and the links by which somebody without credentials reads or writes one blob for a while.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// ErrNotFound says that nothing lies at the path.
var ErrNotFound = errors.New("blob not found")

// ErrPath says that a path is not acceptable: absolute, empty, with "..", with an empty element or a NUL, or in the place
// where the file system keeps what is still being put.
var ErrPath = errors.New("bad blob path")

// ErrFull says that there is no room for more. What was there before is unharmed.
var ErrFull = errors.New("no space left for blobs")

// Info is what is known of a blob without reading it.
type Info struct {
	Path     string
	Size     int64 // bytes
	Modified time.Time
}

// Store keeps blobs. Paths are relative, with "/" between elements. All methods are safe for concurrent use. A blob never
// changes in part: an object store cannot append, so what grows is kept as several blobs.
type Store interface {
	// Put stores a blob as a whole: readers see all of it or what was there before. It gives the size.
	Put(ctx context.Context, path string, r io.Reader) (int64, error)
	// Get opens a blob for reading and tells its size, or ErrNotFound. The caller closes it.
	Get(ctx context.Context, path string) (io.ReadCloser, int64, error)
	// Stat tells size and age of what lies at exactly this path, or ErrNotFound.
	Stat(ctx context.Context, path string) (Info, error)
	// List gives the paths below a folder, the root for "", sorted. A folder that does not exist has none.
	List(ctx context.Context, folder string) ([]string, error)
	// Walk calls visit for each blob below a folder, in no particular order, until visit gives an error. What is put or
	// deleted meanwhile may be seen or not.
	Walk(ctx context.Context, folder string, visit func(Info) error) error
	// Move gives a blob another path in place of what was there, or gives ErrNotFound.
	Move(ctx context.Context, from, to string) error
	// Delete removes a blob. It is no error when there is none.
	Delete(ctx context.Context, path string) error
	// Tidy removes what puts that never ended left behind before a time. It never touches a blob.
	Tidy(ctx context.Context, before time.Time) error
}

// temporary is the folder in which the file system keeps what is being put. It is taken on every store, so that a path
// that one accepts is accepted by the other.
const temporary = ".put"

// checkPath lets through what is the one way to write a path below the root. A name such as "a..b" is fine.
func checkPath(p string) error {
	if p == "" || strings.IndexByte(p, 0) >= 0 || strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../") ||
		p == temporary || strings.HasPrefix(p, temporary+"/") {
		return fmt.Errorf("%w: %q", ErrPath, p)
	}
	return nil
}

// checkFolder gives a folder without the slash at its end, "" for the root.
func checkFolder(folder string) (string, error) {
	folder = strings.TrimSuffix(folder, "/")
	if folder == "" {
		return "", nil
	}
	return folder, checkPath(folder)
}

// paths collects the paths of a walk.
func paths(ctx context.Context, s Store, folder string) ([]string, error) {
	out := []string{}
	err := s.Walk(ctx, folder, func(i Info) error {
		out = append(out, i.Path)
		return nil
	})
	slices.Sort(out)
	return out, err
}
