package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/logs/index"
	"kici/internal/server/store"
)

// stored is a chunk that takes so many bytes in a log, of which it is the first.
func stored(id string, bytes int) Chunk {
	plain, _, _ := encode(nil, chunk(id, ""), id, index.End{}, 1<<40)
	return chunk(id, strings.Repeat("x", bytes-len(plain)))
}

// forms tells in which forms the build log is there: as a row, as a file.
func forms(t testing.TB, h home) (row, file bool) {
	t.Helper()
	err := h.db.Read().QueryRowContext(t.Context(), "SELECT EXISTS (SELECT 1 FROM short_logs)").Scan(&row)
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(h.root, buildLog))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return row, err == nil
}

func TestLogIsARowUntilItOutgrowsTheBounds(t *testing.T) {
	few := func(n int) (out []Chunk) {
		for i := range n {
			out = append(out, chunk(fmt.Sprint(i), fmt.Sprint("line ", i)))
		}
		return out
	}
	tests := []struct {
		name   string
		chunks []Chunk
		file   bool
	}{
		{"one chunk", few(1), false},
		{"as many as a row takes", few(shortChunks), false},
		{"one more", few(shortChunks + 1), true},
		{"as many bytes as a row takes", []Chunk{stored("a", shortBytes)}, false},
		{"one more", []Chunk{stored("a", shortBytes+1)}, true},
		{"the last byte by the second chunk", []Chunk{stored("a", 5000), stored("b", shortBytes-5000)}, false},
		{"one more by the second chunk", []Chunk{stored("a", 5000), stored("b", shortBytes-5000+1)}, true},
	}
	eachRow(t, func(t *testing.T, h home) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				h := h.anew(t)
				s := h.open(t, Options{})
				var want []string
				for _, c := range tt.chunks {
					mustAppend(t, s, c)
					want = append(want, c.Lines...)
				}
				for range 2 {
					if row, file := forms(t, h); row == tt.file || file != tt.file {
						t.Errorf("a row: %t, a file: %t, want it to be a file: %t", row, file, tt.file)
					}
					if diff := cmp.Diff(want, all(t, s, buildLog)); diff != "" {
						t.Error(diff)
					}
					s.Close()
					s = h.open(t, Options{})
					mustAppend(t, s, tt.chunks...)
				}
				if got := s.Stats().Replays; got != int64(len(tt.chunks)) {
					t.Errorf("%d chunks were known again, want %d", got, len(tt.chunks))
				}
			})
		}
	})
}

// requireWhole reads a log as a store does that has just been opened, sends all its chunks again and one more, and requires
// each line once.
func requireWhole(t *testing.T, h home, sent []Chunk, what string) {
	t.Helper()
	s := h.open(t, Options{})
	defer s.Close()
	var want []string
	for _, c := range sent {
		want = append(want, c.Lines...)
	}
	if diff := cmp.Diff(want, all(t, s, buildLog)); diff != "" {
		t.Fatalf("%s: %s", what, diff)
	}
	next := stored("next", shortBytes)
	mustAppend(t, s, append(sent, next)...)
	if got := s.Stats(); got.Replays != int64(len(sent)) || got.Chunks != 1 {
		t.Fatalf("%s: %+v", what, got)
	}
	if diff := cmp.Diff(append(want, next.Lines...), all(t, s, buildLog)); diff != "" {
		t.Fatalf("%s, sent again: %s", what, diff)
	}
	if row, file := forms(t, h); row || !file {
		t.Fatalf("%s, afterwards: a row: %t, a file: %t", what, row, file)
	}
}

// Wherever a server is killed while a log becomes a file, nothing is lost and nothing is there twice.
func TestKilledWhileALogBecomesAFile(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		sent := []Chunk{chunk("a", "1", "2"), chunk("b", "3"), chunk("c", "4")}
		s := h.open(t, Options{})
		mustAppend(t, s, sent...)
		text := whole(t, s)
		s.Close()
		more, _, _ := encode(nil, chunk("d", "5"), "d", index.End{Lines: 4}, 1<<40)
		killedWith := func(file []byte, row bool, sent []Chunk) {
			t.Helper()
			next := killed(t, h)
			mustExec(t, h.db, "DELETE FROM short_logs")
			if row {
				s := next.open(t, Options{})
				if err := s.rows.put(t.Context(), buildLog, text); err != nil {
					t.Fatal(err)
				}
				s.Close()
			}
			if file != nil {
				path := filepath.Join(next.root, buildLog)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, file, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			requireWhole(t, next, sent, fmt.Sprintf("a file of %d bytes, a row: %t", len(file), row))
		}
		killedWith(nil, true, sent)
		for size := 0; size <= len(text); size += 5 {
			killedWith(text[:size:size], true, sent)
		}
		killedWith(append([]byte{}, text...), true, sent)
		killedWith(make([]byte, len(text)), true, sent) // the machine lost its power
		for size := 0; size < len(more); size += 5 {
			killedWith(append(text[:len(text):len(text)], more[:size]...), false, sent)
		}
		killedWith(append(text[:len(text):len(text)], more...), false, append(sent, chunk("d", "5")))
		killedWith(append(text[:len(text):len(text)], more...), true, append(sent, chunk("d", "5")))
	})
}

