package segments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kici/internal/core/logline"
	"kici/internal/kit/blob"
)

const log = "executions/r/job-build/step-0.log"

// osFile is a segment as a file.
type osFile struct{ *os.File }

func (f osFile) Write(_ context.Context, p []byte) (int, error) { return f.File.Write(p) }

func (f osFile) Size() (int64, error) { return f.Seek(0, io.SeekEnd) }

// uploading runs the upload loop of a store in a bubble of its own time, and gives the writer of a log.
func uploading(t *testing.T, objects blob.Store, o Options, test func(t *testing.T, s *Store, say func(text string))) {
	t.Helper()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		root, err := os.OpenRoot(folder)
		if err != nil {
			t.Fatal(err)
		}
		o.Root, o.Objects, o.Log = root, objects, slog.New(slog.DiscardHandler)
		o.Create = func(name string) (File, error) {
			if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				return nil, err
			}
			f, err := root.Create(name)
			return osFile{f}, err
		}
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		w, found, err := s.Continue(t.Context(), log, 1)
		if err != nil {
			t.Fatal(err)
		}
		lines := found.End.Lines
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Upload(ctx) }()
		synctest.Wait()
		test(t, s, func(text string) {
			lines++
			line := logline.AppendText(logline.AppendHead(nil, 1), text)
			if _, err := w.Write(t.Context(), logline.AppendMark(line, logline.Mark{Chunk: fmt.Sprint(lines), Lines: lines})); err != nil {
				t.Fatal(err)
			}
		})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the loop ended with %v", err)
		}
		if err := errors.Join(w.Close(), root.Close()); err != nil {
			t.Error(err)
		}
	})
}

func openObjects(t *testing.T) blob.Store {
	t.Helper()
	s, err := blob.OpenFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSegmentIsUploadedWhenItIsOldEnough(t *testing.T) {
	uploading(t, openObjects(t), Options{Bytes: 1 << 20, Age: time.Minute}, func(t *testing.T, s *Store, say func(string)) {
		say("1")
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
	uploading(t, openObjects(t), Options{Bytes: 1000, Age: time.Minute}, func(t *testing.T, s *Store, say func(string)) {
		say(strings.Repeat("x", 1000))
		synctest.Wait()
		if got := s.Stats(); got.Uploaded != 1 || got.Owing != 0 {
			t.Errorf("stats %+v", got)
		}
	})
}

// shaky is an object store that fails while it is down.
type shaky struct {
	blob.Store
	mu   sync.Mutex
	down bool
}

func (s *shaky) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *shaky) Put(ctx context.Context, path string, r io.Reader) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return 0, errors.New("object store is down")
	}
	return s.Store.Put(ctx, path, r)
}

// A store that is down is asked again after a pause, however many segments are sealed meanwhile.
func TestObjectStoreThatIsDownIsLeftAlone(t *testing.T) {
	objects := &shaky{Store: openObjects(t), down: true}
	uploading(t, objects, Options{Bytes: 90, Age: time.Minute}, func(t *testing.T, s *Store, say func(string)) {
		for range 10 {
			say("a line")
			synctest.Wait()
		}
		if got := s.Stats(); got.Unsent != 1 || got.Uploaded != 0 {
			t.Errorf("while it is down: %+v", got)
		}
		objects.set(false)
		time.Sleep(uploadPause + uploadPeriod)
		synctest.Wait()
		if got := s.Stats(); got.Unsent != 1 || got.Uploaded != 10 || got.Owing != 0 {
			t.Errorf("when it is back: %+v", got)
		}
	})
}

// A segment that the loop seals between two chunks ends the file, not the writing: a broken write behind it cannot be taken
// back there any more.
func TestSealedSegmentTakesNothingBack(t *testing.T) {
	uploading(t, openObjects(t), Options{Bytes: 1, Age: time.Minute}, func(t *testing.T, s *Store, say func(string)) {
		say("1")
		w := s.writer(log)
		size, err := w.Size()
		if err != nil || size == 0 {
			t.Errorf("size %d, %v", size, err)
		}
		if err := w.Truncate(0); !errors.Is(err, errSealed) {
			t.Errorf("truncated: %v", err)
		}
		if _, err := w.Write(t.Context(), []byte("no mark\n")); err == nil {
			t.Error("took a chunk without a mark")
		}
		say("2")
		v, err := s.View(t.Context(), log)
		if err != nil || v.Lines != 2 || len(v.Parts) != 2 {
			t.Fatalf("%+v, %v", v, err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}
