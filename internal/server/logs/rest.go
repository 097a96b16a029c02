package logs

import "context"

// rester is what can rest while nothing is written. It goes on by itself, where it was.
type rester interface {
	// Rest closes what is open.
	Rest() error
}

// restingFile is a file that can rest.
type restingFile struct {
	file diskFile // nil while it rests
	open func() (diskFile, error)
}

// openToRest opens a log that is a file, or begins one anew.
func (s *Store) openToRest(name string, fresh bool) (diskFile, error) {
	f, err := s.openLog(name, fresh)
	if err != nil {
		return nil, err
	}
	return &restingFile{file: f, open: func() (diskFile, error) { return s.openLog(name, false) }}, nil
}

func (r *restingFile) awake() (f diskFile, err error) {
	if r.file == nil {
		if f, err = r.open(); err != nil {
			return nil, err
		}
		r.file = f
	}
	return r.file, nil
}

// Write implements file.
func (r *restingFile) Write(ctx context.Context, chunk []byte) (int, error) {
	f, err := r.awake()
	if err != nil {
		return 0, err
	}
	return f.Write(ctx, chunk)
}

// Truncate implements file.
func (r *restingFile) Truncate(size int64) error {
	f, err := r.awake()
	if err != nil {
		return err
	}
	return f.Truncate(size)
}

// Size implements file.
func (r *restingFile) Size() (int64, error) {
	f, err := r.awake()
	if err != nil {
		return 0, err
	}
	return f.Size()
}

// Sync implements diskFile.
func (r *restingFile) Sync() error {
	f, err := r.awake()
	if err != nil {
		return err
	}
	return f.Sync()
}

// ReadAt implements io.ReaderAt.
func (r *restingFile) ReadAt(p []byte, off int64) (int, error) {
	f, err := r.awake()
	if err != nil {
		return 0, err
	}
	return f.ReadAt(p, off)
}

// Rest implements rester.
func (r *restingFile) Rest() error {
	f := r.file
	r.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// Close implements file.
func (r *restingFile) Close() error { return r.Rest() }
