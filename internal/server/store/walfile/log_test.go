//go:build linux

package walfile

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
	"pgregory.net/rapid"
)

const pageSize = 512

// openedLog is a log that is written as SQLite does, and what its file would have without this package.
type openedLog struct {
	tls    *libc.TLS
	path   string
	handle uintptr
	memory uintptr // for what is written and read
	want   []byte
}

// place is the path of a log beside a database, whose mode it gets.
func place(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path + "-wal"
}

func openForTest(t *testing.T, path string) (l *openedLog, end func()) {
	t.Helper()
	tls := libc.NewTLS()
	size := libc.Tsize_t(behind + unsafe.Sizeof(file{}))
	database := libc.Xcalloc(tls, 1, size)
	l = &openedLog{tls: tls, path: path, handle: libc.Xcalloc(tls, 1, size), memory: libc.Xmalloc(tls, 1<<20)}
	cpath, err := libc.CString(path)
	if err != nil {
		t.Fatal(err)
	}
	rc := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](at[sqlite3.Tsqlite3_vfs](base).FxOpen)(
		tls, base, cpath, l.handle, sqlite3.SQLITE_OPEN_WAL|sqlite3.SQLITE_OPEN_READWRITE|sqlite3.SQLITE_OPEN_CREATE, 0)
	if rc == sqlite3.SQLITE_OK {
		rc = openLog(tls, l.handle, database)
	}
	if rc != sqlite3.SQLITE_OK {
		t.Fatalf("open %s: %d", path, rc)
	}
	return l, func() {
		if rc := l.methods().close(tls, l.handle); rc != sqlite3.SQLITE_OK || fileOf(database).peer != 0 {
			t.Errorf("close: %d, the database still has the log %x", rc, fileOf(database).peer)
		}
		for _, p := range []uintptr{database, l.handle, l.memory, cpath} {
			libc.Xfree(tls, p)
		}
		tls.Close()
	}
}

// called are the methods as SQLite calls them.
type called struct {
	read, write func(*libc.TLS, uintptr, uintptr, int32, int64) int32
	truncate    func(*libc.TLS, uintptr, int64) int32
	sync        func(*libc.TLS, uintptr, int32) int32
	fileSize    func(*libc.TLS, uintptr, uintptr) int32
	fileControl func(*libc.TLS, uintptr, int32, uintptr) int32
	close       func(*libc.TLS, uintptr) int32
}

func (l *openedLog) methods() called {
	m := at[sqlite3.Tsqlite3_io_methods](at[sqlite3.Tsqlite3_file](l.handle).FpMethods)
	return called{
		read:        function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](m.FxRead),
		write:       function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](m.FxWrite),
		truncate:    function[func(*libc.TLS, uintptr, int64) int32](m.FxTruncate),
		sync:        function[func(*libc.TLS, uintptr, int32) int32](m.FxSync),
		fileSize:    function[func(*libc.TLS, uintptr, uintptr) int32](m.FxFileSize),
		fileControl: function[func(*libc.TLS, uintptr, int32, uintptr) int32](m.FxFileControl),
		close:       function[func(*libc.TLS, uintptr) int32](m.FxClose),
	}
}

func (l *openedLog) bytes(size int) []byte { return unsafe.Slice(at[byte](l.memory), size) }

// write writes what is in memory.
func (l *openedLog) write(t rapid.TB, size, offset int) {
	if rc := l.methods().write(l.tls, l.handle, l.memory, int32(size), int64(offset)); rc != sqlite3.SQLITE_OK {
		t.Fatalf("write %d bytes at %d: %d", size, offset, rc)
	}
	if grow := offset + size - len(l.want); grow > 0 {
		l.want = append(l.want, make([]byte, grow)...)
	}
	copy(l.want[offset:], l.bytes(size))
}

func (l *openedLog) header(t rapid.TB, pagesOfDatabase, offset int) {
	_, _ = rand.Read(l.bytes(frameHeader))
	binary.BigEndian.PutUint32(l.bytes(frameHeader)[4:], uint32(pagesOfDatabase))
	l.write(t, frameHeader, offset)
}

func (l *openedLog) page(t rapid.TB, size, offset int) {
	_, _ = rand.Read(l.bytes(size))
	l.write(t, size, offset)
}

func (l *openedLog) frame(t rapid.TB, pagesOfDatabase, offset int) {
	l.header(t, pagesOfDatabase, offset)
	l.page(t, pageSize, offset+frameHeader)
}

// Spill appends frames of a transaction that goes on.
func (l *openedLog) Spill(t *rapid.T) {
	for range rapid.SampledFrom([]int{1, 2, 7, 300}).Draw(t, "frames") {
		l.frame(t, 0, len(l.want))
	}
}

func (l *openedLog) Commit(t *rapid.T) {
	for range rapid.IntRange(0, 3).Draw(t, "frames before") {
		l.frame(t, 0, len(l.want))
	}
	l.frame(t, 9, len(l.want))
	l.same(t)
}

// again is a place in what was written.
func (l *openedLog) again(t *rapid.T) int {
	if len(l.want) < frameHeader+pageSize {
		t.Skip("nothing is written yet")
	}
	return rapid.IntRange(0, len(l.want)-frameHeader-pageSize).Draw(t, "offset")
}

