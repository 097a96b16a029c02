package cluster

import "time"

// Watch tells the nodes that are gone from those that are there. It goes by its own clock alone, and asks for each node
// only whether its beat still changes: the clocks of two machines need not agree.
type Watch struct {
	after  time.Duration // without a new beat for so long a node is dead
	looked time.Time
	seen   map[string]sighting
}

// sighting is the latest beat of a node, and when it was seen first.
type sighting struct {
	beat int64
	at   time.Time
}

// NewWatch makes a watch that takes a node for dead once its beat has not changed for that long.
func NewWatch(after time.Duration) *Watch { return &Watch{after: after, seen: map[string]sighting{}} }

// Dead gives the dead ones of the nodes, of which self is none. It is to be called several times within the watch's
// time: after a longer pause it was this node that did not run, and everybody has the whole time again.
func (w *Watch) Dead(nodes []Node, self string, now time.Time) []Node {
	if now.Sub(w.looked) > w.after/2 {
		clear(w.seen)
	}
	w.looked = now
	var dead []Node
	present := make(map[string]sighting, len(nodes))
	for _, n := range nodes {
		s, known := w.seen[n.ID]
		if !known || s.beat != n.SeenAt {
			s = sighting{beat: n.SeenAt, at: now}
		}
		present[n.ID] = s
		if n.ID != self && now.Sub(s.at) >= w.after {
			dead = append(dead, n)
		}
	}
	w.seen = present
	return dead
}
