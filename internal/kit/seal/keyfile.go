package seal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxKeyFile bounds what is read of a key file; a longer one is something else.
const maxKeyFile = 4096

// KeyFile is the content of a file that holds a master key.
type KeyFile struct {
	Text    string // trimmed
	Created bool   // it was not there before
	Warning string // a sentence for the operator when others may read the file, else ""
}

// ReadKeyFile reads an existing key file. An empty one is an error that names it.
func ReadKeyFile(path string) (KeyFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return KeyFile{}, fmt.Errorf("read key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return KeyFile{}, fmt.Errorf("read key file: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return KeyFile{}, fmt.Errorf("read key file: %w", err)
	}
	text := strings.TrimSpace(string(raw))
	switch {
	case text == "":
		return KeyFile{}, fmt.Errorf("read key file: %s is empty", path)
	case len(raw) > maxKeyFile:
		return KeyFile{}, fmt.Errorf("read key file: %s is longer than any key", path)
	}
	return KeyFile{Text: text, Warning: looseMode(path, info.Mode())}, nil
}

// LoadOrCreateKeyFile reads the key file, or makes one with a new master key and mode 0600. Of two processes that make
// it at once, both end with the same key.
func LoadOrCreateKeyFile(path string) (KeyFile, error) {
	k, err := ReadKeyFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return KeyFile{}, fmt.Errorf("create key file: %w", err)
	}
	if err := createKeyFile(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return KeyFile{}, fmt.Errorf("create key file: %w", err)
	} else if err == nil {
		k, err := ReadKeyFile(path)
		k.Created = true
		return k, err
	}
	return ReadKeyFile(path)
}

// createKeyFile writes a complete file under another name and links it to its own, so that nobody ever reads a half
// and an existing key is never overwritten. The key is on the disk before anything is encrypted with it.
func createKeyFile(path string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(NewMasterKey() + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the new name itself outlive a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func looseMode(path string, mode fs.FileMode) string {
	if mode.Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("key file %s has mode %04o: other users of this machine may read it; chmod 600 it", path, mode.Perm())
}
