package backup

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// eachFile calls fn with every file of a backup: blobs in the order of their list, the manifest last.
func eachFile(source string, fn func(name string, r io.Reader) error) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return eachInFolder(source, fn)
	}
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	buffered := bufio.NewReaderSize(f, 1<<20)
	var r io.Reader = buffered
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		if r, err = gzip.NewReader(buffered); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return eachInArchive(tar.NewReader(r), fn)
}

func eachInArchive(archive *tar.Reader, fn func(name string, r io.Reader) error) error {
	for {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%w: %q is not a file", ErrDamaged, h.Name)
		}
		if err := fn(h.Name, archive); err != nil {
			return err
		}
	}
}

func eachInFolder(dir string, fn func(name string, r io.Reader) error) error {
	root, err := os.OpenRoot(dir) // names in its list do not lead out of it
	if err != nil {
		return err
	}
	defer root.Close()
	one := func(name string) error {
		f, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		defer f.Close()
		return fn(name, f)
	}
	m, err := folderManifest(root)
	if err != nil {
		return err
	}
	if err := one(m.Database.Name); err != nil {
		return err
	}
	if m.Key != nil {
		if err := one(m.Key.Name); err != nil {
			return err
		}
	}
	if m.Blobs.Included {
		if err := eachListed(root, func(e Entry) error { return one(blobFolder + "/" + e.Name) }); err != nil {
			return err
		}
	}
	if err := one(listName); err != nil {
		return err
	}
	return one(manifestName)
}

func folderManifest(root *os.Root) (Manifest, error) {
	f, err := root.Open(manifestName)
	if err != nil {
		return Manifest{}, fmt.Errorf("%w: it has no manifest; was it interrupted? %w", ErrDamaged, err)
	}
	defer f.Close()
	return readManifest(f)
}

// maxManifest bounds a manifest in bytes.
const maxManifest = 1 << 20

// readManifest reads a manifest of a format that this release knows.
func readManifest(r io.Reader) (Manifest, error) {
	var m Manifest
	raw, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%w: its manifest cannot be read: %w", ErrDamaged, err)
	}
	switch {
	case m.Format > format:
		return m, fmt.Errorf("the backup has format %d, this release reads %d: use a release at least as new as %s", m.Format, format, m.Version)
	case m.Format < 1 || m.Engine != engineSQLite && m.Engine != enginePostgres:
		return m, fmt.Errorf("%w: its manifest is not one of a backup", ErrDamaged)
	}
	return m, nil
}

// eachListed calls fn with every entry of the list of blobs.
func eachListed(root *os.Root, fn func(Entry) error) error {
	f, err := root.Open(listName)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReader(f))
	for {
		var e Entry
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: its list of blobs cannot be read: %w", ErrDamaged, err)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}
