package trigger

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/glob"
)

// filesUnknown is the reason of a path check that passed for want of a list.
const filesUnknown = "changed files unavailable"

// shownBytes is about how much of the list of changed files a trace shows; the number of the rest stands for them.
const shownBytes = 1500

// maxRemembered bounds the verdicts that one event remembers, in bytes; patterns past it are matched anew each time.
const maxRemembered = 16 << 20

// files are the changed files of one event. Repositories repeat their patterns over many workflows, so verdicts on filters
// and on pairs of pattern and file are remembered.
type files struct {
	event      []string // in the event's order
	names      []string // sorted, so that those with a prefix stand together; nil until needed
	shown      string
	filters    map[string]bool
	patterns   map[string]*verdicts
	suffixes   map[string][]int // files that end so, or so and with a slash
	remembered int
}

// verdicts are what is known of one pattern.
type verdicts struct {
	pattern *glob.Pattern
	may     []int  // files that may match, the one that bears the pattern's own text aside
	known   []byte // per file: 0 not asked yet, 1 no, 2 yes; nil past the bound
}

func newFiles(names []string) *files {
	return &files{
		event: names, filters: map[string]bool{}, patterns: map[string]*verdicts{}, suffixes: map[string][]int{},
	}
}

// sorted gives the names in order. The event's own list stays as it is.
func (f *files) sorted() []string {
	if f.names == nil {
		f.names = slices.Clone(f.event)
		slices.Sort(f.names)
	}
	return f.names
}

// text is the list as the trace shows it.
func (f *files) text() string {
	if f.shown == "" {
		size, listed := 0, 0
		for listed < len(f.event) && size < shownBytes {
			size += len(f.event[listed])
			listed++
		}
		more := ""
		if rest := len(f.event) - listed; rest > 0 {
			more = fmt.Sprintf(", … %d more", rest)
		}
		f.shown = ci.CutText("[" + strings.Join(f.event[:listed], ", ") + more + "]")
	}
	return f.shown
}

// paths checks the path filters. Without a list of files nothing matches, but where the list could not be had everything
// does: better one run too many than a change that nobody built.
func (t *trace) paths(patterns []string) bool {
	if t.err != nil || len(patterns) == 0 {
		return t.err == nil
	}
	in, out := splitPaths(patterns)
	unknown := t.matcher.event.ChangedFilesStatus == ci.FilesUnavailable
	passed := unknown || t.filter(patterns, in, out)
	if t.err != nil {
		return false
	}
	pattern := "include: [" + strings.Join(in, ", ") + "] exclude: [" + strings.Join(out, ", ") + "]"
	t.record("paths", []string{pattern}, subject{text: t.matcher.files.text(), clean: true}, passed)
	if unknown {
		t.checks[len(t.checks)-1].Reason = filesUnknown
	}
	return passed
}

// filter is anyFile, remembered.
func (t *trace) filter(patterns, in, out []string) bool {
	f := t.matcher.files
	key := strings.Join(patterns, "\x00")
	if passed, ok := f.filters[key]; ok {
		return passed
	}
	passed := len(f.event) > 0 && t.anyFile(in, out)
	if f.remembered += len(key); t.err == nil && f.remembered <= maxRemembered {
		f.filters[key] = passed
	}
	return passed
}

// anyFile tells whether a file that no exclusion covers is covered by an inclusion, or by nothing when there is none.
func (t *trace) anyFile(in, out []string) bool {
	exclusions := make([]*verdicts, len(out))
	for i, p := range out {
		exclusions[i] = t.verdicts(p)
	}
	excluded := func(file int) bool {
		return slices.ContainsFunc(exclusions, func(v *verdicts) bool { return t.covers(v, file) })
	}
	if len(in) == 0 {
		for i := range t.matcher.files.sorted() {
			if !excluded(i) {
				return t.err == nil
			}
		}
		return false
	}
	for _, pattern := range in {
		v := t.verdicts(pattern)
		if v == nil {
			return false
		}
		for _, i := range v.may {
			if t.covers(v, i) && !excluded(i) {
				return t.err == nil
			}
		}
		if i, ok := slices.BinarySearch(t.matcher.files.sorted(), pattern); ok && !excluded(i) {
			return t.err == nil
		}
	}
	return false
}

// verdicts gives what is remembered of the pattern, nil after an error.
func (t *trace) verdicts(pattern string) *verdicts {
	f := t.matcher.files
	if v, ok := f.patterns[pattern]; ok {
		return v
	}
	compiled, err := glob.Compile(pattern)
	if err != nil && t.err == nil {
		t.pattern, t.err = pattern, err
	}
	if t.err != nil {
		return nil
	}
	v := &verdicts{pattern: compiled, may: f.between(compiled.Prefix(), compiled.Suffix())}
	if f.remembered += len(f.event); f.remembered <= maxRemembered {
		v.known = make([]byte, len(f.event))
	}
	f.patterns[pattern] = v
	return v
}

// between gives the files that begin with prefix and end with suffix. The list of a suffix is made once: patterns of a
// repository end in a few ways, and most files in others.
func (f *files) between(prefix, suffix string) []int {
	names := f.sorted()
	list, ok := f.suffixes[suffix]
	if !ok {
		for i, name := range names {
			if strings.HasSuffix(strings.TrimRight(name, "/"), strings.TrimRight(suffix, "/")) {
				list = append(list, i)
			}
		}
		if f.remembered += 8 * len(list); f.remembered <= maxRemembered {
			f.suffixes[suffix] = list
		}
	}
	low, _ := slices.BinarySearchFunc(list, prefix, func(i int, p string) int { return strings.Compare(names[i], p) })
	list = list[low:]
	return list[:sort.Search(len(list), func(i int) bool { return !strings.HasPrefix(names[list[i]], prefix) })]
}

// covers tells whether the pattern matches the file.
func (t *trace) covers(v *verdicts, file int) bool {
	if v == nil || t.err != nil {
		return false
	}
	if v.known != nil && v.known[file] != 0 {
		return v.known[file] == 2
	}
	matches, err := v.pattern.TestWithin(t.matcher.files.names[file], &t.matcher.globs)
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
