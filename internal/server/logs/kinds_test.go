package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/kit/blob"
	"kici/internal/kit/blob/blobtest"
	"kici/internal/server/logs/segments"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// home is where a store's logs lie over several lives of it.
type home struct {
	root     string
	db       *store.DB  // nil for files from the beginning
	segments blob.Store // nil for rows and files
	objects  string     // folder of the segments when they are files
}

// open opens the store of a home. Segments are small, so that a test has many.
func (h home) open(t testing.TB, o Options) *Store {
	t.Helper()
	o.Root, o.DB, o.Segments = h.root, h.db, h.segments
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 300
	}
	return openAt(t, o)
}

// anew is the home of another test without any log. A database is emptied, since one of its own would take longer.
func (h home) anew(t testing.TB) home {
	t.Helper()
	h.root = t.TempDir()
	if h.db != nil {
		mustExec(t, h.db, "DELETE FROM short_logs")
	}
	return h
}

// homes are the ways to keep logs.
var homes = map[string]func(t testing.TB) home{
	"files":           func(t testing.TB) home { return home{root: t.TempDir()} },
	"rows":            func(t testing.TB) home { return home{root: t.TempDir(), db: storetest.SQLite(t)} },
	"PostgreSQL rows": func(t testing.TB) home { return home{root: t.TempDir(), db: storetest.Postgres(t)} },
	"segments": func(t testing.TB) home {
		objects := t.TempDir()
		return home{root: t.TempDir(), segments: openObjects(t, objects), objects: objects}
	},
	"S3": func(t testing.TB) home {
		bucket, err := blob.OpenS3(t.Context(), blob.S3Options{Bucket: blobtest.Bucket, Endpoint: blobtest.ObjectStore(t), Prefix: "kici-logs"})
		if err != nil {
			t.Fatal(err)
		}
		return home{root: t.TempDir(), segments: bucket}
	},
}

func openObjects(t testing.TB, folder string) blob.Store {
	t.Helper()
	s, err := blob.OpenFiles(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// eachHome runs a test on every way to keep logs.
func eachHome(t *testing.T, test func(t *testing.T, h home)) {
	eachOf(t, test, "files", "rows", "PostgreSQL rows", "segments", "S3")
}

// eachWhole runs a test on every way to keep logs without segments.
func eachWhole(t *testing.T, test func(t *testing.T, h home)) {
	eachOf(t, test, "files", "rows", "PostgreSQL rows")
}

// eachRow runs a test on short logs in every database.
func eachRow(t *testing.T, test func(t *testing.T, h home)) {
	eachOf(t, test, "rows", "PostgreSQL rows")
}

func eachOf(t *testing.T, test func(t *testing.T, h home), names ...string) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) { test(t, homes[name](t)) })
	}
}

func flush(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func segmentHome(t testing.TB) home { return homes["segments"](t) }

// Whether a log is a file, a row, a file that was a row, or segments, here or uploaded or both, equal cursors give equal pages.
func TestEqualCursorsGiveEqualPages(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		file, other := homes["files"](t).open(t, Options{}), h.open(t, Options{})
		for i := range 60 {
			c := chunk(fmt.Sprint(i), fmt.Sprint(i, strings.Repeat(" text", i%7)), "ä\x1b[1mb", "")
			mustAppend(t, file, c)
			mustAppend(t, other, c)
			if i == 30 {
				flush(t, other)
			}
			if i == shortChunks-1 || i == shortChunks || i == 59 {
				compareReading(t, file, other)
			}
		}
		if got := other.Stats(); h.segments != nil && (got.Uploaded < 10 || got.Owing != 1) {
			t.Fatalf("the log is not mixed: %+v", got)
		}
	})
}

// compareReading reads two logs of three lines a chunk in every way.
func compareReading(t *testing.T, want, got *Store) {
	t.Helper()
	all := whole(t, want)
	content, err := got.Open(t.Context(), buildLog)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	for from := 0; from < len(all); from += 7 {
		part := make([]byte, min(from%900+1, len(all)-from))
		if n, err := content.ReadAt(part, int64(from)); n < len(part) || !bytes.Equal(part, all[from:from+n]) {
			t.Fatalf("%d bytes from %d: %q, %v", len(part), from, part[:n], err)
		}
	}
	_, total, _ := want.Tail(t.Context(), buildLog, 1)
	for line := range total + 1 {
		limit := int(line%40) + 1
		a, totalA, nextA, errA := want.Lines(t.Context(), buildLog, line, limit)
		b, totalB, nextB, errB := got.Lines(t.Context(), buildLog, line, limit)
		if diff := cmp.Diff(a, b); diff != "" || totalA != totalB || nextA != nextB || errors.Join(errA, errB) != nil {
			t.Fatalf("Lines(%d, %d): %v %s", line, limit, errors.Join(errA, errB), diff)
		}
	}
	a, b := all, whole(t, got)
	file, err := os.ReadFile(filepath.Join(want.root.Name(), buildLog))
	if err != nil || !bytes.Equal(a, file) || !bytes.Equal(b, file) {
		t.Errorf("the whole logs have %d and %d bytes, the file %d, %v", len(a), len(b), len(file), err)
	}
}

