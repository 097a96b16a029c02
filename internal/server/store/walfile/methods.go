package walfile

import (
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// The other methods of a log are the default VFS's, once the file has what was written to it.

// read lets no write follow: SQLite reads a frame before it writes its checksum again, behind which nothing may come.
func read(tls *libc.TLS, handle, data uintptr, size int32, offset int64) int32 {
	f := fileOf(handle)
	if rc := f.handOver(tls, handle); rc != sqlite3.SQLITE_OK {
		return rc
	}
	f.end = nowhere
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](f.beneath().FxRead)(tls, handle, data, size, offset)
}

func truncate(tls *libc.TLS, handle uintptr, size int64) int32 {
	f := fileOf(handle)
	if rc := f.handOver(tls, handle); rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[func(*libc.TLS, uintptr, int64) int32](f.beneath().FxTruncate)(tls, handle, size)
}

func syncLog(tls *libc.TLS, handle uintptr, flags int32) int32 {
	f := fileOf(handle)
	if rc := f.handOver(tls, handle); rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[func(*libc.TLS, uintptr, int32) int32](f.beneath().FxSync)(tls, handle, flags)
}

func fileSize(tls *libc.TLS, handle, size uintptr) int32 {
	f := fileOf(handle)
	if rc := f.handOver(tls, handle); rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[func(*libc.TLS, uintptr, uintptr) int32](f.beneath().FxFileSize)(tls, handle, size)
}

func fileControl(tls *libc.TLS, handle uintptr, operation int32, argument uintptr) int32 {
	f := fileOf(handle)
	if rc := f.handOver(tls, handle); rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[func(*libc.TLS, uintptr, int32, uintptr) int32](f.beneath().FxFileControl)(tls, handle, operation, argument)
}

// closeLog writes nothing: what is held now was not committed.
func closeLog(tls *libc.TLS, handle uintptr) int32 {
	f := fileOf(handle)
	fileOf(f.peer).peer = 0
	libc.Xfree(tls, f.buffer)
	return function[func(*libc.TLS, uintptr) int32](f.beneath().FxClose)(tls, handle)
}
