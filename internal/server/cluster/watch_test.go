package cluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDeadNodesAreThoseWhoseBeatNoLongerChanges(t *testing.T) {
	start := time.UnixMilli(1_000_000)
	// Each look is some seconds after the one before; a node is there with the beat that it has then.
	type look struct {
		after time.Duration
		beats map[string]int64
		dead  []string
	}
	s := time.Second
	tests := []struct {
		name  string
		looks []look
	}{
		{"a node that beats lives, whatever its clock says", []look{
			{0, map[string]int64{"a": 5}, nil}, {5 * s, map[string]int64{"a": 6}, nil}, {5 * s, map[string]int64{"a": 7}, nil}, {5 * s, map[string]int64{"a": 3}, nil}}},
		{"one that does not is dead after the time", []look{
			{0, map[string]int64{"a": 5}, nil}, {5 * s, map[string]int64{"a": 5}, nil}, {5 * s, map[string]int64{"a": 5}, nil}, {2 * s, map[string]int64{"a": 5}, []string{"a"}}}},
		{"this node never takes itself for dead", []look{
			{0, map[string]int64{"me": 5}, nil}, {5 * s, map[string]int64{"me": 5}, nil}, {5 * s, map[string]int64{"me": 5}, nil}, {5 * s, map[string]int64{"me": 5}, nil}}},
		{"a beat makes the time begin anew", []look{
			{0, map[string]int64{"a": 5}, nil}, {5 * s, map[string]int64{"a": 5}, nil}, {5 * s, map[string]int64{"a": 6}, nil}, {5 * s, map[string]int64{"a": 6}, nil}, {5 * s, map[string]int64{"a": 6}, nil}, {2 * s, map[string]int64{"a": 6}, []string{"a"}}}},
		{"a watch that did not look cannot tell", []look{
			{0, map[string]int64{"a": 5}, nil}, {time.Hour, map[string]int64{"a": 5}, nil}, {6 * s, map[string]int64{"a": 5}, nil}, {6 * s, map[string]int64{"a": 5}, []string{"a"}}}},
		{"a node that was buried and comes back is new", []look{
			{0, map[string]int64{"a": 5}, nil}, {6 * s, map[string]int64{"a": 5}, nil}, {6 * s, map[string]int64{"a": 5}, []string{"a"}}, {3 * s, nil, nil}, {3 * s, map[string]int64{"a": 5}, nil}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, now := NewWatch(12*time.Second), start
			for i, l := range tt.looks {
				now = now.Add(l.after)
				var nodes []Node
				for id, beat := range l.beats {
					nodes = append(nodes, Node{ID: id, SeenAt: beat})
				}
				var dead []string
				for _, n := range w.Dead(nodes, "me", now) {
					dead = append(dead, n.ID)
				}
				if d := cmp.Diff(l.dead, dead); d != "" {
					t.Errorf("look %d (-want +got):\n%s", i, d)
				}
			}
		})
	}
}
