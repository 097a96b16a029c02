// Package config fills a struct of settings from defaults, a YAML file, the environment and flags, each layer over the
// one before, and checks the whole: every violation is found and told in one go, with where it came from and what would
// be right.
package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one violation.
type Problem struct {
	Setting string // key path, "" when it is about something else
	Source  string // "file.yaml:3", a variable, a flag
	Wrong   string
	Right   string
}

// String is the problem in one line.
func (p Problem) String() string {
	var b strings.Builder
	for _, part := range []string{p.Setting, p.Source} {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(" from ")
		}
		b.WriteString(part)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(p.Wrong)
	if p.Right != "" {
		b.WriteString("; ")
		b.WriteString(p.Right)
	}
	return b.String()
}

// Problems is the error of Load: everything that is wrong, one line each.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// Checker is implemented by settings with rules that concern several of them. It is asked only when each value by itself
// is right. Load fills in the Source of its problems by their Setting.
type Checker interface {
	Check() []Problem
}

// Options say where settings come from.
type Options struct {
	File string // path of the YAML file, "" for none
	// FileRequired makes a missing file a problem: somebody asked for this very file.
	FileRequired bool
	Environ      []string          // KEY=value, as os.Environ gives it
	Flags        map[string]string // key path → value of the flags that were given
	// Prefix is that of the program's variables. One with it that nobody knows is a problem, since it is most likely a
	// misspelt setting that would silently have no effect; in a Lenient environment it is only a warning.
	Prefix  string
	Lenient bool
	// Ignored names variables of other programs and Obsolete those that once had an effect, which are warned about. A
	// name may end in "*".
	Ignored  []string
	Obsolete []string
	// ObsoleteKeys names keys of the file that once had an effect; a whole branch is named by its beginning.
	ObsoleteKeys []string
}

// Report tells where settings came from.
type Report struct {
	Sources  map[string]string // key path → "default", "file.yaml:3", a variable, or a flag
	Warnings []string          // sentences for the operator
}

// Load fills settings, a pointer to a struct whose fields carry the tags that Setting describes. The error is a Problems;
// settings then hold the values that were right.
func Load(settings any, o Options) (Report, error) {
	l := &loader{o: o, leaves: leavesOf(settings), report: Report{Sources: map[string]string{}}}
	l.defaults()
	l.file()
	l.environment()
	l.flags()
	if checker, ok := settings.(Checker); ok && len(l.problems) == 0 {
		for _, p := range checker.Check() {
			if p.Source == "" && l.report.Sources[p.Setting] != sourceDefault {
				p.Source = l.report.Sources[p.Setting]
			}
			l.problems = append(l.problems, p)
		}
	}
	if len(l.problems) > 0 {
		return l.report, l.problems
	}
	return l.report, nil
}

const sourceDefault = "default"

type loader struct {
	o        Options
	leaves   []leaf
	report   Report
	problems Problems
}

func (l *loader) add(p Problem) { l.problems = append(l.problems, p) }

func (l *loader) warn(format string, args ...any) {
	l.report.Warnings = append(l.report.Warnings, fmt.Sprintf(format, args...))
}

// take gives a value to a setting, or notes what is wrong with it.
func (l *loader) take(f leaf, source string, set func() *mistake) {
	if m := set(); m != nil {
		l.add(Problem{Setting: f.Key, Source: source, Wrong: m.wrong, Right: m.right})
		return
	}
	l.report.Sources[f.Key] = source
}

func (l *loader) defaults() {
	for _, f := range l.leaves {
		l.report.Sources[f.Key] = sourceDefault
		if f.Default == "" {
			continue
		}
		if m := f.setText(f.Default); m != nil {
			panic("config: default of " + f.Key + ": " + m.wrong) // a mistake in the program, found by its first test
		}
	}
}

func (l *loader) flags() {
	for _, key := range sortedKeys(l.o.Flags) {
		i := slices.IndexFunc(l.leaves, func(f leaf) bool { return f.Key == key })
		if i < 0 {
			panic("config: flag for unknown setting " + key) // a mistake in the program
		}
		f := l.leaves[i]
		l.take(f, "flag --"+f.flagName(), func() *mistake { return f.setText(l.o.Flags[key]) })
	}
}
