package compile

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// watchEvery is how often the files are looked at. Looking costs a stat for each, which a person at a keyboard does not
// notice; notices from the system would need a folder handle each and miss files on many network disks.
const watchEvery = 300 * time.Millisecond

// Watch compiles at once and again after each change of a file that the lock file is made of, until the context ends,
// whose cause it returns. report gets the outcome of each compilation as Compile returns it.
func Watch(ctx context.Context, o Options, report func(Result, error)) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	return watch(ctx, o, tick.C, report)
}

// watch is Watch with the moments at which it looks.
func watch(ctx context.Context, o Options, ticks <-chan time.Time, report func(Result, error)) error {
	root, kiciDir, err := o.folders()
	if err != nil {
		return err
	}
	w := watcher{root: root, kiciDir: kiciDir}
	for {
		// What changes while it compiles must count as a change, so the files are looked at before.
		seen := w.look()
		result, err := Compile(ctx, o)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.learn(result, seen)
		report(result, err)
		for maps.Equal(seen, w.look()) {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-ticks:
			}
		}
	}
}

// watcher knows which files to look at: those in the folder of workflows, and those elsewhere that went into a lock
// file.
type watcher struct {
	root, kiciDir string
	elsewhere     []string
}

// stamp tells one state of a file from another. A file that is not there has the zero stamp.
type stamp struct {
	size     int64
	modified time.Time
}

// learn adds the inputs of a compilation to what is looked at, and their state to what was seen. None are forgotten: a
// compilation that failed may know fewer than there are, and one look too many costs little.
func (w *watcher) learn(result Result, seen map[string]stamp) {
	paths := result.Searched
	for _, input := range result.Inputs {
		if !strings.HasPrefix(input, filepath.ToSlash(w.kiciDir)+"/") {
			// A new file beside an input may be one, too: what an import finds first.
			paths = append(paths, input, filepath.ToSlash(filepath.Dir(input)))
		}
	}
	for _, path := range paths {
		if _, known := seen[path]; !known {
			w.elsewhere = append(w.elsewhere, path)
			seen[path] = w.stamp(path)
		}
	}
}

// look gives the state of every file by its path.
func (w *watcher) look() map[string]stamp {
	seen := map[string]stamp{}
	for _, path := range w.elsewhere {
		seen[path] = w.stamp(path)
	}
	folder := filepath.Join(w.root, w.kiciDir)
	// A folder that cannot be read is told by the compilation; to the watcher it is empty.
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case d.IsDir() || filepath.Dir(path) == folder && strings.HasPrefix(d.Name(), LockName):
			return nil
		}
		seen[path] = stampOf(d.Info())
		return nil
	})
	return seen
}

func (w *watcher) stamp(path string) stamp {
	return stampOf(os.Stat(filepath.Join(w.root, filepath.FromSlash(path))))
}

func stampOf(info fs.FileInfo, err error) stamp {
	if err != nil {
		return stamp{}
	}
	return stamp{info.Size(), info.ModTime()}
}
