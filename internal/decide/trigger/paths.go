package trigger

import (
	"fmt"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
)

// shownFiles bounds how many changed files a trace names; the number of the rest stands for them.
const shownFiles = 100

// maxRemembered bounds the verdicts that one event remembers, in bytes; patterns past it are matched anew each time.
const maxRemembered = 16 << 20

// files are the changed files of one event. Repositories repeat their patterns over many workflows, so the verdict on
// every pair of pattern and file is remembered.
type files struct {
	names      []string
	shown      string
	seen       map[string]*verdicts
	remembered int
}

type verdicts struct {
	pattern *glob.Pattern
	known   []byte // per file: 0 not asked yet, 1 no, 2 yes; nil past the bound
}

func newFiles(names []string) *files {
	shown := names
	more := ""
	if len(names) > shownFiles {
		shown, more = names[:shownFiles], fmt.Sprintf(", … %d more", len(names)-shownFiles)
	}
	return &files{
		names: names, shown: "[" + strings.Join(shown, ", ") + more + "]", seen: map[string]*verdicts{},
	}
}

// paths checks the path filters. Without a list of files nothing matches, but where the list could not be had everything
// does: better one run too many than a change that nobody built.
func (t *trace) paths(patterns []string) bool {
	if t.err != nil || len(patterns) == 0 {
		return t.err == nil
	}
	in, out := splitPaths(patterns)
	unknown := t.matcher.event.ChangedFilesStatus == ci.FilesUnavailable
	passed := unknown || t.anyFile(in, out)
	if t.err != nil {
		return false
	}
	pattern := "include: [" + strings.Join(in, ", ") + "] exclude: [" + strings.Join(out, ", ") + "]"
	t.record("paths", []string{pattern}, said(t.matcher.files.shown), passed)
	if unknown {
		t.checks[len(t.checks)-1].Reason = "changed files unavailable"
	}
	return passed
}

// anyFile tells whether a file that no exclusion covers is covered by an inclusion, or by nothing when there is none.
// Inclusions are asked first, since they turn most files away; the verdict is the same in either order.
func (t *trace) anyFile(in, out []string) bool {
	f := t.matcher.files
	if len(in) == 0 {
		for i := range f.names {
			if !t.covered(out, i) {
				return t.err == nil
			}
		}
		return false
	}
	for _, pattern := range in {
		if len(f.names) == 0 {
			break // a pattern that no file reaches is not even compiled
		}
		v := t.verdicts(pattern)
		for i := range f.names {
			if t.covers(v, i) && !t.covered(out, i) {
				return t.err == nil
			}
			if t.err != nil {
				return false
			}
		}
	}
	return false
}

func (t *trace) covered(patterns []string, file int) bool {
	for _, p := range patterns {
		if t.covers(t.verdicts(p), file) {
			return true
		}
	}
	return false
}

// verdicts gives what is remembered of the pattern, nil after an error.
func (t *trace) verdicts(pattern string) *verdicts {
	f := t.matcher.files
	if v, ok := f.seen[pattern]; ok {
		return v
	}
	compiled, err := glob.Compile(pattern)
	if err != nil {
		t.pattern, t.err = pattern, err
		return nil
	}
	v := &verdicts{pattern: compiled}
	if f.remembered += len(f.names); f.remembered <= maxRemembered {
		v.known = make([]byte, len(f.names))
	}
	f.seen[pattern] = v
	return v
}

// covers tells whether the pattern matches the file.
func (t *trace) covers(v *verdicts, file int) bool {
	if v == nil || t.err != nil {
		return false
	}
	if v.known != nil && v.known[file] != 0 {
		return v.known[file] == 2
	}
	matches, err := v.pattern.Test(t.matcher.files.names[file])
	if err != nil {
		t.pattern, t.err = v.pattern.String(), err
		return false
	}
	if v.known != nil {
		v.known[file] = 1
		if matches {
			v.known[file] = 2
		}
	}
	return matches
}
