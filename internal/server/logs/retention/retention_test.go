package retention

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// shelf is a keeper that lets go of everything but what is being written.
type shelf struct {
	written []string
	gone    map[string]bool // by run, whether a mark was wanted
}

func (s *shelf) Remove(_ context.Context, run string, mark bool) (bool, error) {
	if slices.Contains(s.written, run) {
		return false, nil
	}
	s.gone[run] = mark
	return true, nil
}

// TestWhatExpires checks any shelf against the rules: logs of open runs and fresh ones stay, what is too old goes, and the bound
// is kept as long as there is something that may go, the oldest first.
func TestWhatExpires(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		states := map[string]RunState{}
		keep := Policy{MaxAge: time.Duration(rapid.IntRange(0, 9).Draw(t, "age")) * time.Hour,
			Run: func(_ context.Context, run string) (RunState, error) { return states[run], nil }}
		most := int64(rapid.IntRange(0, 60).Draw(t, "most"))
		s := &shelf{gone: map[string]bool{}}
		var logs []RunLogs
		for i := range rapid.IntRange(0, 8).Draw(t, "runs") {
			age := time.Duration(rapid.IntRange(0, 10).Draw(t, "hours")) * time.Hour
			l := RunLogs{Run: fmt.Sprint(i), Bytes: int64(rapid.IntRange(1, 20).Draw(t, "bytes")), Last: time.Now().Add(-age - time.Second)}
			states[l.Run] = rapid.SampledFrom([]RunState{RunOpen, RunEnded, RunUnknown}).Draw(t, "state")
			if rapid.Bool().Draw(t, "written") {
				s.written = append(s.written, l.Run)
			}
			logs = append(logs, l)
		}
		got, err := Expire(t.Context(), keep, slices.Clone(logs), most, s)
		if err != nil {
			t.Fatal(err)
		}
		var want Swept
		oldestKept := time.Now()
		for _, l := range logs {
			mark, gone := s.gone[l.Run]
			old := keep.Age() > 0 && time.Since(l.Last) > keep.Age()
			movable := states[l.Run] == RunEnded || states[l.Run] == RunUnknown && old
			movable = movable && time.Since(l.Last) > settleTime && !slices.Contains(s.written, l.Run)
			if gone && !movable || !gone && movable && old || gone && mark != (states[l.Run] == RunEnded) {
				t.Fatalf("%+v in state %d: gone %t, old %t, marked %t", l, states[l.Run], gone, old, mark)
			}
			if gone {
				want.Runs, want.Freed = want.Runs+1, want.Freed+l.Bytes
				continue
			}
			want.Kept += l.Bytes
			if movable && l.Last.Before(oldestKept) {
				oldestKept = l.Last
			}
		}
		if got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
		for _, l := range logs {
			if _, gone := s.gone[l.Run]; gone && l.Last.After(oldestKept) {
				t.Fatalf("run %s went before an older one", l.Run)
			}
		}
		if most > 0 && got.Kept > most && oldestKept.Before(time.Now().Add(-settleTime)) {
			t.Fatalf("%d bytes are kept, %d are allowed, and a run could go", got.Kept, most)
		}
	})
}
