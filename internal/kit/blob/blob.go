// Package blob keeps bytes by path: a small interface over what both a file system and an object store can do, and the
// file system behind it.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// ErrNotFound says that nothing lies at the path.
var ErrNotFound = errors.New("blob not found")

// ErrPath says that a path is not acceptable: absolute, empty, with "..", with an empty element or a NUL.
var ErrPath = errors.New("bad blob path")

// ErrFull says that there is no room for more. What was there before is unharmed.
var ErrFull = errors.New("no space left for blobs")

// Page is a part of a blob.
type Page struct {
	Data     []byte
	Cursor   int64 // offset to go on from
	Complete bool  // nothing follows at present
}

// Store keeps blobs. Paths are relative, with "/" between elements. All methods are safe for concurrent use.
//
// An object store can write objects only as a whole, so it keeps an appended blob as numbered parts below the path; that
// is why one path is either appended to or put, never both.
type Store interface {
	// Append adds data at the end, durable when it returns. One path has one writer at a time.
	Append(ctx context.Context, path string, data []byte) error
	// Read gives at most limit bytes from the cursor on, cut behind the last line break where one is in the page. What
	// does not exist is empty and complete; behind the end there is nothing, and Cursor is the size.
	Read(ctx context.Context, path string, cursor int64, limit int) (Page, error)
	// Exists tells whether something lies at exactly this path.
	Exists(ctx context.Context, path string) (bool, error)
	// List gives the paths below a folder, the root for "", sorted. A folder that does not exist has none.
	List(ctx context.Context, folder string) ([]string, error)
	// Put stores a blob as a whole: readers see all of it or what was there before. It gives the size.
	Put(ctx context.Context, path string, r io.Reader) (int64, error)
	// Get opens a blob for reading and tells its size, or ErrNotFound. The caller closes it.
	Get(ctx context.Context, path string) (io.ReadCloser, int64, error)
	// Delete removes a blob. It is no error when there is none.
	Delete(ctx context.Context, path string) error
}

// checkPath lets through what is the one way to write a path below the root. A name such as "a..b" is fine.
func checkPath(p string) error {
	if p == "" || strings.IndexByte(p, 0) >= 0 || strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../") {
		return fmt.Errorf("%w: %q", ErrPath, p)
	}
	return nil
}
