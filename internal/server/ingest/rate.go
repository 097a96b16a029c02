package ingest

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// window is the time in which a source's deliveries are counted.
const window = time.Minute

// maxRated is how many sources are counted at a time. Beyond it the one that was quiet for longest is forgotten, which
// lets it send a full minute's worth anew.
const maxRated = 10_000

// rates counts the deliveries of each source in the last minute, on this node. The count is kept in memory: after a
// restart a source may send a full minute's worth at once.
type rates struct {
	mu      sync.Mutex
	sources *simplelru.LRU[string, *sent]
}

// sent is the times of a source's deliveries within the window, oldest first; at most as many as its limit.
type sent struct{ times []time.Time }

func newRates() *rates {
	sources, err := simplelru.NewLRU[string, *sent](maxRated, nil)
	if err != nil {
		panic(err) // only a size below one is refused
	}
	return &rates{sources: sources}
}

// admit counts a delivery, or tells how long its source must wait until one would be admitted. A refused delivery does
// not count, so a sender that keeps trying gets its rate all the same.
func (r *rates) admit(source string, limit int, now time.Time) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sources.Get(source)
	if !ok {
		s = &sent{}
		r.sources.Add(source, s)
	}
	fresh := 0
	for fresh < len(s.times) && now.Sub(s.times[fresh]) >= window {
		fresh++
	}
	s.times = s.times[fresh:]
	if n := len(s.times); n >= limit {
		return window - now.Sub(s.times[n-limit])
	}
	s.times = append(s.times, now)
	return 0
}

// withdraw takes back the last delivery of a source that was admitted, which is to be judged anew.
func (r *rates) withdraw(source string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.sources.Get(source); ok && len(s.times) > 0 {
		s.times = s.times[:len(s.times)-1]
	}
}
