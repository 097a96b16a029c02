package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kici/internal/kit/seal"
)

// RestoreOptions say how a backup is put back.
type RestoreOptions struct {
	Force    bool // what is there is moved aside, and a database's tables are dropped
	Now      time.Time
	Progress func(Progress) // may be nil
	// Hold takes the lock that a running server has on its data folder. It fails where one runs.
	Hold func(dataDir string) (release func() error, err error)
}

// Restored says what a restore did.
type Restored struct {
	Manifest Manifest `json:"manifest"`
	// Blobs counts those that are in place now: of the backup, or found there when it has only their list.
	Blobs struct {
		Present   int64    `json:"present"`
		Missing   int64    `json:"missing"`
		Different int64    `json:"different"`
		Examples  []string `json:"examples,omitempty"` // of those that are not as the list says
	} `json:"blobs"`
	MovedAside string   `json:"movedAside,omitempty"` // folder with what was there before
	Warnings   []string `json:"warnings,omitempty"`
}

// maxExamples bounds the blobs that are named.
const maxExamples = 10

// Restore puts a backup where no server runs. Everything is unpacked and checked against the manifest before anything of
// the place is touched.
func Restore(ctx context.Context, source string, to Place, o RestoreOptions) (done Restored, err error) {
	if err := os.MkdirAll(to.DataDir, 0o700); err != nil {
		return done, fmt.Errorf("make data folder: %w", err)
	}
	release, err := o.Hold(to.DataDir)
	if err != nil {
		return done, fmt.Errorf("data folder %s: %w: %w", to.DataDir, ErrRunning, err)
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := ready(ctx, to, o); err != nil {
		return done, err
	}
	staging, err := os.MkdirTemp(to.DataDir, ".restore-")
	if err != nil {
		return done, fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	if done.Manifest, err = unpack(ctx, source, staging, o.Progress); err != nil {
		return done, fmt.Errorf("restore %s: %w", source, err)
	}
	if err := place(ctx, staging, to, o, &done); err != nil {
		return done, fmt.Errorf("restore %s: %w", source, err)
	}
	return done, nil
}

// ready refuses a place that must not be overwritten.
func ready(ctx context.Context, to Place, o RestoreOptions) error {
	if to.DatabaseURL != "" {
		if err := readyPostgres(ctx, to.DatabaseURL, o.Force, o.Now); err != nil {
			return err
		}
	}
	there, err := contents(to.DataDir)
	if err != nil {
		return err
	}
	if len(there) > 0 && !o.Force {
		return fmt.Errorf("data folder %s: %w", to.DataDir, ErrNotEmpty)
	}
	return nil
}

// own are the entries of a data folder that belong to the node and its administrator, and are in no backup.
var own = []string{"server.lock", nodeName, tokenName}

// contents are the entries of a data folder but for the node's own, and what earlier restores have moved aside or left.
func contents(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read data folder: %w", err)
	}
	var out []string
	for _, e := range entries {
		name := e.Name()
		if !slices.Contains(own, name) && !hidden(name) && !strings.HasPrefix(name, replaced) {
			out = append(out, name)
		}
	}
	return out, nil
}

// unpack copies a backup into an empty folder and checks it.
func unpack(ctx context.Context, source, staging string, progress func(Progress)) (Manifest, error) {
	u := unpacking{staging: staging, progress: progress, found: map[string]Entry{}, list: sha256.New()}
	err := eachFile(source, func(name string, r io.Reader) error {
		if err := stopped(ctx); err != nil {
			return err
		}
		return u.file(name, r)
	})
	if err != nil {
		return Manifest{}, err
	}
	root, err := os.OpenRoot(staging)
	if err != nil {
		return Manifest{}, err
	}
	defer root.Close()
	m, err := folderManifest(root)
	if err != nil {
		return m, err
	}
	return m, u.check(ctx, m)
}

// unpacking is a backup that is being unpacked.
type unpacking struct {
	staging  string
	progress func(Progress)
	found    map[string]Entry // the files that are not blobs
	list     hash.Hash        // of the list of the blobs as they were found
	files    int64
	bytes    int64
}

func (u *unpacking) file(name string, r io.Reader) error {
	blob, isBlob := strings.CutPrefix(name, blobFolder+"/")
	known := name == manifestName || name == listName || name == keyName || name == sqliteName || name == dumpName
	if !known && !(isBlob && filepath.IsLocal(filepath.FromSlash(blob)) && strings.Contains(blob, "/") && !hidden(blob)) {
		return fmt.Errorf("%w: %q does not belong into one", ErrDamaged, name)
	}
	path := filepath.Join(u.staging, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	h := newHashed(r)
	if err := copyFile(path, h); err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	if !isBlob {
		u.found[name] = h.entry(name)
		return nil
	}
	u.files++
	u.bytes += h.size
	report(u.progress, Progress{What: "blobs", Files: u.files, Bytes: u.bytes})
	line, err := json.Marshal(h.entry(blob))
	if err != nil {
		return err
	}
	u.list.Write(append(line, '\n')) // it never fails
	return nil
}

// check compares what was found with what the manifest says.
func (u *unpacking) check(ctx context.Context, m Manifest) error {
	wanted := []Entry{m.Database, m.Blobs.List}
	if m.Key != nil {
		wanted = append(wanted, *m.Key)
	}
	for _, want := range wanted {
		if got := u.found[want.Name]; got != want {
			return fmt.Errorf("%w: %s has %d bytes and hash %s, the manifest says %d and %s", ErrDamaged, want.Name, got.Size, got.SHA256, want.Size, want.SHA256)
		}
	}
	if m.Blobs.Included {
		if hex.EncodeToString(u.list.Sum(nil)) != m.Blobs.List.SHA256 {
			return u.firstDifference(m)
		}
	}
	if m.Engine == engineSQLite {
		return checkSQLite(ctx, filepath.Join(u.staging, sqliteName))
	}
	return nil
}

// firstDifference names a blob that is not as the list says.
func (u *unpacking) firstDifference(m Manifest) error {
	root, err := os.OpenRoot(u.staging)
	if err != nil {
		return err
	}
	defer root.Close()
	err = eachListed(root, func(want Entry) error {
		got, err := hashFile(root, blobFolder+"/"+want.Name)
		if got.Name = want.Name; err != nil || got != want {
			return fmt.Errorf("%w: blob %s is not as its list says", ErrDamaged, want.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: it has %d blobs, its list says %d", ErrDamaged, u.files, m.Blobs.Files)
}

func hashFile(root *os.Root, name string) (Entry, error) {
	f, err := root.Open(filepath.FromSlash(name))
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	h := newHashed(f)
	_, err = io.Copy(io.Discard, h)
	return h.entry(name), err
}

// place moves what was unpacked to where it belongs, and what was there aside.
func place(ctx context.Context, staging string, to Place, o RestoreOptions, done *Restored) error {
	m := done.Manifest
	if m.Engine != to.engine() {
		return fmt.Errorf("the backup is of a server on %s, and this one is configured for %s", m.Engine, to.engine())
	}
	dump := filepath.Join(staging, dumpName)
	if m.Engine == enginePostgres {
		if err := tool(ctx, to.DatabaseURL, "pg_restore", "--list", "--file=/dev/null", dump); err != nil {
			return err
		}
	}
	if err := moveAside(to.DataDir, o.Now, m, done); err != nil {
		return err
	}
	if m.Engine == enginePostgres {
		if err := restorePostgres(ctx, to.DatabaseURL, dump); err != nil {
			return err
		}
	} else if err := os.Rename(filepath.Join(staging, sqliteName), filepath.Join(to.DataDir, sqliteName)); err != nil {
		return err
	}
	if m.KeyIncluded {
		if err := os.Rename(filepath.Join(staging, keyName), filepath.Join(to.DataDir, keyName)); err != nil {
			return err
		}
	}
	if err := placeBlobs(staging, to.DataDir, m); err != nil {
		return err
	}
	if err := placeNode(to.DataDir, m); err != nil {
		return err
	}
	done.Warnings = append(keyWarnings(to, m), tokenWarnings(to)...)
	return countBlobs(ctx, staging, to.DataDir, o.Progress, done)
}

// placeNode makes the folder that of the backup's node, under whose id the logs of its jobs are looked for. A folder whose own
// blobs stay remains what it is.
func placeNode(dir string, m Manifest) error {
	there, err := nodeOf(dir)
	if err != nil || m.Node == "" || there != "" && !m.Blobs.Included {
		return err
	}
	return os.WriteFile(filepath.Join(dir, nodeName), []byte(m.Node+"\n"), 0o600)
}

// moveAside moves what the backup takes the place of. Blobs stay where the backup has only their list, and so does the
// master key where it has none.
func moveAside(dir string, now time.Time, m Manifest, done *Restored) error {
	there, err := contents(dir)
	if err != nil {
		return err
	}
	aside := filepath.Join(dir, replaced+now.UTC().Format("20060102T150405Z"))
	for _, name := range there {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if info.IsDir() && !m.Blobs.Included || name == keyName && !m.KeyIncluded {
			continue
		}
		if err := os.MkdirAll(aside, 0o700); err != nil {
			return err
		}
		done.MovedAside = aside
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name)); err != nil {
			return err
		}
	}
	return nil
}

func placeBlobs(staging, dir string, m Manifest) error {
	if !m.Blobs.Included {
		return nil
	}
	folders, err := os.ReadDir(filepath.Join(staging, blobFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range folders {
		if err := os.Rename(filepath.Join(staging, blobFolder, f.Name()), filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// countBlobs compares the blobs that are in place with the backup's list.
func countBlobs(ctx context.Context, staging, dir string, progress func(Progress), done *Restored) error {
	if done.Manifest.Blobs.Included {
		done.Blobs.Present = done.Manifest.Blobs.Files // each was compared when it was unpacked
		return nil
	}
	list, err := os.OpenRoot(staging)
	if err != nil {
		return err
	}
	defer list.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	checked := int64(0)
	err = eachListed(list, func(want Entry) error {
		if err := stopped(ctx); err != nil {
			return err
		}
		checked++
		report(progress, Progress{What: "blobs", Files: checked})
		return judgeBlob(root, want, done)
	})
	if n := done.Blobs.Missing + done.Blobs.Different; err == nil && n > 0 {
		done.Warnings = append(done.Warnings, fmt.Sprintf("the backup has only the list of the blobs, and %d of %d are not in place as it says: "+
			"copy them into the data folder, else those logs and caches are missing", n, done.Manifest.Blobs.Files))
	}
	return err
}

// judgeBlob counts a blob. One that is longer than listed is a log that has grown since, and has the rest all the same.
func judgeBlob(root *os.Root, want Entry, done *Restored) error {
	f, err := root.Open(filepath.FromSlash(want.Name))
	count := &done.Blobs.Missing
	if err == nil {
		defer f.Close()
		h := newHashed(io.LimitReader(f, want.Size))
		if _, err := io.Copy(io.Discard, h); err != nil {
			return err
		}
		if h.entry(want.Name) == want {
			done.Blobs.Present++
			return nil
		}
		count = &done.Blobs.Different
	}
	*count++
	if len(done.Blobs.Examples) < maxExamples {
		done.Blobs.Examples = append(done.Blobs.Examples, want.Name)
	}
	return nil
}

// keyWarnings tell of secrets that the server could not read.
func keyWarnings(to Place, m Manifest) []string {
	if m.KeyFingerprint == "" {
		return nil
	}
	text := to.MasterKey
	if text == "" {
		file, err := seal.ReadKeyFile(filepath.Join(to.DataDir, keyName))
		if err != nil {
			return []string{fmt.Sprintf("the master key (fingerprint %s) is not in the backup: put it into %s before the server starts, "+
				"else it makes a new one and the secrets cannot be read", m.KeyFingerprint, filepath.Join(to.DataDir, keyName))}
		}
		text = file.Text
	}
	if got := fingerprint(text); got != m.KeyFingerprint {
		return []string{fmt.Sprintf("the master key here (fingerprint %s) is not the one of the backup (%s): the secrets cannot be read with it", got, m.KeyFingerprint)}
	}
	return nil
}

// tokenWarnings tell how to administer a server whose token file is elsewhere.
func tokenWarnings(to Place) []string {
	if _, err := os.Stat(filepath.Join(to.DataDir, tokenName)); err == nil {
		return nil
	}
	return []string{"admin tokens are in no backup: use one that you know, or start the server with KICI_BOOTSTRAP_ADMIN_TOKEN"}
}
