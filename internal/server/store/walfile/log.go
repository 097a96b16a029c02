package walfile

import (
	"encoding/binary"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	frameHeader = 24        // bytes before each page of a log
	limit       = 1<<17 - 1 // of what is held, in bytes: the default VFS takes no more in one write
	nowhere     = -1        // no write follows it
)

// appended is what SQLite has written to a log and the file may not have. Something is held only as long as the connection
// has the right to write: nobody else does meanwhile, and nobody reads what is not committed.
type appended struct {
	buffer  uintptr // limit bytes, freed with the file
	held    int32   // of them, written to the log's last bytes before end
	end     int64   // of the last write, or nowhere
	commits bool    // the last header belongs to the last frame of a commit
}

// write is SQLite's. It holds a write only if it follows the last one without a gap, which a page that is written again in
// its frame and a header with a new checksum do not, and only if more must follow before a commit is published: a header,
// and a page of a frame that does not commit. Where SQLite fills up a sector with the last frame again, in pieces of any
// size, all of these belong to a frame that commits.
//
// After an error nothing is held. SQLite does nothing with a transaction whose write to the log failed but rolling it
// back, and the next one begins at the end of the last commit again. Held further, a commit that was refused might get to
// the file after all.
func write(tls *libc.TLS, handle, data uintptr, size int32, offset int64) int32 {
	f := fileOf(handle)
	if size == frameHeader {
		f.commits = binary.BigEndian.Uint32(at[[frameHeader]byte](data)[4:]) != 0
	}
	rc := f.take(tls, handle, data, size, offset)
	if rc != sqlite3.SQLITE_OK {
		f.drop()
	}
	return rc
}

func (f *file) take(tls *libc.TLS, handle, data uintptr, size int32, offset int64) int32 {
	follows := offset == f.end
	if !follows || f.held+size > limit {
		if rc := f.handOver(tls, handle); rc != sqlite3.SQLITE_OK {
			return rc
		}
	}
	if !follows || size > limit {
		f.end = offset + int64(size)
		return f.pass(tls, handle, data, size, offset)
	}
	libc.Xmemcpy(tls, f.buffer+uintptr(f.held), data, libc.Tsize_t(size))
	f.held += size
	f.end += int64(size)
	if size != frameHeader && f.commits {
		return f.handOver(tls, handle)
	}
	return sqlite3.SQLITE_OK
}

// handOver writes what is held. Where it fails that stays, for a transaction goes on after a read that failed, and must
// not commit without it.
func (f *file) handOver(tls *libc.TLS, handle uintptr) int32 {
	if f.held == 0 {
		return sqlite3.SQLITE_OK
	}
	rc := f.pass(tls, handle, f.buffer, f.held, f.end-int64(f.held))
	if rc == sqlite3.SQLITE_OK {
		f.held = 0
	}
	return rc
}

func (f *file) pass(tls *libc.TLS, handle, data uintptr, size int32, offset int64) int32 {
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](f.beneath().FxWrite)(tls, handle, data, size, offset)
}

func (f *file) drop() {
	f.end -= int64(f.held)
	f.held = 0
}

// lockDatabase is SQLite's. What a connection that gives up the right to write still holds was rolled back; another may
// write other frames there from now on.
func lockDatabase(tls *libc.TLS, handle uintptr, offset, n, flags int32) int32 {
	f := fileOf(handle)
	if f.peer != 0 && offset == sqlite3.WAL_WRITE_LOCK && flags&sqlite3.SQLITE_SHM_UNLOCK != 0 {
		fileOf(f.peer).drop()
	}
	return function[func(*libc.TLS, uintptr, int32, int32, int32) int32](f.beneath().FxShmLock)(tls, handle, offset, n, flags)
}
