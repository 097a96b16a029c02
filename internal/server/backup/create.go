package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kici/internal/kit/seal"
)

// Options say what goes into a backup.
type Options struct {
	Blobs    bool // the blobs themselves, not only their list
	Key      bool // the master key
	Version  string
	Now      time.Time
	Progress func(Progress) // may be nil
}

// Create makes a backup of a server, which may be at work. The target must not exist: a name that ends in .tar, .tar.gz
// or .tgz becomes an archive, any other a folder. After an error nothing is left of it.
func Create(ctx context.Context, from Place, target string, o Options) (m Manifest, err error) {
	s, err := newSink(target, o.Now)
	if err != nil {
		return m, fmt.Errorf("back up to %s: %w", target, err)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(target), ".kici-backup-")
	if err != nil {
		return m, errors.Join(fmt.Errorf("back up to %s: %w", target, err), s.discard())
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	c := creation{from: from, sink: s, scratch: scratch, o: o}
	if m, err = c.run(ctx); err != nil {
		return m, errors.Join(fmt.Errorf("back up to %s: %w", target, err), s.discard())
	}
	if err := s.finish(); err != nil {
		return m, fmt.Errorf("back up to %s: %w", target, err)
	}
	return m, nil
}

// creation is one backup under way.
type creation struct {
	from    Place
	sink    sink
	scratch string // for what has to be a file before it can go into the backup
	o       Options
}

func (c creation) run(ctx context.Context) (Manifest, error) {
	m := Manifest{Format: format, CreatedAt: c.o.Now.UTC(), Version: c.o.Version, Engine: c.from.engine(), KeyIncluded: c.o.Key}
	m.Hostname, _ = os.Hostname() // it is for people; a machine without a name is no reason to have no backup
	var err error
	if m.Node, err = nodeOf(c.from.DataDir); err != nil {
		return m, err
	}
	if err := c.database(ctx, &m); err != nil {
		return m, err
	}
	if err := c.key(&m); err != nil {
		return m, err
	}
	if err := c.blobs(ctx, &m); err != nil {
		return m, err
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	return m, c.sink.put(manifestName, int64(len(raw)), strings.NewReader(string(raw)))
}

// nodeOf is the id of the node of a data folder, "" where the folder keeps none.
func nodeOf(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, nodeName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read node identity: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

func (c creation) database(ctx context.Context, m *Manifest) (err error) {
	report(c.o.Progress, Progress{What: "database"})
	name := sqliteName
	dump := dumpSQLite
	if m.Engine == enginePostgres {
		name, dump = dumpName, dumpPostgres
	}
	path := filepath.Join(c.scratch, name)
	if m.Schema, m.ServerVersion, err = dump(ctx, c.from, path); err != nil {
		return err
	}
	m.Database, err = c.file(path, name)
	report(c.o.Progress, Progress{What: "database", Files: 1, Bytes: m.Database.Size})
	return err
}

// file puts a file that nobody changes into the backup.
func (c creation) file(path, name string) (Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Entry{}, err
	}
	h := newHashed(f)
	if err := c.sink.put(name, info.Size(), h); err != nil {
		return Entry{}, fmt.Errorf("copy %s: %w", name, err)
	}
	return h.entry(name), nil
}

// key notes which master key opens the secrets, and puts it into the backup where that was asked for.
func (c creation) key(m *Manifest) error {
	text := c.from.MasterKey
	if text == "" {
		file, err := seal.ReadKeyFile(filepath.Join(c.from.DataDir, keyName))
		if errors.Is(err, fs.ErrNotExist) && !c.o.Key {
			return nil // a backup on another machine than the one that has the key
		}
		if err != nil {
			return err
		}
		text = file.Text
	}
	m.KeyFingerprint = fingerprint(text)
	if !c.o.Key {
		return nil
	}
	h := newHashed(strings.NewReader(text + "\n"))
	if err := c.sink.put(keyName, int64(len(text))+1, h); err != nil {
		return err
	}
	entry := h.entry(keyName)
	m.Key = &entry
	return nil
}

// blobs lists everything below the folders of the data folder, and copies it where that was asked for.
func (c creation) blobs(ctx context.Context, m *Manifest) error {
	m.Blobs.Included = c.o.Blobs
	path := filepath.Join(c.scratch, listName)
	list, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(list)
	err = eachBlob(c.from.DataDir, func(name string) error {
		if err := stopped(ctx); err != nil {
			return err
		}
		e, err := c.blob(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // its time was up meanwhile
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		m.Blobs.Files++
		m.Blobs.Bytes += e.Size
		report(c.o.Progress, Progress{What: "blobs", Files: m.Blobs.Files, Bytes: m.Blobs.Bytes})
		return lines.Encode(e)
	})
	if err = errors.Join(err, list.Close()); err != nil {
		return err
	}
	m.Blobs.List, err = c.file(path, listName)
	return err
}

// blob reads as much of a blob as there is when it is opened: logs grow.
func (c creation) blob(name string) (Entry, error) {
	f, err := os.Open(filepath.Join(c.from.DataDir, filepath.FromSlash(name)))
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Entry{}, err
	}
	h := newHashed(io.LimitReader(f, info.Size()))
	if c.o.Blobs {
		err = c.sink.put(blobFolder+"/"+name, info.Size(), h)
	} else {
		_, err = io.Copy(io.Discard, h)
	}
	return h.entry(name), err
}

// replaced begins the names of the folders into which a restore moves what it replaces.
const replaced = "replaced-"

// eachBlob calls fn with the path of every blob below the data folder, in the order of names. Blobs lie in folders; what
// begins with a dot is not finished or not a blob.
func eachBlob(dir string, fn func(name string) error) error {
	folders, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	for _, folder := range folders {
		if !folder.IsDir() || hidden(folder.Name()) || strings.HasPrefix(folder.Name(), replaced) {
			continue
		}
		err := fs.WalkDir(os.DirFS(dir), folder.Name(), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // it was removed meanwhile
			case err != nil:
				return fmt.Errorf("list blobs: %w", err)
			case hidden(d.Name()) && d.IsDir():
				return fs.SkipDir
			case !d.Type().IsRegular() || hidden(d.Name()):
				return nil
			}
			return fn(path)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }
