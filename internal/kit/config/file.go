package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// file applies the YAML file.
func (l *loader) file() {
	if l.o.File == "" {
		return
	}
	raw, err := readFile(l.o.File)
	if errors.Is(err, fs.ErrNotExist) && !l.o.FileRequired {
		return
	}
	if err != nil {
		l.add(Problem{Source: l.o.File, Wrong: "the configuration file cannot be read: " + reasonOf(err), Right: "name a readable file"})
		return
	}
	root, err := ParseYAML(raw)
	var at *LineError
	switch {
	case errors.As(err, &at):
		l.add(Problem{Source: l.sourceLine(at.Line), Wrong: "not usable YAML: " + at.Text, Right: "the file must be one YAML mapping"})
	case root.Kind == Null:
		l.add(Problem{Source: l.o.File, Wrong: "the configuration file is empty", Right: "write settings into it, or do not name it"})
	case root.Kind != Map:
		l.add(Problem{Source: l.sourceLine(root.Line), Wrong: "the file holds " + root.Kind.String(), Right: "the top level must be a mapping"})
	default:
		l.branch("", root)
	}
}

// branch applies a mapping whose keys begin with the prefix.
func (l *loader) branch(prefix string, node Node) {
	for _, field := range node.Fields {
		key := prefix + field.Key
		source := l.sourceLine(field.Line)
		i := slices.IndexFunc(l.leaves, func(f leaf) bool { return f.Key == key })
		switch {
		case i >= 0 && field.Value.Kind == Null: // an empty entry leaves the layer below in force
		case i >= 0:
			f := l.leaves[i]
			l.take(f, source, func() *mistake { return f.setNode(field.Value) })
		case slices.ContainsFunc(l.o.ObsoleteKeys, func(o string) bool { return key == o || strings.HasPrefix(key, o+".") }):
			l.warn("%s in %s has no effect", key, source)
		case !l.groupOf(key):
			l.add(Problem{Setting: key, Source: source, Wrong: "there is no such setting", Right: l.suggestKey(key)})
		case field.Value.Kind == Map:
			l.branch(key+".", field.Value)
		case field.Value.Kind != Null:
			l.add(Problem{Setting: key, Source: source, Wrong: "it holds " + field.Value.Kind.String(), Right: "a mapping of settings is expected"})
		}
	}
}

// groupOf tells whether settings, or obsolete ones, lie below the key.
func (l *loader) groupOf(key string) bool {
	return slices.ContainsFunc(l.leaves, func(f leaf) bool { return strings.HasPrefix(f.Key, key+".") }) ||
		slices.ContainsFunc(l.o.ObsoleteKeys, func(o string) bool { return strings.HasPrefix(o, key+".") })
}

func (l *loader) suggestKey(key string) string {
	keys := make([]string, len(l.leaves))
	for i, f := range l.leaves {
		keys[i] = f.Key
	}
	return suggest(key, keys)
}

func (l *loader) sourceLine(line int) string {
	if line == 0 {
		return l.o.File
	}
	return fmt.Sprintf("%s:%d", l.o.File, line)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxYAML+1)) // the parser refuses what is longer
}

// reasonOf is an error of the file system without the path, which the source names already.
func reasonOf(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}
