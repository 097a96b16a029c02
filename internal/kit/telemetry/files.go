package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Files are the log of a process in a folder: a file for each day (UTC), named prefix-2006-01-02.log. What is beyond
// MaxSize of a day goes on in files with .1, .2 and so on behind the name. Only days of the same prefix are ever deleted.
type Files struct {
	Dir    string
	Prefix string
	// MaxSize is of one file, in bytes; 0 is no bound. A line is never divided.
	MaxSize int64
	// Days are how many days before this one are kept; 0 keeps all.
	Days int
	// Now tells the time; nil is time.Now.
	Now func() time.Time
	// Failed is told when the files cannot be written, once until they can again, and when old ones cannot be deleted. What
	// was to be in them meanwhile is not. It must not write here.
	Failed func(err error)

	mu     sync.Mutex
	file   *os.File // nil when there is none yet, or after trouble
	day    string
	part   int // of the day
	size   int64
	failed bool
	again  time.Time // before it, a file that made trouble is not tried
}

// retryFiles is how long a folder that made trouble is left alone.
const retryFiles = 10 * time.Second

// Write writes a line. It never fails: a log that cannot be kept must not hold up what is logged.
func (f *Files) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.Now != nil {
		now = f.Now()
	}
	if f.failed && now.Before(f.again) {
		return len(line), nil
	}
	err := f.writeLocked(line, now.UTC())
	if err == nil {
		f.failed = false
		return len(line), nil
	}
	f.again = now.Add(retryFiles)
	err = errors.Join(err, f.closeLocked())
	if !f.failed && f.Failed != nil {
		f.Failed(err)
	}
	f.failed = true
	return len(line), nil
}

func (f *Files) writeLocked(line []byte, now time.Time) error {
	day := now.Format(time.DateOnly)
	if f.file == nil || day != f.day {
		if err := f.beginLocked(day, now); err != nil {
			return err
		}
	}
	for f.MaxSize > 0 && f.size > 0 && f.size+int64(len(line)) > f.MaxSize {
		if err := f.openLocked(f.part + 1); err != nil {
			return err
		}
	}
	n, err := f.file.Write(line)
	f.size += int64(n)
	return err
}

// beginLocked goes on with the last file of a day, and deletes those of days that are too old.
func (f *Files) beginLocked(day string, now time.Time) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	f.day = day
	last := 0
	for ; ; last++ {
		if _, err := os.Stat(f.path(last + 1)); err != nil {
			break
		}
	}
	if err := f.openLocked(last); err != nil {
		return err
	}
	if err := f.prune(now); err != nil && f.Failed != nil {
		f.Failed(fmt.Errorf("delete old files: %w", err))
	}
	return nil
}

func (f *Files) path(part int) string {
	name := f.Prefix + "-" + f.day + ".log"
	if part > 0 {
		name += fmt.Sprintf(".%d", part)
	}
	return filepath.Join(f.Dir, name)
}

func (f *Files) openLocked(part int) error {
	if err := f.closeLocked(); err != nil {
		return err
	}
	file, err := os.OpenFile(f.path(part), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.part, f.size = file, part, info.Size()
	return nil
}

func (f *Files) prune(now time.Time) error {
	if f.Days <= 0 {
		return nil
	}
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return err
	}
	first := now.AddDate(0, 0, -f.Days).Format(time.DateOnly)
	var failed []error
	for _, e := range entries {
		if day, ok := f.dayOf(e.Name()); ok && day < first {
			if err := os.Remove(filepath.Join(f.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(failed...)
}

// dayOf reads the day of a file of ours from its name.
func (f *Files) dayOf(name string) (day string, ok bool) {
	rest, ok := strings.CutPrefix(name, f.Prefix+"-")
	if !ok {
		return "", false
	}
	day, part, ok := strings.Cut(rest, ".log")
	if _, err := time.Parse(time.DateOnly, day); !ok || err != nil || strings.Trim(part, ".0123456789") != "" {
		return "", false
	}
	return day, true
}

// Close closes the present file. A line that follows opens it again.
func (f *Files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closeLocked()
}

func (f *Files) closeLocked() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// Tee makes a log whose records go to another one, and with that one's level as JSON lines to w.
func Tee(log *slog.Logger, w io.Writer, with ...slog.Attr) *slog.Logger {
	lines := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: jsonAttr}).WithAttrs(with)
	return slog.New(slog.NewMultiHandler(log.Handler(), levelled{lines, log.Handler()}))
}

// levelled takes what another handler takes.
type levelled struct {
	slog.Handler
	like slog.Handler
}

// Enabled is slog.Handler's.
func (l levelled) Enabled(ctx context.Context, level slog.Level) bool {
	return l.like.Enabled(ctx, level)
}

// WithAttrs is slog.Handler's.
func (l levelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return levelled{l.Handler.WithAttrs(attrs), l.like}
}

// WithGroup is slog.Handler's.
func (l levelled) WithGroup(name string) slog.Handler {
	return levelled{l.Handler.WithGroup(name), l.like}
}
