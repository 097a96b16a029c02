package backup

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sink takes the files of a backup. Their content is what r gives, size bytes.
type sink interface {
	put(name string, size int64, r io.Reader) error
	// finish makes the backup stand under its name; discard leaves nothing of it.
	finish() error
	discard() error
}

// archived tells whether a name is an archive's, and whether that is compressed.
func archived(name string) (archive, compressed bool) {
	switch {
	case strings.HasSuffix(name, ".tar"):
		return true, false
	case strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		return true, true
	}
	return false, false
}

// newSink begins a backup next to its place, under another name until it is whole.
func newSink(target string, now time.Time) (sink, error) {
	if _, err := os.Lstat(target); err == nil {
		return nil, fmt.Errorf("%s: %w", target, ErrExists)
	}
	partial := target + ".partial"
	archive, compressed := archived(target)
	if !archive {
		if err := os.Mkdir(partial, 0o700); err != nil {
			return nil, fmt.Errorf("make backup folder: %w", err)
		}
		return &folderSink{target: target, partial: partial}, nil
	}
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make backup: %w", err)
	}
	s := &tarSink{target: target, file: f, now: now}
	var out io.Writer = f
	if compressed {
		s.gzip = gzip.NewWriter(f)
		out = s.gzip
	}
	s.tar = tar.NewWriter(out)
	return s, nil
}

// folderSink writes a folder.
type folderSink struct{ target, partial string }

func (s *folderSink) put(name string, _ int64, r io.Reader) error {
	path := filepath.Join(s.partial, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return copyFile(path, r)
}

// copyFile writes a new file that is on the disk when it returns.
func copyFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close())
}

func (s *folderSink) finish() error  { return os.Rename(s.partial, s.target) }
func (s *folderSink) discard() error { return os.RemoveAll(s.partial) }

// tarSink writes an archive.
type tarSink struct {
	target string
	file   *os.File
	gzip   *gzip.Writer // nil without compression
	tar    *tar.Writer
	now    time.Time
}

func (s *tarSink) put(name string, size int64, r io.Reader) error {
	err := s.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: s.now, Format: tar.FormatPAX})
	if err == nil {
		_, err = io.CopyN(s.tar, r, size)
	}
	return err
}

func (s *tarSink) finish() error {
	err := s.tar.Close()
	if s.gzip != nil {
		err = errors.Join(err, s.gzip.Close())
	}
	if err = errors.Join(err, s.file.Sync(), s.file.Close()); err != nil {
		return errors.Join(err, os.Remove(s.file.Name()))
	}
	return os.Rename(s.file.Name(), s.target)
}

func (s *tarSink) discard() error {
	return errors.Join(s.file.Close(), os.Remove(s.file.Name()))
}

// hashed is a reader that knows what it has given.
type hashed struct {
	tee  io.Reader
	sum  hash.Hash
	size int64
}

func newHashed(r io.Reader) *hashed {
	h := &hashed{sum: sha256.New()}
	h.tee = io.TeeReader(r, h.sum)
	return h
}

// Read is io.Reader's.
func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.tee.Read(p)
	h.size += int64(n)
	return n, err
}

// entry is what was read so far, under a name.
func (h *hashed) entry(name string) Entry {
	return Entry{Name: name, Size: h.size, SHA256: hex.EncodeToString(h.sum.Sum(nil))}
}