// watchedFile calls do at every turn of a file.
type watchedFile struct {
	diskFile
	do func(what string) error
}

func (f watchedFile) Write(ctx context.Context, p []byte) (int, error) {
	half := len(p) / 2
	n, err := f.diskFile.Write(ctx, p[:half])
	if err = errors.Join(err, f.do("half")); err != nil {
		return n, err
	}
	more, err := f.diskFile.Write(ctx, p[half:])
	if err != nil {
		return n + more, err
	}
	return len(p), f.do("written")
}

func (f watchedFile) Sync() error { return errors.Join(f.do("sync"), f.diskFile.Sync()) }

// watch has do called at every turn of the files that are made.
func watch(s *Store, do func(what string) error) {
	s.openLog = func(name string, fresh bool) (diskFile, error) {
		if fresh {
			if err := do("open"); err != nil {
				return nil, err
			}
		}
		f, err := s.openForWriting(name, fresh)
		if err != nil {
			return nil, err
		}
		return watchedFile{f, do}, do("opened")
	}
}

// A reader that comes while a log becomes a file sees what was acknowledged, neither less nor more, whether it is told by
// the writer or finds out by itself.
func TestReadersWhileALogBecomesAFile(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		s, stranger := h.open(t, Options{}), h.open(t, Options{})
		var want []string
		seen := map[string]int{}
		watch(s, func(what string) error {
			seen[what]++
			if diff := cmp.Diff(want, all(t, s, buildLog)); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
			if got := all(t, stranger, buildLog); len(got) < len(want) || len(got) > len(want)+1 {
				t.Errorf("%s: a stranger reads %q, want %q", what, got, want)
			}
			return nil
		})
		for i := range shortChunks + 3 {
			mustAppend(t, s, chunk(fmt.Sprint(i), fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
		}
		if seen["open"] != 1 || seen["sync"] != 1 || seen["half"] != 4 {
			t.Errorf("it was read at %v", seen)
		}
	})
}

// Whatever fails while a log becomes a file, nothing of the chunk is in the log, and it can be sent again.
func TestFailureWhileALogBecomesAFile(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		for _, at := range []string{"open", "opened", "half", "written", "sync"} {
			t.Run(at, func(t *testing.T) {
				h := h.anew(t)
				s := h.open(t, Options{})
				failing := true
				watch(s, func(what string) error {
					if failing && what == at {
						return syscall.ENOSPC
					}
					return nil
				})
				mustAppend(t, s, chunk("a", "1"), chunk("b", "2"))
				large := stored("c", shortBytes)
				for range 2 {
					if err := s.Append(t.Context(), large); !errors.Is(err, ErrFull) {
						t.Fatalf("full disk: %v", err)
					}
					requireWholeIn(t, s, killed(t, h), chunk("a", "1"), chunk("b", "2"))
				}
				failing = false
				mustAppend(t, s, large, chunk("b", "2"))
				requireWholeIn(t, s, killed(t, h), chunk("a", "1"), chunk("b", "2"), large)
			})
		}
	})
}

// requireWholeIn requires the lines of chunks in a log that is open for writing, and for whoever opens it anew.
func requireWholeIn(t *testing.T, s *Store, h home, sent ...Chunk) {
	t.Helper()
	var want []string
	for _, c := range sent {
		want = append(want, c.Lines...)
	}
	for _, s := range []*Store{s, h.open(t, Options{})} {
		if diff := cmp.Diff(want, all(t, s, buildLog)); diff != "" {
			t.Error(diff)
		}
	}
}

// refuse has the database refuse to do a thing with rows of short logs, with PostgreSQL's code for it, until it is called off.
func refuse(t *testing.T, db *store.DB, what, code string) (callOff func()) {
	t.Helper()
	if db.Dialect == store.SQLite {
		mustExec(t, db, "CREATE TRIGGER refusal BEFORE "+what+" ON short_logs BEGIN SELECT RAISE(ABORT, 'refused'); END")
		return func() { mustExec(t, db, "DROP TRIGGER refusal") }
	}
	mustExec(t, db, "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '"+code+"'; END $$ LANGUAGE plpgsql")
	mustExec(t, db, "CREATE TRIGGER refusal BEFORE "+what+" ON short_logs FOR EACH ROW EXECUTE FUNCTION refuse()")
	return func() { mustExec(t, db, "DROP TRIGGER refusal ON short_logs") }
}

