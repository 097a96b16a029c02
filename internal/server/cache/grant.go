package cache

import (
	"context"
	"errors"

	"kici/internal/kit/blob"
	"kici/internal/server/store"
)

// found is an entry with a link to read it by.
type found struct {
	entry
	link string
}

// grant looks for an entry in several spaces, one after the other, and gives a link to the first.
func (c *Cache) grant(ctx context.Context, spaces []space, w wish, after int64) (f found, ok bool, err error) {
	if !goodKey(w.text) {
		return f, false, nil
	}
	for _, s := range spaces {
		e, ok, err := find(ctx, c.DB.Read(), s, w, after)
		if err == nil && ok {
			f, ok, err = c.open(ctx, e)
		}
		if err != nil || ok {
			return f, ok, err
		}
	}
	return f, false, nil
}

// open notes the use of an entry and makes the link to it. An entry that went meanwhile, or whose blob is gone, is none.
func (c *Cache) open(ctx context.Context, e entry) (found, bool, error) {
	_, err := c.Blobs.Stat(ctx, e.path)
	if errors.Is(err, blob.ErrNotFound) {
		// Left alone it would be a miss for everybody, and nobody could save the key anew.
		c.Log.Warn("a cached blob is gone, its entry goes too", "path", e.path)
		return found{}, false, c.DB.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return c.remove(ctx, tx, e) })
	}
	if err != nil {
		return found{}, false, err
	}
	used, err := c.use(ctx, e.id)
	if err != nil || !used {
		return found{}, false, err
	}
	link, err := c.Agents.ReadLink(ctx, e.path)
	return found{e, link}, err == nil, err
}
