package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"kici/internal/agent/workspace"
)

// artifactSpec names what becomes an artifact, and where it goes.
type artifactSpec struct {
	Root  string   `json:"root"`  // the repository
	Paths []string `json:"paths"` // files, folders and patterns below it

	// Of putArtifact: one of these two, and how many bytes may be put there.
	URL      string `json:"url"`
	SaveTo   string `json:"saveTo"`
	MaxBytes int64  `json:"maxBytes"`
}

// foundArtifact says what an artifact will be: a file as it is, or an archive, whose size nobody knows yet.
type foundArtifact struct {
	Packed bool  `json:"packed"`
	Files  int   `json:"files"`
	Size   int64 `json:"size"` // -1 when packed
}

// keptArtifact is what was put.
type keptArtifact struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// putTries is how often an upload is tried: the server may be starting anew.
const putTries = 4

// findArtifact looks what the paths name, before anybody is asked for a place.
func findArtifact(ctx context.Context, s artifactSpec) (any, error) {
	found, err := pick(ctx, s.Root, s.Paths)
	if err != nil {
		return nil, err
	}
	size := int64(-1)
	if found.single {
		f, err := found.open(s.Root)
		if err != nil {
			return nil, fmt.Errorf("artifact: %w", err)
		}
		defer f.Close()
		if size, err = f.Seek(0, io.SeekEnd); err != nil {
			return nil, fmt.Errorf("artifact: %w", err)
		}
	}
	return foundArtifact{Packed: !found.single, Files: len(found.files), Size: size}, nil
}

// putArtifact puts what the paths name to its place. A file is read while it is sent and never held in memory; what has to
// be packed is packed into a private file first.
func (d *privateDirs) putArtifact(ctx context.Context, s artifactSpec) (any, error) {
	found, err := pick(ctx, s.Root, s.Paths)
	if err != nil {
		return nil, err
	}
	var f *os.File
	if found.single {
		if f, err = found.open(s.Root); err != nil {
			return nil, fmt.Errorf("artifact: %w", err)
		}
	} else {
		dir, err := d.make()
		if err != nil {
			return nil, err
		}
		defer d.remove(dir)
		if f, err = packArtifact(ctx, s, found, filepath.Join(dir, "artifact.tar.gz")); err != nil {
			return nil, err
		}
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size > s.MaxBytes {
		err = tooLarge(size, s.MaxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("artifact: %w", err)
	}
	if s.SaveTo != "" {
		return saveArtifact(f, s.SaveTo, size)
	}
	return sendArtifact(ctx, f, s.URL, size)
}

func tooLarge(size, limit int64) error {
	return fmt.Errorf("it has more than %d bytes; at most %d can be kept here", size, limit)
}

// packArtifact writes the files as a gzipped tar, and stops where that becomes larger than it may be.
func packArtifact(ctx context.Context, s artifactSpec, found picked, to string) (*os.File, error) {
	trees := make([]workspace.Tree, len(found.files))
	for i, name := range found.files {
		trees[i] = workspace.Tree{Path: filepath.Join(s.Root, filepath.FromSlash(name)), Name: name}
	}
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("artifact: %w", err)
	}
	made, err := workspace.Pack(ctx, &limited{to: f, limit: s.MaxBytes}, trees)
	if err == nil && made.Trees != len(trees) {
		err = errors.New("files went away while they were packed")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("artifact: %w", err)
	}
	return f, nil
}

// limited writes up to a limit and fails beyond it.
type limited struct {
	to             io.Writer
	written, limit int64
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.written+int64(len(p)) > l.limit {
		return 0, tooLarge(l.limit, l.limit)
	}
	n, err := l.to.Write(p)
	l.written += int64(n)
	return n, err
}

// sendArtifact uploads the file, again when the connection fails or the server has trouble.
func sendArtifact(ctx context.Context, f *os.File, url string, size int64) (any, error) {
	for try := 1; ; try++ {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("artifact: %w", err)
		}
		sum := sha256.New()
		err := workspace.Put(ctx, http.DefaultClient, url, io.TeeReader(f, sum), size)
		if err == nil {
			return keptArtifact{Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
		}
		var status *workspace.StatusError
		if errors.As(err, &status) && status.Code < 500 || try == putTries || !pause(ctx, time.Duration(try)*time.Second) {
			return nil, fmt.Errorf("artifact: %w", err)
		}
	}
}

// pause waits, and reports whether the job goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// saveArtifact copies the file to a place on this machine, which is never seen half full.
func saveArtifact(f *os.File, to string, size int64) (any, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("save artifact: %w", err)
	}
	out, err := os.CreateTemp(filepath.Dir(to), ".kici-artifact-*")
	if err != nil {
		return nil, fmt.Errorf("save artifact: %w", err)
	}
	defer os.Remove(out.Name()) // gone when all went well
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), f)
	if err := errors.Join(err, out.Chmod(0o644), out.Close()); err != nil {
		return nil, fmt.Errorf("save artifact: %w", err)
	}
	if err := os.Rename(out.Name(), to); err != nil {
		return nil, fmt.Errorf("save artifact: %w", err)
	}
	return keptArtifact{Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}
