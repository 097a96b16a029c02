//go:build linux

package walfile

import (
	"math"
	"sync/atomic"
	"testing"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// The disk of the tests: how many writes it has seen, and how many bytes it still takes.
var (
	writes atomic.Int64
	room   atomic.Int64
)

// watchDisk puts the disk beneath the default VFS.
func watchDisk(t *testing.T) {
	t.Helper()
	tls := libc.NewTLS()
	defer tls.Close()
	call, err := libc.CString("pwrite")
	if err != nil {
		t.Fatal(err)
	}
	defer libc.Xfree(tls, call)
	set := function[func(*libc.TLS, uintptr, uintptr, uintptr) int32](at[sqlite3.Tsqlite3_vfs](base).FxSetSystemCall)
	room.Store(math.MaxInt64)
	if rc := set(tls, base, call, pointer(pwrite)); rc != sqlite3.SQLITE_OK {
		t.Fatalf("replace pwrite: %d", rc)
	}
	t.Cleanup(func() {
		tls := libc.NewTLS()
		defer tls.Close()
		set(tls, base, 0, 0)
	})
}

func pwrite(tls *libc.TLS, file int32, data uintptr, size libc.Tsize_t, offset int64) libc.Tssize_t {
	writes.Add(1)
	taken := min(int64(size), room.Load())
	if taken == 0 {
		return 0
	}
	room.Add(-taken)
	return libc.Xpwrite(tls, file, data, libc.Tsize_t(taken), offset)
}

// diskFull runs what the disk takes so many bytes of.
func diskFull(after int64, do func()) {
	room.Store(after)
	defer room.Store(math.MaxInt64)
	do()
}