// whole is all of a log as it is stored.
func whole(t testing.TB, s *Store) []byte {
	t.Helper()
	content, err := s.Open(t.Context(), buildLog)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	raw, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestSegmentsAreUploadedAndLeaveTheFolder(t *testing.T) {
	h := segmentHome(t)
	s := h.open(t, Options{})
	for i := range 9 {
		mustAppend(t, s, chunk(fmt.Sprint(i), fmt.Sprint(i)))
	}
	flush(t, s)
	objects, err := h.segments.List(t.Context(), buildLog)
	if err != nil || len(objects) != 3 || !strings.HasPrefix(objects[0], buildLog+"/seg-000001-") || !strings.HasPrefix(objects[2], buildLog+"/seg-000003-") {
		t.Fatalf("%q, %v", objects, err)
	}
	if left := localFiles(t, h.root); len(left) != 0 {
		t.Errorf("left in the folder: %q", left)
	}
	if got := strings.Join(all(t, s, buildLog), ""); got != "012345678" {
		t.Errorf("read %q", got)
	}
	mustAppend(t, s, chunk("3", "3"), chunk("9", "9")) // a replay and a chunk that begins the next segment
	if got := strings.Join(all(t, s, buildLog), ""); got != "0123456789" {
		t.Errorf("read %q", got)
	}
	if want := (Stats{Chunks: 10, Replays: 1, Stats: segments.Stats{Uploaded: 3, Owing: 1}, Bytes: s.Stats().Bytes}); s.Stats() != want {
		t.Errorf("stats %+v, want %+v", s.Stats(), want)
	}
}

// localFiles are the files of logs below a root.
func localFiles(t testing.TB, root string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, runsFolder), func(name string, entry os.DirEntry, err error) error {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err == nil {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// killed copies what a kill would leave: the files, without any word of the process.
func killed(t testing.TB, h home) home {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(h.root)); err != nil {
		t.Fatal(err)
	}
	return home{root, h.db, h.segments, h.objects}
}

// Whatever part of a chunk a killed server left in its newest segment, every acknowledged line is read after the restart,
// before and after the upload, and the chunk can be sent again.
func TestTornSegmentLosesNothing(t *testing.T) {
	h := segmentHome(t)
	s := h.open(t, Options{})
	mustAppend(t, s, chunk("a", "1", "2"), chunk("b", "3"), chunk("c", "4"))
	flush(t, s)
	mustAppend(t, s, chunk("d", "5"), chunk("e", "6"))
	active := onlySegment(t, h)
	before, _ := os.Stat(filepath.Join(h.root, buildLog, active))
	mustAppend(t, s, chunk("f", "7"))
	after, err := os.Stat(filepath.Join(h.root, buildLog, active))
	if err != nil {
		t.Fatal(err)
	}
	for size := before.Size(); size < after.Size(); size += 3 {
		next := killed(t, h)
		objects := t.TempDir() // each attempt has the object store as it was
		if err := os.CopyFS(objects, os.DirFS(h.objects)); err != nil {
			t.Fatal(err)
		}
		next.segments = openObjects(t, objects)
		if err := os.Truncate(filepath.Join(next.root, buildLog, active), size); err != nil {
			t.Fatal(err)
		}
		s := next.open(t, Options{})
		if got := strings.Join(all(t, s, buildLog), ""); got != "123456" {
			t.Fatalf("torn at %d: %q", size, got)
		}
		if size%2 == 0 {
			flush(t, s)
		}
		mustAppend(t, s, chunk("e", "6"), chunk("f", "7"), chunk("a", "1", "2"))
		flush(t, s)
		if got := strings.Join(all(t, s, buildLog), ""); got != "1234567" || s.Stats().Replays != 2 {
			t.Fatalf("torn at %d, sent again: %q, %+v", size, got, s.Stats())
		}
		s.Close()
	}
}

// onlySegment is the name of the only segment of the build log in the data folder.
func onlySegment(t testing.TB, h home) string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(h.root, buildLog))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return list[0].Name()
}

