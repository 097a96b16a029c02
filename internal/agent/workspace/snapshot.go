package workspace

import (
	"bytes"
	"crypto/sha1" // git's own checksum of its index
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Bounds of one snapshot, and of how many are kept. Larger trees are written by git each time: for them its start is
// a small part of the work.
const (
	maxSnapshots     = 16
	maxSnapshotFiles = 200
	maxSnapshotBytes = 256 << 10
)

// snapshot is a working tree as git has written it, with its index. Writing a small one again takes less time than the
// start of a git process.
type snapshot struct {
	files []snapshotFile
	index []byte
}

// snapshotFile is a regular file, or a link when target is set. Its path is relative to the tree.
type snapshotFile struct {
	path    string
	mode    fs.FileMode
	content []byte
	target  string
}

var errNoSnapshot = errors.New("the tree is not one to keep in memory")

// takeSnapshot reads the tree in dir, in which nothing has happened since its check-out.
func takeSnapshot(dir string) (*snapshot, error) {
	var s snapshot
	var err error
	if s.index, err = os.ReadFile(filepath.Join(dir, ".git", "index")); err != nil {
		return nil, err
	}
	size := len(s.index)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case rel == ".git":
			return fs.SkipDir
		case d.IsDir():
			return nil
		case len(s.files) == maxSnapshotFiles:
			return errNoSnapshot
		}
		f, err := readSnapshotFile(path, rel, d, maxSnapshotBytes-size)
		size += len(f.content)
		s.files = append(s.files, f)
		return err
	})
	if err == nil {
		err = restat(append([]byte{}, s.index...), dir) // it must be possible later
	}
	return &s, err
}

func readSnapshotFile(path, rel string, d fs.DirEntry, room int) (f snapshotFile, err error) {
	info, err := d.Info()
	if err != nil {
		return f, err
	}
	f = snapshotFile{path: rel, mode: info.Mode().Perm()}
	switch {
	case d.Type() == fs.ModeSymlink:
		f.target, err = os.Readlink(path)
	case !d.Type().IsRegular() || info.Size() > int64(room):
		err = errNoSnapshot
	default:
		f.content, err = os.ReadFile(path)
	}
	return f, err
}

// packsWhole tells whether the packs of the repository in dir end as their indexes say. git would notice otherwise, when
// it writes a tree; one from memory must not hide that the history is broken.
func packsWhole(dir string) bool {
	packs, _ := filepath.Glob(filepath.Join(dir, ".git", "objects", "pack", "*.pack"))
	for _, pack := range packs {
		// An index ends in the pack's checksum and its own (gitformat-pack).
		listed, err1 := ending(strings.TrimSuffix(pack, ".pack")+".idx", 2*hashLength)
		actual, err2 := ending(pack, hashLength)
		if err1 != nil || err2 != nil || !bytes.Equal(listed[:hashLength], actual) {
			return false
		}
	}
	return len(packs) > 0
}

// ending reads the last bytes of a file.
func ending(path string, length int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	end := make([]byte, length)
	_, err = f.ReadAt(end, size-length)
	return end, err
}

// restore writes the tree and its index into dir, which holds nothing but the repository .git. Afterwards git finds
// every file unchanged, as after a check-out of its own.
func (s *snapshot) restore(dir string) error {
	index := append([]byte{}, s.index...)
	for _, f := range s.files {
		path := filepath.Join(dir, f.path)
		if err := f.write(path); err != nil {
			return err
		}
	}
	if err := restat(index, dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ".git", "index"), index, 0o600)
}

func (f snapshotFile) write(path string) error {
	create := func() error {
		if f.target != "" {
			return os.Symlink(f.target, path)
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.mode)
		if err != nil {
			return err
		}
		_, err = file.Write(f.content)
		return errors.Join(err, file.Close())
	}
	err := create()
	if errors.Is(err, fs.ErrNotExist) { // the first file of a folder
		if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
			err = create()
		}
	}
	return err
}

// Places in an entry of git's index, versions 2 and 3 (gitformat-index).
const (
	indexHead  = 12
	entryHead  = 62 // up to the name
	hashLength = 20
)

var errIndex = errors.New("index of a form that is not known")

// restat writes into the index what the files in dir are like, which is how git tells changed files without reading
// them.
func restat(index []byte, dir string) error {
	if len(index) < indexHead+hashLength || string(index[:4]) != "DIRC" {
		return errIndex
	}
	if version := binary.BigEndian.Uint32(index[4:]); version != 2 && version != 3 {
		return errIndex
	}
	body := index[:len(index)-hashLength]
	at := indexHead
	for range binary.BigEndian.Uint32(index[8:]) {
		if at+entryHead > len(body) {
			return errIndex
		}
		entry := body[at:]
		flags := binary.BigEndian.Uint16(entry[60:])
		length := int(flags & 0xfff)
		if flags&0x4000 != 0 || length == 0xfff || entryHead+length > len(entry) {
			return errIndex // flags of a sparse or half merged tree, or a very long name
		}
		if err := restatEntry(entry, filepath.Join(dir, string(entry[entryHead:entryHead+length]))); err != nil {
			return err
		}
		at += (entryHead + length + 8) &^ 7 // filled up with one to eight NULs
	}
	sum := sha1.Sum(body)
	copy(index[len(body):], sum[:])
	return nil
}

func restatEntry(entry []byte, path string) error {
	if kind := binary.BigEndian.Uint32(entry[24:]) >> 12; kind != 0o10 && kind != 0o12 {
		return errIndex // neither a file nor a link: a submodule
	}
	return putStat(entry, path)
}