// A row that does not go keeps the log as it was, also when it did go and only the answer was lost: then the file is all
// there is, and is not begun again.
func TestRowThatDoesNotGo(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("answer lost %t", lost), func(t *testing.T) {
				h := h.anew(t)
				s := h.open(t, Options{})
				before, large := []Chunk{chunk("a", "1"), chunk("b", "2")}, stored("c", shortBytes)
				mustAppend(t, s, before...)
				callOff := refuse(t, h.db, "DELETE", "P0001")
				if err := s.Append(t.Context(), large); err == nil {
					t.Fatal("the row has gone")
				}
				requireWholeIn(t, s, h, before...)
				callOff()
				if lost {
					mustExec(t, h.db, "DELETE FROM short_logs")
				}
				requireWholeIn(t, s, h, before...)
				watch(s, func(what string) error { return errors.New("the file is begun again") })
				mustAppend(t, s, chunk("d", "3"), large)
				requireWholeIn(t, s, h, append(before, chunk("d", "3"), large)...)
			})
		}
	})
}

// fillUp lets a database have no room for another short log.
func fillUp(t *testing.T, db *store.DB) (empty func()) {
	t.Helper()
	if db.Dialect == store.Postgres {
		return refuse(t, db, "INSERT OR UPDATE", "53100")
	}
	mustExec(t, db, "CREATE TABLE ballast (data TEXT)")
	mustExec(t, db, "PRAGMA max_page_count = 1") // that is, no more than there are
	for size := 4000; size > 0; size /= 2 {
		for {
			err := db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO ballast (data) VALUES ($1)", strings.Repeat("x", size))
				return err
			})
			if store.IsFull(err) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return func() { mustExec(t, db, "PRAGMA max_page_count = 1000000") }
}

func TestFullDatabaseLeavesTheLogReadableAndConsistent(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		mustAppend(t, s, chunk("a", "1"))
		empty := fillUp(t, h.db)
		next := chunk("b", strings.Repeat("2", 5000))
		for range 2 {
			if err := s.Append(t.Context(), next); !errors.Is(err, ErrFull) {
				t.Fatalf("full database: %v", err)
			}
			requireWholeIn(t, s, h, chunk("a", "1"))
		}
		empty()
		mustAppend(t, s, next, chunk("a", "1"))
		requireWholeIn(t, s, h, chunk("a", "1"), next)
		if got := s.Stats(); got.Failed != 2 || got.Chunks != 2 || got.Replays != 1 {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestFilesFromBeforeAreReadAndGoOn(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		before := home{root: h.root}.open(t, Options{})
		mustAppend(t, before, chunk("a", "1"))
		before.Close()
		s := h.open(t, Options{})
		if diff := cmp.Diff([]string{"1"}, all(t, s, buildLog)); diff != "" {
			t.Error(diff)
		}
		mustAppend(t, s, chunk("a", "1"), chunk("b", "2"))
		requireWholeIn(t, s, h, chunk("a", "1"), chunk("b", "2"))
		if row, file := forms(t, h); row || !file {
			t.Errorf("a row: %t, a file: %t", row, file)
		}
	})
}

func TestReadingALongLogAsksNoDatabase(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		mustAppend(t, s, stored("a", shortBytes+1))
		s.Close()
		s = h.open(t, Options{})
		mustExec(t, h.db, "DROP TABLE short_logs")
		if got := all(t, s, buildLog); len(got) != 1 {
			t.Errorf("%d lines", len(got))
		}
	})
}

// The rows of a folder are found wherever the folder is, and by nobody else who shares the database.
func TestRowsGoWithTheirFolder(t *testing.T) {
	eachRow(t, func(t *testing.T, h home) {
		s := h.open(t, Options{})
		mustAppend(t, s, chunk("a", "1"))
		s.Close()
		moved := killed(t, h)
		if got := all(t, moved.open(t, Options{}), buildLog); len(got) != 1 {
			t.Errorf("where the folder was copied to: %q", got)
		}
		if h.db.Dialect == store.SQLite {
			return // its database lies in the folder
		}
		other := home{root: t.TempDir(), db: h.db}.open(t, Options{})
		if got := all(t, other, buildLog); len(got) != 0 {
			t.Errorf("another node's log: %q", got)
		}
		mustAppend(t, other, chunk("b", "2"))
		if diff := cmp.Diff([][]string{{"1"}, {"2"}}, [][]string{all(t, h.open(t, Options{}), buildLog), all(t, other, buildLog)}); diff != "" {
			t.Error(diff)
		}
	})
}