// shaky is an object store that fails while it is down.
type shaky struct {
	blob.Store
	mu   sync.Mutex
	down bool
	lost bool // what is put arrives, and the answer is lost
}

var errDown = errors.New("object store is down")

func (s *shaky) set(down, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.lost = down, lost
}

func (s *shaky) Put(ctx context.Context, path string, r io.Reader) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return 0, errDown
	}
	n, err := s.Store.Put(ctx, path, r)
	if s.lost {
		err = errDown
	}
	return n, err
}

// An object store that is down costs nothing: chunks are taken, read and kept, and go up when it is back, also when an
// upload arrived whose answer was lost, and also through a restart.
func TestObjectStoreThatIsDown(t *testing.T) {
	h := segmentHome(t)
	store := &shaky{Store: h.segments}
	h.segments = store
	s := h.open(t, Options{})
	want := ""
	for i := range 40 {
		if i == 10 {
			store.set(true, false)
		}
		if i == 20 {
			store.set(false, true)
		}
		if i == 30 {
			h = killed(t, h)
			s = h.open(t, Options{})
		}
		mustAppend(t, s, chunk(fmt.Sprint(i), fmt.Sprint(i, ";")))
		want += fmt.Sprint(i, ";")
		if err := s.Flush(t.Context()); (err != nil) != (i >= 10) || err != nil && !errors.Is(err, errDown) {
			t.Fatalf("flush: %v", err)
		}
		if got := strings.Join(all(t, s, buildLog), ""); got != want {
			t.Fatalf("after chunk %d: %q", i, got)
		}
	}
	store.set(false, false)
	flush(t, s)
	if left := localFiles(t, h.root); len(left) != 0 || s.Stats().Owing != 0 {
		t.Errorf("left in the folder: %q, %+v", left, s.Stats())
	}
	if got := strings.Join(all(t, s, buildLog), ""); got != want {
		t.Errorf("read %q", got)
	}
}

// A server whose agent went over to another one uploads what it had acknowledged when it is back. Nothing of either is
// written over, and all of it is read.
func TestTwoServersWriteOneLog(t *testing.T) {
	synctest.Test(t, testTwoServers)
}

func testTwoServers(t *testing.T) {
	h := segmentHome(t)
	first := h.open(t, Options{})
	mustAppend(t, first, chunk("a", "1"))
	flush(t, first)
	mustAppend(t, first, chunk("b", "2"))
	time.Sleep(time.Millisecond) // segments of one number are in the order of their birth
	second := home{root: t.TempDir(), segments: h.segments}.open(t, Options{})
	mustAppend(t, second, chunk("c", "3"))
	flush(t, second)
	mustAppend(t, second, chunk("d", "4"))
	flush(t, second)
	flush(t, first)
	third := home{root: t.TempDir(), segments: h.segments}.open(t, Options{})
	if diff := cmp.Diff([]string{"1", "2", "3", "4"}, all(t, third, buildLog)); diff != "" {
		t.Error(diff)
	}
	for i := range int64(4) {
		lines, _, _, err := third.Lines(t.Context(), buildLog, i, 1)
		if got := messages(t, lines); err != nil || len(got) != 1 || got[0] != fmt.Sprint(i+1) {
			t.Errorf("line %d: %q, %v", i, got, err)
		}
	}
	mustAppend(t, third, chunk("e", "5"), chunk("d", "4"))
	if diff := cmp.Diff([]string{"1", "2", "3", "4", "5"}, all(t, third, buildLog)); diff != "" {
		t.Error(diff)
	}
}

