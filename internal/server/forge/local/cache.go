package local

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"kici/internal/core/lockfile"
)

// Bounds of the cache of parsed lock files. Beyond either the one that was unused for longest goes; a file that alone is
// larger than the second is parsed anew each time.
const (
	maxCachedFiles = 1000
	maxCachedBytes = 32 << 20 // of the documents as they are stored; parsed they take a few times as much
)

// lockCache keeps parsed lock files under what can never mean another content: the id of the content, and a commit of a
// repository. A file counts once for each.
type lockCache struct {
	mu    sync.Mutex
	files *simplelru.LRU[string, cached]
	bytes int
}

type cached struct {
	file *lockfile.File
	size int
}

func newLockCache() *lockCache {
	c := &lockCache{}
	files, err := simplelru.NewLRU(maxCachedFiles, func(_ string, gone cached) { c.bytes -= gone.size })
	if err != nil {
		panic(err) // only a size below one is refused
	}
	c.files = files
	return c
}

func atCommit(dir, sha string) string { return dir + "\x00" + sha }

func (c *lockCache) get(key string) (*lockfile.File, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.files.Get(key)
	return entry.file, ok
}

func (c *lockCache) add(key string, file *lockfile.File, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if size > maxCachedBytes || c.files.Contains(key) {
		return // two readers parsed it at once
	}
	c.files.Add(key, cached{file, size})
	c.bytes += size
	for c.bytes > maxCachedBytes {
		c.files.RemoveOldest()
	}
}
