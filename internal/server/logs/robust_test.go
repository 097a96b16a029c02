package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/logline"
)

func TestWaitFollowsALog(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), Options{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		type result struct {
			more bool
			err  error
		}
		results := make(chan result, 3)
		wait := func(ctx context.Context, line int64) {
			go func() {
				more, err := s.Wait(ctx, buildLog, line)
				results <- result{more, err}
			}()
		}
		wait(t.Context(), 0)
		wait(t.Context(), 0)
		synctest.Wait()
		if len(results) != 0 {
			t.Fatal("Wait returned without a line")
		}
		mustAppend(t, s, chunk("a", "1"))
		for range 2 {
			if r := <-results; !r.more || r.err != nil {
				t.Errorf("after an append: %+v", r)
			}
		}
		wait(t.Context(), 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wait(ctx, 1)
		if r := <-results; r.more || !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("after its time: %+v", r)
		}
		mustAppend(t, s, chunk("b", "2"))
		if r := <-results; !r.more || r.err != nil {
			t.Errorf("after another append: %+v", r)
		}
		if more, err := s.Wait(t.Context(), buildLog, 0); !more || err != nil {
			t.Errorf("a line that is there: %v %v", more, err)
		}
		if len(s.waiters) != 0 {
			t.Errorf("%d waiters left", len(s.waiters))
		}
	})
}

// A follower of any kind of log is woken by each line, also while the log takes another form.
func TestWaitFollowsEveryKindOfLog(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		for i := range int64(2 * shortChunks) {
			woken := make(chan error, 1)
			go func() {
				more, err := s.Wait(t.Context(), buildLog, i)
				if err == nil && !more {
					err = fmt.Errorf("there is no line %d", i)
				}
				woken <- err
			}()
			mustAppend(t, s, chunk(fmt.Sprint(i), fmt.Sprint(i)))
			if err := <-woken; err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestOpenFilesAreBounded(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{MaxOpen: 3})
		opened := countOpen(s)
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				for n := range 5 {
					c := chunk(fmt.Sprint(n), fmt.Sprint(n))
					c.StepIndex = i
					if err := s.Append(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if s.awake > 3 || len(s.streams) > 3*knownPerOpen || s.idle.Len() != s.awake || s.resting.Len()+s.awake != len(s.streams) {
			t.Errorf("%d awake, %d idle, %d resting of %d streams", s.awake, s.idle.Len(), s.resting.Len(), len(s.streams))
		}
		if n, most := opened.now, opened.most; n > 3 || most > 3+1 { // one is opened before another is closed
			t.Errorf("%d files are open, at most %d were", n, most)
		}
		for i := range 40 {
			if got := all(t, s, Path("r", "build", i)); strings.Join(got, "") != "01234" {
				t.Errorf("step %d: %q", i, got)
			}
		}
	})
}

// openFiles counts the files that a store has open for writing, and how often one was read.
type openFiles struct {
	mu        sync.Mutex
	now, most int
	read      int
}

// countedFile tells when it is read and closed.
type countedFile struct {
	diskFile
	of *openFiles
}

func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.of.read++
	return f.diskFile.ReadAt(p, off)
}

func (f countedFile) Close() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.of.now--
	return f.diskFile.Close()
}

func countOpen(s *Store) *openFiles {
	of := &openFiles{}
	s.openLog = func(name string, fresh bool) (diskFile, error) {
		f, err := s.openForWriting(name, fresh)
		if err != nil {
			return nil, err
		}
		of.mu.Lock()
		defer of.mu.Unlock()
		of.now++
		of.most = max(of.most, of.now)
		return countedFile{f, of}, nil
	}
	return of
}

// More logs than may be open take turns. Each goes on where it was: none is read back, a replay is known, no segment ends
// because of it.
func TestLogsThatTakeTurnsAreNotReadAgain(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		const logs, turns = 2 * knownPerOpen, 3 * shortChunks
		s := h.open(t, Options{MaxOpen: 2, SegmentBytes: 1 << 20})
		opened := countOpen(s)
		for turn := range turns {
			for i := range logs {
				for _, id := range []int{turn, max(0, turn-1)} {
					c := chunk(fmt.Sprint(id), fmt.Sprint(id))
					c.StepIndex = i
					mustAppend(t, s, c)
				}
			}
		}
		if got := s.Stats(); got.Chunks != logs*turns || got.Replays != logs*turns {
			t.Errorf("%+v", got)
		}
		if opened.read > 0 || opened.now > 2 {
			t.Errorf("files were read %d times, %d are open", opened.read, opened.now)
		}
		for i := range logs {
			if got := all(t, s, Path("r", "build", i)); len(got) != turns {
				t.Errorf("step %d: %q", i, got)
			}
		}
		flush(t, s)
		if got := s.Stats(); h.segments != nil && got.Uploaded != logs {
			t.Errorf("%d segments of %d logs", got.Uploaded, logs)
		}
	})
}

