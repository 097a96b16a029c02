//go:build unix

package workspace

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryLock takes the lock of an open file, or tells that somebody else has it.
func tryLock(f *os.File) (busy bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR), err
}

// putStat writes what git keeps of the state of a file into an entry of its index.
func putStat(entry []byte, path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	put := func(at int, v uint64) { binary.BigEndian.PutUint32(entry[at:], uint32(v)) } // git keeps the low half
	put(0, uint64(st.Ctim.Sec))
	put(4, uint64(st.Ctim.Nsec))
	put(8, uint64(st.Mtim.Sec))
	put(12, uint64(st.Mtim.Nsec))
	put(16, uint64(st.Dev))
	put(20, uint64(st.Ino))
	put(28, uint64(st.Uid))
	put(32, uint64(st.Gid))
	put(36, uint64(st.Size))
	return nil
}
