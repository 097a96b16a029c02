package logs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// uploading runs the upload loop of a home's store in a bubble of its own time.
func uploading(t *testing.T, h home, o Options, test func(t *testing.T, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Root, o.Segments = h.root, h.segments
		s, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Upload(ctx) }()
		synctest.Wait()
		test(t, s)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the loop ended with %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSegmentIsUploadedWhenItIsOldEnough(t *testing.T) {
	uploading(t, segmentHome(t), Options{SegmentAge: time.Minute}, func(t *testing.T, s *Store) {
		mustAppend(t, s, chunk("a", "1"))
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if got := s.Stats(); got.Uploaded != 0 || got.Owing != 1 {
			t.Errorf("before its time: %+v", got)
		}
		time.Sleep(uploadPeriod + time.Second)
		synctest.Wait()
		if got := s.Stats(); got.Uploaded != 1 || got.Owing != 0 {
			t.Errorf("after it: %+v", got)
		}
	})
}

func TestFullSegmentIsUploadedAtOnce(t *testing.T) {
	uploading(t, segmentHome(t), Options{SegmentBytes: 1000}, func(t *testing.T, s *Store) {
		mustAppend(t, s, chunk("a", strings.Repeat("x", 1000)))
		synctest.Wait()
		if got := s.Stats(); got.Uploaded != 1 || got.Owing != 0 {
			t.Errorf("stats %+v", got)
		}
	})
}

// A store that is down is asked again after a pause, however many segments are sealed meanwhile.
func TestObjectStoreThatIsDownIsLeftAlone(t *testing.T) {
	h := segmentHome(t)
	store := &shaky{Store: h.segments, down: true}
	h.segments = store
	uploading(t, h, Options{SegmentBytes: 90}, func(t *testing.T, s *Store) {
		for i := range 10 {
			mustAppend(t, s, chunk(fmt.Sprint(i), "a line"))
			synctest.Wait()
		}
		if got := s.Stats(); got.Unsent != 1 || got.Uploaded != 0 {
			t.Errorf("while it is down: %+v", got)
		}
		store.set(false, false)
		time.Sleep(uploadPause + uploadPeriod)
		synctest.Wait()
		if got := s.Stats(); got.Unsent != 1 || got.Uploaded != 10 || got.Owing != 0 {
			t.Errorf("when it is back: %+v", got)
		}
	})
}
