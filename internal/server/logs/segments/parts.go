package segments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"

	"kici/internal/server/logs/index"
)

// layout finds the segments of a log that is not open for writing: those that this server holds and those in the object
// store. The folder is read first: what is uploaded in between is found there.
func (s *Store) layout(ctx context.Context, log string) ([]segment, error) {
	names, err := s.localSegments(log)
	if err != nil {
		return nil, err
	}
	var found []segment
	for _, g := range names {
		if g.to, err = s.recoveredEnd(log, g); errors.Is(err, fs.ErrNotExist) {
			continue // uploaded by now
		}
		if err != nil {
			return nil, err
		}
		found = append(found, g)
	}
	uploaded, err := s.uploadedParts(ctx, log)
	if err != nil {
		return nil, err
	}
	return arrange(append(found, uploaded...)), nil
}

// localSegments lists what the data folder holds of a log. The ends are not known.
func (s *Store) localSegments(log string) ([]segment, error) {
	folder, err := s.Root.Open(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := folder.Readdirnames(-1)
	if err = errors.Join(err, folder.Close()); err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []segment
	for _, name := range names {
		if g, sealed, ok := parseSegment(name); ok && !sealed {
			out = append(out, g)
		}
	}
	return out, nil
}

// recoveredEnd is where the last complete chunk of a local segment ends. What follows it was never acknowledged.
func (s *Store) recoveredEnd(log string, g segment) (index.End, error) {
	f, err := s.Root.Open(path.Join(log, g.local()))
	if err != nil {
		return index.End{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return index.End{}, err
	}
	t, err := index.ReadTail(f, info.Size(), 1)
	if err != nil || t.End.Size == 0 {
		return g.from, err
	}
	return index.End{Size: g.from.Size + t.End.Size, Lines: t.End.Lines}, nil
}

// reader reads segments as the one log that they are. It keeps one of them open, since what is read lies together;
// it is not for concurrent use.
type reader struct {
	ctx      context.Context // of the reading, which may have to fetch a segment
	store    *Store
	log      string
	segments []segment
	active   *os.File // of the last segment while it is being written, which may be uploaded and go at any moment
	file     *os.File // of the segment at index
	index    int
}

// ReadAt implements io.ReaderAt.
func (r *reader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		i := sort.Search(len(r.segments), func(i int) bool { return r.segments[i].stop().Size > off })
		if i == len(r.segments) {
			return n, io.EOF
		}
		if err := r.turnTo(i); err != nil {
			return n, err
		}
		g := r.segments[i]
		part := p[n:min(int64(len(p)), int64(n)+g.stop().Size-off)]
		if _, err := r.file.ReadAt(part, off-g.at.Size); err != nil {
			return n, fmt.Errorf("read segment %s: %w", g.local(), err)
		}
		n += len(part)
		off += int64(len(part))
	}
	return n, nil
}

// turnTo opens a segment: in the data folder, or a copy of what was uploaded.
func (r *reader) turnTo(i int) (err error) {
	if i == r.index {
		return nil
	}
	if err := r.leave(); err != nil {
		return err
	}
	g := r.segments[i]
	f := r.active
	if f == nil || i < len(r.segments)-1 {
		f, err = r.store.Root.Open(path.Join(r.log, g.local()))
	}
	if errors.Is(err, fs.ErrNotExist) {
		f, err = r.store.copies.open(r.ctx, path.Join(r.log, g.object()), g.size())
	}
	if err != nil {
		return fmt.Errorf("open segment %s: %w", g.local(), err)
	}
	r.file, r.index = f, i
	return nil
}

// leave closes the present segment.
func (r *reader) leave() error {
	f := r.file
	r.file, r.index = nil, -1
	if f == nil || f == r.active {
		return nil
	}
	return f.Close()
}

// Close implements io.Closer.
func (r *reader) Close() error {
	err := r.leave()
	if r.active != nil {
		err = errors.Join(err, r.active.Close())
	}
	return err
}