// Whatever a log is while it is read, reading never goes back: what was shown once is shown again.
func TestReadersAndWritersOfManyLogs(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		const logs, chunks = 6, 2 * shortChunks
		s := h.open(t, Options{MaxOpen: 2})
		var writing, reading sync.WaitGroup
		done := make(chan struct{})
		for i := range logs {
			writing.Go(func() {
				for n := range chunks {
					c := chunk(fmt.Sprint(n), fmt.Sprint(n))
					c.StepIndex = i
					if err := s.Append(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
			})
			reading.Go(func() {
				for had := 0; ; {
					lines, _, err := s.Tail(t.Context(), Path("r", "build", i), chunks)
					if err != nil || len(lines) < had || len(lines) > 0 && !strings.Contains(lines[len(lines)-1], fmt.Sprintf(`"msg":"%d"`, len(lines)-1)) {
						t.Errorf("step %d: %d lines after %d, %v", i, len(lines), had, err)
						return
					}
					had = len(lines)
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		writing.Wait()
		close(done)
		reading.Wait()
		for i := range logs {
			if got := all(t, s, Path("r", "build", i)); len(got) != chunks {
				t.Errorf("step %d: %q", i, got)
			}
		}
	})
}

// Reading goes on while segments are sealed, uploaded and taken away under the reader.
func TestReadingWhileSegmentsMove(t *testing.T) {
	s := segmentHome(t).open(t, Options{SegmentBytes: 250})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if err := s.Flush(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i := range 200 {
		mustAppend(t, s, chunk(fmt.Sprint(i), fmt.Sprint(i)))
		lines, total, _, err := s.Lines(t.Context(), buildLog, int64(max(0, i-5)), 10)
		if err != nil || total != int64(i+1) || len(lines) != min(i+1, 6) {
			t.Fatalf("after %d chunks: %d of %d lines, %v", i+1, len(lines), total, err)
		}
	}
	close(done)
	wg.Wait()
	if got := all(t, s, buildLog); len(got) != 200 {
		t.Errorf("%d lines", len(got))
	}
}

// A log that was begun before there was an object store goes on as it was.
func TestLogThatWasBegunWithoutSegmentsGoesOnWithoutThem(t *testing.T) {
	eachWhole(t, func(t *testing.T, h home) {
		before := h.open(t, Options{})
		mustAppend(t, before, chunk("a", "1"))
		before.Close()
		objects := t.TempDir()
		with := home{h.root, h.db, openObjects(t, objects), objects}
		s := with.open(t, Options{})
		want := []string{"1"}
		for i := range shortChunks + 1 {
			if diff := cmp.Diff(want, all(t, s, buildLog)); diff != "" {
				t.Error(diff)
			}
			mustAppend(t, s, chunk("a", "1"), chunk(fmt.Sprint(i), fmt.Sprint("then ", i)))
			want = append(want, fmt.Sprint("then ", i))
			flush(t, s)
			if i == 3 {
				s.Close()
				s = with.open(t, Options{})
			}
		}
		if diff := cmp.Diff(want, all(t, s, buildLog)); diff != "" || s.Stats().Uploaded != 0 {
			t.Errorf("uploaded %d: %s", s.Stats().Uploaded, diff)
		}
		other := chunk("a", "1")
		other.StepIndex = 1
		mustAppend(t, s, other)
		flush(t, s)
		if got := all(t, s, Path("r", "build", 1)); len(got) != 1 || s.Stats().Uploaded != 1 {
			t.Errorf("a log that was begun since: %q, uploaded %d", got, s.Stats().Uploaded)
		}
	})
}

func TestDamagedObjectIsAnError(t *testing.T) {
	h := segmentHome(t)
	s := h.open(t, Options{})
	mustAppend(t, s, chunk("a", "1"))
	flush(t, s)
	objects, err := h.segments.List(t.Context(), buildLog)
	if err != nil || len(objects) != 1 {
		t.Fatal(objects, err)
	}
	if _, err := h.segments.Put(t.Context(), objects[0], strings.NewReader("short\n")); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.Lines(t.Context(), buildLog, 0, 1); err == nil || !strings.Contains(err.Error(), path.Base(objects[0])) {
		t.Errorf("damaged: %v", err)
	}
	if err := h.segments.Delete(t.Context(), objects[0]); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.Lines(t.Context(), buildLog, 0, 1); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("gone: %v", err)
	}
}

// A job may be called anything; its log is found again and kept apart from all others.
func TestLogsOfJobsWithAnyName(t *testing.T) {
	eachHome(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		names := []string{"test (linux, 1.0)", "a/b", "a+b", "é&?#=%2F", "..", strings.Repeat("é", 200), "a\nb\x00c"}
		for _, name := range names {
			c := chunk("a", name)
			c.JobName = name
			mustAppend(t, s, c)
		}
		flush(t, s)
		s.Close()
		s = h.open(t, Options{})
		for _, name := range names {
			if diff := cmp.Diff([]string{name}, all(t, s, Path("r", name, 0))); diff != "" {
				t.Errorf("%q: %s", name, diff)
			}
		}
		if h.segments != nil {
			if objects, err := h.segments.List(t.Context(), runFolder("r")); err != nil || len(objects) != len(names) {
				t.Errorf("%d objects, %v", len(objects), err)
			}
		}
	})
}
