package segments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"kici/internal/kit/blob"
)

const (
	maxCopies   = 64          // segments of the object store that are kept in the data folder to be read again
	fetchWithin = time.Minute // one segment
)

// copies holds segments of the object store on the local disk, so that a page of a log costs one download at most and no
// memory. They are of use to one process only: the folder is emptied at the start.
type copies struct {
	from   blob.Store
	folder string
	files  *lru.Cache[string, string] // object → file; a file goes with its entry
	flight singleflight.Group         // a segment that many read is fetched once
}

func newCopies(from blob.Store, folder string) (*copies, error) {
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	// A file that cannot be removed stays until the next start; nobody is harmed.
	files, err := lru.NewWithEvict(maxCopies, func(_, file string) { _ = os.Remove(file) })
	return &copies{from: from, folder: folder, files: files}, err
}

// open opens the copy of an object of that size. The caller closes it; it stays readable when the copy goes.
func (c *copies) open(ctx context.Context, object string, size int64) (*os.File, error) {
	for {
		file, ok := c.files.Get(object)
		if !ok {
			fetched, err := c.fetch(ctx, object, size)
			if err != nil {
				return nil, err
			}
			file = fetched
		}
		f, err := os.Open(file)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		c.files.Remove(object) // pushed out between the two
	}
}

// fetch makes a copy. Whoever else wants it meanwhile gets the same one, so the first one's end does not end it.
func (c *copies) fetch(ctx context.Context, object string, size int64) (string, error) {
	done := c.flight.DoChan(object, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchWithin)
		defer cancel()
		file := filepath.Join(c.folder, uuid.NewString())
		if err := c.download(ctx, object, file, size); err != nil {
			return "", errors.Join(fmt.Errorf("fetch %s: %w", object, err), os.Remove(file))
		}
		c.files.Add(object, file)
		return file, nil
	})
	select {
	case got := <-done:
		file, _ := got.Val.(string)
		return file, got.Err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (c *copies) download(ctx context.Context, object, file string, size int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	r, _, err := c.from.Get(ctx, object)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	n, err := io.Copy(f, io.LimitReader(r, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("it has not the %d bytes that its name says", size)
	}
	return errors.Join(err, r.Close(), f.Close())
}