func (l *openedLog) WritePageAgain(t *rapid.T) {
	l.page(t, pageSize, l.again(t))
	l.same(t)
}

func (l *openedLog) WriteChecksumAgain(t *rapid.T) {
	offset := l.again(t)
	l.Read(t)
	l.header(t, rapid.IntRange(0, 1).Draw(t, "commits"), offset)
	l.same(t)
}

// FillSector appends the frame of a commit in pieces.
func (l *openedLog) FillSector(t *rapid.T) {
	l.frame(t, 9, len(l.want))
	for range rapid.IntRange(1, 3).Draw(t, "pieces") {
		l.page(t, rapid.SampledFrom([]int{1, 10, 14, 256, pageSize}).Draw(t, "size"), len(l.want))
		l.same(t)
	}
}

func (l *openedLog) Restart(t *rapid.T) {
	l.page(t, 32, 0)
	l.same(t)
	l.frame(t, 9, 32)
	l.same(t)
}

func (l *openedLog) Read(t *rapid.T) {
	size := min(len(l.want), 1<<20)
	if rc := l.methods().read(l.tls, l.handle, l.memory, int32(size), int64(len(l.want)-size)); rc != sqlite3.SQLITE_OK {
		t.Fatalf("read: %d", rc)
	}
	if !bytes.Equal(l.bytes(size), l.want[len(l.want)-size:]) {
		t.Fatal("what is read is not what was written")
	}
	l.same(t)
}

func (l *openedLog) Truncate(t *rapid.T) {
	size := rapid.IntRange(0, len(l.want)).Draw(t, "size") &^ 1 // the default VFS says 0 of a file of one byte
	if rc := l.methods().truncate(l.tls, l.handle, int64(size)); rc != sqlite3.SQLITE_OK {
		t.Fatalf("truncate: %d", rc)
	}
	l.want = l.want[:size]
	l.same(t)
}

func (l *openedLog) Sync(t *rapid.T) {
	if rc := l.methods().sync(l.tls, l.handle, sqlite3.SQLITE_SYNC_NORMAL); rc != sqlite3.SQLITE_OK {
		t.Fatalf("sync: %d", rc)
	}
	l.same(t)
}

func (l *openedLog) Size(t *rapid.T) {
	rc := l.methods().fileSize(l.tls, l.handle, l.memory)
	if size := *at[int64](l.memory); rc != sqlite3.SQLITE_OK || size != int64(len(l.want)) {
		t.Fatalf("size: %d of %d, error %d", size, len(l.want), rc)
	}
	l.same(t)
}

func (l *openedLog) Control(t *rapid.T) {
	if rc := l.methods().fileControl(l.tls, l.handle, sqlite3.SQLITE_FCNTL_LOCKSTATE, l.memory); rc != sqlite3.SQLITE_OK {
		t.Fatalf("control: %d", rc)
	}
	l.same(t)
}

// same is called after each action that leaves nothing held. It compares the file with what it would have without this package.
func (l *openedLog) same(t rapid.TB) {
	found, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(found, l.want) {
		t.Fatalf("the file has %d bytes, which are not the %d that were written", len(found), len(l.want))
	}
}

func TestTheFileIsAsWithoutIt(t *testing.T) {
	path := place(t)
	rapid.Check(t, func(rt *rapid.T) {
		_ = os.Remove(path)
		l, end := openForTest(t, path)
		defer end()
		rt.Repeat(map[string]func(*rapid.T){
			"spill": l.Spill, "commit": l.Commit, "write a page again": l.WritePageAgain,
			"write a checksum again": l.WriteChecksumAgain, "fill a sector": l.FillSector, "restart": l.Restart,
			"read": l.Read, "truncate": l.Truncate, "sync": l.Sync, "size": l.Size, "control": l.Control,
		})
	})
}

// A statement whose read fails may be undone alone, and its transaction go on to a commit.
func TestWhatCouldNotBeWrittenBeforeAReadIsWrittenBeforeTheCommit(t *testing.T) {
	watchDisk(t)
	l, end := openForTest(t, place(t))
	defer end()
	l.frame(t, 9, 0)
	l.frame(t, 0, len(l.want))
	diskFull(100, func() {
		if rc := l.methods().read(l.tls, l.handle, l.memory, 1, 0); rc != sqlite3.SQLITE_FULL {
			t.Errorf("read on a full disk: %d", rc)
		}
	})
	l.frame(t, 9, len(l.want))
	l.same(t)
}

// The transaction of a write that failed is rolled back. Nothing of it may follow.
func TestNothingOfACommitThatFailedIsWrittenLater(t *testing.T) {
	watchDisk(t)
	l, end := openForTest(t, place(t))
	defer end()
	l.frame(t, 9, 0)
	l.header(t, 9, len(l.want))
	before := l.want[:frameHeader+pageSize]
	diskFull(0, func() {
		if rc := l.methods().write(l.tls, l.handle, l.memory, pageSize, int64(len(l.want))); rc != sqlite3.SQLITE_FULL {
			t.Errorf("commit on a full disk: %d", rc)
		}
	})
	l.want = before
	if rc := l.methods().sync(l.tls, l.handle, sqlite3.SQLITE_SYNC_NORMAL); rc != sqlite3.SQLITE_OK {
		t.Fatalf("sync: %d", rc)
	}
	l.same(t)
}
