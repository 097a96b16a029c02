package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Map finds the place in the author's file for a place in a script.
type Map struct {
	sources []string
	lines   [][]segment // by line of the script, each sorted by column
}

// segment is one mapping: from a column of the script to a place of a source, all counted from 0.
// name is what the author called the thing there, "" when the script calls it the same.
type segment struct {
	column, source, line, sourceColumn int
	name                               string
}

// Place is a position in a source file, counted from 1. File is relative to the repository, or begins with `kici:` for
// an embedded module.
type Place struct {
	File         string
	Line, Column int
}

// Embedded reports whether the place is in a module of ours and not in one of the author's.
func (p Place) Embedded() bool {
	return strings.HasPrefix(p.File, namespace+":") || strings.HasPrefix(p.File, sharedNamespace+":")
}

// ParseMap reads the source map that Build gives.
func ParseMap(raw []byte) (*Map, error) {
	var file struct {
		Sources  []string `json:"sources"`
		Mappings string   `json:"mappings"`
		Names    []string `json:"names"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("read source map: %w", err)
	}
	m := &Map{}
	for _, s := range file.Sources {
		// Sources are relative to the folder of the script, which stands at the repository's root.
		if !strings.HasPrefix(s, namespace) || !strings.Contains(s, ":") {
			s = path.Clean(path.Join(outputDir, s))
		}
		m.sources = append(m.sources, s)
	}
	at := cursor{names: file.Names}
	for line := range strings.SplitSeq(file.Mappings, ";") {
		segments, err := at.decodeLine(line)
		if err != nil {
			return nil, fmt.Errorf("read source map: %w", err)
		}
		m.lines = append(m.lines, segments)
	}
	return m, nil
}

// cursor is where the last mapping stood; each is written as its distance from the one before.
type cursor struct {
	segment
	names []string
	index int // of the last name
}

// decodeLine reads one line of mappings. The places in the sources continue from line to line, the column does not.
func (at *cursor) decodeLine(line string) ([]segment, error) {
	at.column = 0
	var list []segment
	for text := range strings.SplitSeq(line, ",") {
		if text == "" {
			continue
		}
		fields, err := decodeVLQ(text)
		if err != nil {
			return nil, err
		}
		at.column += fields[0]
		if len(fields) < 4 {
			continue
		}
		at.source += fields[1]
		at.line += fields[2]
		at.sourceColumn += fields[3]
		at.name = ""
		if len(fields) > 4 {
			at.index += fields[4]
			if at.index >= 0 && at.index < len(at.names) {
				at.name = at.names[at.index]
			}
		}
		list = append(list, at.segment)
	}
	return list, nil
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

var errVLQ = errors.New("bad mapping")

func decodeVLQ(text string) ([]int, error) {
	var list []int
	value, shift := 0, 0
	for i := range len(text) {
		digit := strings.IndexByte(base64Digits, text[i])
		if digit < 0 || shift > 30 {
			return nil, errVLQ
		}
		value |= (digit & 31) << shift
		if digit&32 != 0 {
			shift += 5
			continue
		}
		if value&1 != 0 {
			list = append(list, -(value >> 1))
		} else {
			list = append(list, value>>1)
		}
		value, shift = 0, 0
	}
	if len(list) == 0 || shift != 0 {
		return nil, errVLQ
	}
	return list, nil
}

// Lookup finds where a place of the script (line and column from 1) comes from.
func (m *Map) Lookup(line, column int) (Place, bool) {
	if line < 1 || line > len(m.lines) {
		return Place{}, false
	}
	segments := m.lines[line-1]
	i, exact := slices.BinarySearchFunc(segments, column-1, func(s segment, c int) int { return s.column - c })
	if !exact {
		i--
	}
	if i < 0 || segments[i].source < 0 || segments[i].source >= len(m.sources) {
		return Place{}, false
	}
	s := segments[i]
	return Place{File: m.sources[s.source], Line: s.line + 1, Column: s.sourceColumn + 1}, true
}

// A frame of a stack trace ends in `name:line:column`, perhaps in brackets.
var frame = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`:(\d+):(\d+)\)?$`) })

// Frames maps a stack trace of the script, as the embedded engine or node print it, to places in sources. Lines that
// are no frames of the script are left out.
func (m *Map) Frames(stack string) []Place {
	var list []Place
	for line := range strings.SplitSeq(stack, "\n") {
		match := frame().FindStringSubmatch(strings.TrimSpace(line))
		if match == nil || strings.Contains(line, "node:") { // a frame of node's own modules has lines of its own
			continue
		}
		row, err1 := strconv.Atoi(match[1])
		column, err2 := strconv.Atoi(match[2])
		if err1 != nil || err2 != nil {
			continue
		}
		if at, ok := m.Lookup(row, column); ok {
			list = append(list, at)
		}
	}
	return list
}

// Author is the innermost place of a stack trace in a file of the author's: not ours and not an installed package's
// unless there is no other.
func (m *Map) Author(stack string) (Place, bool) {
	var fallback Place
	for _, p := range m.Frames(stack) {
		if p.Embedded() {
			continue
		}
		if !strings.Contains("/"+p.File, "/node_modules/") {
			return p, true
		}
		if fallback.File == "" {
			fallback = p
		}
	}
	return fallback, fallback.File != ""
}
