package segments

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"kici/internal/kit/blob"
)

// counted is an object store that counts how often it is asked for a list.
type counted struct {
	blob.Store
	lists   int
	listing func() // called while a list is on its way
}

func (c *counted) List(ctx context.Context, folder string) ([]string, error) {
	c.lists++
	got, err := c.Store.List(ctx, folder)
	if c.listing != nil {
		c.listing()
	}
	return got, err
}

// length is the number of lines of the log, as a reader finds it, 0 when there is no log.
func length(t *testing.T, s *Store) int64 {
	t.Helper()
	v, err := s.View(t.Context(), log)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	return v.Lines
}

// Who reads a log that nobody writes page by page, or looks again and again whether there is one, costs one list in a while.
func TestReadingOnAndOnListsOnce(t *testing.T) {
	objects := &counted{Store: openObjects(t)}
	uploading(t, objects, Options{Bytes: 1, Age: time.Minute}, func(t *testing.T, s *Store, say func(string)) {
		must := func(want int64, what string) {
			t.Helper()
			if got := length(t, s); got != want {
				t.Errorf("%s: %d lines, want %d", what, got, want)
			}
		}
		say("1")
		synctest.Wait()
		must(1, "while it is written")
		if err := s.writer(log).Close(); err != nil {
			t.Fatal(err)
		}
		objects.lists = 0
		for range 100 {
			must(1, "read by pages")
		}
		if objects.lists != 1 {
			t.Errorf("%d lists", objects.lists)
		}
		other, found, err := s.Continue(t.Context(), log, 1)
		if err != nil || found.End.Lines != 1 || objects.lists != 2 {
			t.Errorf("a writer goes by %d lists, at %+v, %v", objects.lists, found.End, err)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(listedFor)
		must(1, "a while later")
		if objects.lists != 3 {
			t.Errorf("a while later %d lists", objects.lists)
		}
		if err := s.Remove(t.Context(), "executions/r"); err != nil {
			t.Fatal(err)
		}
		must(0, "when it is deleted")
	})
}

// A segment that is uploaded while a list is on its way is in the folder for who looks before, and in the next list for all
// others: no reader sees a log become shorter.
func TestNoListHidesWhatIsUploadedMeanwhile(t *testing.T) {
	objects := &counted{Store: openObjects(t)}
	uploading(t, objects, Options{Bytes: 1 << 20, Age: time.Hour}, func(t *testing.T, s *Store, say func(string)) {
		say("1")
		if err := s.writer(log).Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(listedFor)
		synctest.Wait()
		uploads := 0
		objects.listing = func() {
			objects.listing = nil
			uploads++
			if err := s.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for range 3 {
			if got := length(t, s); got != 1 {
				t.Errorf("%d lines", got)
			}
		}
		if uploads != 1 || s.Stats().Uploaded != 1 {
			t.Errorf("%d uploads, %+v", uploads, s.Stats())
		}
	})
}