// A file that goes while its log rests is begun again, as one that goes while it is open.
func TestLogWhoseFileGoesWhileItRests(t *testing.T) {
	s := openAt(t, Options{Root: t.TempDir(), MaxOpen: 1})
	other := chunk("a", "other")
	other.StepIndex = 1
	mustAppend(t, s, chunk("a", "1"), other)
	if err := os.Remove(filepath.Join(s.root.Name(), buildLog)); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, chunk("b", "2"))
	if diff := cmp.Diff([]string{"2"}, all(t, s, buildLog)); diff != "" {
		t.Error(diff)
	}
}

// fullFile is a file on a disk that takes so many bytes more.
type fullFile struct {
	diskFile
	room   *int
	nocuts bool // taking a write back fails, too
}

func (f fullFile) Write(ctx context.Context, p []byte) (int, error) {
	if len(p) <= *f.room {
		*f.room -= len(p)
		return f.diskFile.Write(ctx, p)
	}
	n, _ := f.diskFile.Write(ctx, p[:*f.room])
	return n, &fs.PathError{Op: "write", Path: "step-0.log", Err: syscall.ENOSPC}
}

func (f fullFile) Truncate(size int64) error {
	if f.nocuts {
		return syscall.EIO
	}
	return f.diskFile.Truncate(size)
}

func TestFullDiskLeavesTheLogReadableAndConsistent(t *testing.T) {
	for _, nocuts := range []bool{false, true} {
		s := openAt(t, Options{Root: t.TempDir()})
		room, blocked := 250, nocuts
		s.openLog = func(name string, fresh bool) (diskFile, error) {
			f, err := s.openForWriting(name, fresh)
			return fullFile{diskFile: f, room: &room, nocuts: blocked}, err
		}
		mustAppend(t, s, chunk("a", "1"))
		err := s.Append(t.Context(), chunk("b", "2", "3", "4"))
		if !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space") {
			t.Fatalf("full disk: %v", err)
		}
		if diff := cmp.Diff([]string{"1"}, all(t, s, buildLog)); diff != "" {
			t.Error(diff)
		}
		room, blocked = 10_000, false
		mustAppend(t, s, chunk("b", "2", "3", "4"), chunk("a", "1"))
		if diff := cmp.Diff([]string{"1", "2", "3", "4"}, all(t, s, buildLog)); diff != "" {
			t.Error(diff)
		}
		s.Close()
	}
}

func TestForeignFileIsNoLog(t *testing.T) {
	root := t.TempDir()
	s := openAt(t, Options{Root: root})
	os.MkdirAll(filepath.Dir(filepath.Join(root, buildLog)), 0o700)
	os.WriteFile(filepath.Join(root, buildLog), []byte(strings.Repeat("not ours\n", 100)), 0o600)
	if got := all(t, s, buildLog); len(got) != 0 {
		t.Errorf("read %q", got)
	}
}

// FuzzTail writes chunks, then anything at all behind them: the chunks stay and the log goes on.
func FuzzTail(f *testing.F) {
	f.Add(2, []byte("torn"))
	f.Add(0, []byte(`{"ts":"x","meta":{"chunk":"c","lines":9}}`+"\n"))
	f.Add(1, []byte("\n\n\x00\x00"))
	f.Fuzz(func(t *testing.T, chunks int, garbage []byte) {
		for line := range strings.SplitSeq(string(garbage), "\n") {
			if _, ok := logline.ReadMark([]byte(line)); ok {
				t.Skip("a mark")
			}
		}
		root := t.TempDir()
		s := openAt(t, Options{Root: root})
		want := []string{}
		for i := range min(max(chunks, 0), 5) {
			text := fmt.Sprintf("%d %s", i, strings.ToValidUTF8(string(garbage), "\uFFFD"))
			mustAppend(t, s, chunk(fmt.Sprint(i), text))
			want = append(want, text)
		}
		s.Close()
		file := filepath.Join(root, buildLog)
		os.MkdirAll(filepath.Dir(file), 0o700)
		log, _ := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		log.Write(garbage)
		log.Close()
		s = openAt(t, Options{Root: root})
		if diff := cmp.Diff(want, all(t, s, buildLog)); diff != "" {
			t.Fatal(diff)
		}
		mustAppend(t, s, chunk("next", "next"))
		if diff := cmp.Diff(append(want, "next"), all(t, s, buildLog)); diff != "" {
			t.Fatal(diff)
		}
	})
}
