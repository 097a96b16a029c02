package segments

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	listedFor = 2 * time.Second // how long a list of objects is taken for true
	maxListed = 256             // logs of which there is one
)

// listings remember for a moment which objects a log has: who reads it page by page, or looks again and again whether there
// is something new, would ask the object store each time. What another node uploads is seen that much later.
type listings struct {
	mu      sync.Mutex
	known   *lru.Cache[string, listing] // by log
	changes int64                       // a list from before a change may lack it
}

type listing struct {
	at       time.Time
	segments []segment // not changed by anybody
}

// uploadedParts lists what the object store has of a log, or had a moment ago.
func (s *Store) uploadedParts(ctx context.Context, log string) ([]segment, error) {
	l := &s.listings
	l.mu.Lock()
	before := l.changes
	have, ok := l.known.Get(log)
	l.mu.Unlock()
	if ok && time.Since(have.at) < listedFor {
		return have.segments, nil
	}
	have.at = time.Now()
	objects, err := s.Objects.List(ctx, log)
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	have.segments = parseSegments(objects)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes == before {
		l.known.Add(log, have)
	}
	return have.segments, nil
}

// changed forgets the lists of a log, or of all for "", before what they lack can be missed.
func (l *listings) changed(log string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	if log == "" {
		l.known.Purge()
	} else {
		l.known.Remove(log)
	}
}
