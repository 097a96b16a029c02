// Package walfile makes SQLite write its write-ahead log with few system calls.
//
// SQLite writes each frame of the log with two calls, 24 bytes and a page, and a commit has dozens of frames. The VFS of
// this package is the default one, except that it collects what is appended to a log and writes it at once, at the latest
// with the page that completes the commit: before SQLite publishes it. So the file has what it would have without this
// package whenever anybody looks, and a killed process loses only what was not committed.
package walfile

import (
	"fmt"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

const name = "walfile"

// VFS gives the name that a connection asks for with "vfs=".
var VFS = sync.OnceValues(func() (string, error) { return name, register() })

// The default VFS, and where in a file of ours that which we add to it begins. They are set once, by register.
var (
	base   uintptr
	behind uintptr
)

// file stands behind the default VFS's own part of a file, in memory that SQLite allocates: it must not hold pointers to
// what Go allocates.
type file struct {
	methods sqlite3.Tsqlite3_io_methods // what SQLite calls
	base    uintptr                     // the methods of the default VFS
	peer    uintptr                     // of a log its database, of a database its log, 0 while that is not open
	appended
}

func register() error {
	tls := libc.NewTLS()
	defer tls.Close()
	if base = sqlite3.Xsqlite3_vfs_find(tls, 0); base == 0 {
		return fmt.Errorf("register SQLite VFS %s: there is no default one to wrap", name)
	}
	cname, err := libc.CString(name)
	if err != nil {
		return fmt.Errorf("register SQLite VFS %s: %w", name, err)
	}
	own := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	if own == 0 {
		return fmt.Errorf("register SQLite VFS %s: out of memory", name)
	}
	vfs := at[sqlite3.Tsqlite3_vfs](own)
	*vfs = *at[sqlite3.Tsqlite3_vfs](base)
	behind = (uintptr(vfs.FszOsFile) + 7) &^ 7
	vfs.FszOsFile = int32(behind + unsafe.Sizeof(file{}))
	vfs.FzName = cname
	vfs.FxOpen = pointer(open)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, own, 0); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("register SQLite VFS %s: error %d", name, rc)
	}
	return nil
}

// open opens every file as the default VFS does, and puts itself between SQLite and two kinds of them.
func open(tls *libc.TLS, _, path, handle uintptr, flags int32, outFlags uintptr) int32 {
	rc := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](
		at[sqlite3.Tsqlite3_vfs](base).FxOpen)(tls, base, path, handle, flags, outFlags)
	if rc != sqlite3.SQLITE_OK {
		return rc
	}
	switch {
	case flags&sqlite3.SQLITE_OPEN_WAL != 0:
		return openLog(tls, handle, sqlite3.Xsqlite3_database_file_object(tls, path))
	case flags&sqlite3.SQLITE_OPEN_MAIN_DB != 0:
		openDatabase(handle)
	}
	return rc
}

func openDatabase(handle uintptr) {
	f := wrap(handle)
	if f.methods.FiVersion >= 2 { // else it has no log that others read
		f.methods.FxShmLock = pointer(lockDatabase)
	}
}

func openLog(tls *libc.TLS, handle, database uintptr) int32 {
	buffer := libc.Xmalloc(tls, limit)
	if buffer == 0 {
		return sqlite3.SQLITE_NOMEM // SQLite closes what it cannot use
	}
	f := wrap(handle)
	f.appended = appended{buffer: buffer, end: nowhere}
	f.peer = database
	fileOf(database).peer = handle
	m := &f.methods
	m.FiVersion = 1 // no view of the file's memory, which would not show what is held
	m.FxClose = pointer(closeLog)
	m.FxRead = pointer(read)
	m.FxWrite = pointer(write)
	m.FxTruncate = pointer(truncate)
	m.FxSync = pointer(syncLog)
	m.FxFileSize = pointer(fileSize)
	m.FxFileControl = pointer(fileControl)
	return sqlite3.SQLITE_OK
}

// wrap makes SQLite call the methods in the file, which are the default VFS's until somebody puts others there.
func wrap(handle uintptr) *file {
	f := fileOf(handle)
	methods := &at[sqlite3.Tsqlite3_file](handle).FpMethods
	*f = file{base: *methods, methods: *at[sqlite3.Tsqlite3_io_methods](*methods)}
	*methods = uintptr(unsafe.Pointer(&f.methods))
	return f
}

func fileOf(handle uintptr) *file { return at[file](handle + behind) }

func (f *file) beneath() *sqlite3.Tsqlite3_io_methods { return at[sqlite3.Tsqlite3_io_methods](f.base) }

// at is the value at an address that is not Go's.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// function is the function that a pointer of the transpiled SQLite stands for, and pointer the way back. Only functions of
// a package, which nobody collects, have a pointer.
func function[F any](pointer uintptr) F { return *(*F)(unsafe.Pointer(&pointer)) }

func pointer[F any](function F) uintptr { return *(*uintptr)(unsafe.Pointer(&function)) }
