package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/blob"
	"kici/internal/kit/service"
	"kici/internal/server/logs/retention"
)

// walked is an object store that counts how often all logs are looked at, which takes a while.
type walked struct {
	blob.Store
	walks int
	takes time.Duration
	fails bool
}

func (w *walked) Walk(ctx context.Context, folder string, visit func(blob.Info) error) error {
	if folder == runsFolder {
		w.walks++
		time.Sleep(w.takes)
		if w.fails {
			return errDown
		}
	}
	return w.Store.Walk(ctx, folder, visit)
}

// An object store is looked at a few times a day, less often where that takes long, and again at the next turn where it failed.
func TestHowOftenAnObjectStoreIsSwept(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store walked
		want  int
	}{
		{"quick", walked{}, 4},
		{"slow", walked{takes: 7 * time.Minute}, 3},
		{"failing", walked{fails: true}, 24 * 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := segmentHome(t)
			tt.store.Store = h.segments
			synctest.Test(t, func(t *testing.T) {
				s, err := Open(t.Context(), Options{Root: h.root, Segments: &tt.store})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour-time.Second)
				defer cancel()
				keep := retention.Policy{MaxAge: 90 * 24 * time.Hour, Run: states{}.of}
				if err := s.Sweep(ctx, keep); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the loop ended with %v", err)
				}
				if tt.store.walks != tt.want {
					t.Errorf("%d walks a day, want %d", tt.store.walks, tt.want)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// smallDisk has room for so many bytes of files. What is deleted makes room.
type smallDisk struct {
	diskFile
	root string
	room int64
}

func (d smallDisk) Write(ctx context.Context, chunk []byte) (int, error) {
	used := int64(0)
	err := filepath.WalkDir(d.root, func(_ string, entry fs.DirEntry, err error) error {
		if info, err := entry.Info(); err == nil && !entry.IsDir() {
			used += info.Size()
		}
		return err
	})
	if err != nil || used+int64(len(chunk)) > d.room {
		return 0, errors.Join(err, syscall.ENOSPC)
	}
	return d.diskFile.Write(ctx, chunk)
}

// A disk that is smaller than the bound fills up. Then the oldest logs go, those of runs that go on never, and who waits with a
// chunk can store it.
func TestFullDiskMakesRoom(t *testing.T) {
	h := homes["files"](t)
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), Options{Root: h.root})
		if err != nil {
			t.Fatal(err)
		}
		for run, age := range map[string]time.Duration{"open": 48 * time.Hour, "week": 7 * 24 * time.Hour, "day": 24 * time.Hour} {
			writeRun(t, s, run, age)
		}
		s.openLog = func(name string, fresh bool) (diskFile, error) {
			f, err := s.openForWriting(name, fresh)
			return smallDisk{f, h.root, 4000}, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		keep := retention.Policy{MaxAge: 90 * 24 * time.Hour, MaxTotal: 1 << 30, Run: states{"open": retention.RunOpen}.of}
		w := &sweeper{Store: s, keep: keep, room: 1000}
		go func() { ended <- service.Every(ctx, s.log, "sweep", sweepPeriod, s.crowded, w.turn) }()
		synctest.Wait()
		for i, want := range [][]string{{"open", "day"}, {"open"}} {
			c := chunk(fmt.Sprint(i), strings.Repeat("x", 900))
			for range 3 {
				if s.Append(t.Context(), c) == nil {
					break
				}
				synctest.Wait()
			}
			if diff := cmp.Diff(want, kept(t, s, "open", "week", "day")); diff != "" {
				t.Errorf("when chunk %d is stored: %s", i, diff)
			}
			time.Sleep(roomPause)
		}
		if err := s.Append(t.Context(), chunk("2", strings.Repeat("x", 2000))); !errors.Is(err, ErrFull) {
			t.Errorf("nothing may go any more: %v", err)
		}
		synctest.Wait()
		if got := s.Stats(); got.ExpiredRuns != 2 || len(kept(t, s, "open", "r")) != 2 {
			t.Errorf("%+v", got)
		}
		cancel()
		<-ended
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
