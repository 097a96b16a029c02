// Package bundle turns one workflow file and all it imports into one script for a host of JavaScript: the embedded
// engine, or node when the workflow needs what only node has. esbuild does the work, in process.
package bundle

import (
	"fmt"
	"strings"
)

// Options say what to bundle and for whom.
type Options struct {
	// Root is the absolute path of the repository.
	Root string
	// Workflow is the workflow file, relative to Root, with forward slashes.
	Workflow string
	// Program is what the script does with the workflow: "compile" describes it, "run" runs one of its jobs.
	Program string
	// Host is "embedded" or "node"; "" takes embedded unless the workflow needs node.
	Host string
}

// Result is a script ready to run.
type Result struct {
	// Script is a classic script that leaves no global names for the embedded engine, an ES module for node.
	// It may be stored anywhere: what it does not contain it imports by absolute path.
	Script []byte
	// Part is the author's part of an embedded script alone: a classic script to be run once in an engine that has
	// loaded the library with LoadLibrary. Map fits it, too. nil for node.
	Part []byte
	// Map is the source map (version 3). Its sources are paths relative to Options.Root with forward slashes for the
	// author's files, and `kici:…` for embedded ones. See ParseMap.
	Map []byte
	// NeedsNode is the reason why the script was made for node, "" for the embedded engine: the import or the free
	// global and where it stands, e.g. "import of node:os (.kici/workflows/ci.ts:3:25)".
	NeedsNode string
	// Sources are the files of the repository in the script, relative to Options.Root, sorted.
	Sources []string
}

// Diagnostic is one problem at one place of a source file.
type Diagnostic struct {
	// File is relative to the repository, "" when the problem has no place.
	File string
	// Line and Column count from 1; 0 when unknown. Column counts UTF-8 bytes as esbuild does.
	Line, Column int
	Text         string
	// LineText is the whole source line, Length how many bytes of it the problem covers.
	LineText string
	Length   int
}

// Diagnostics is the error of a bundle that could not be made. It is never empty.
type Diagnostics []Diagnostic

// Error gives every problem as `file:line:column: text`, each with its source line and a caret below.
func (d Diagnostics) Error() string {
	var b strings.Builder
	for i, one := range d {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(one.String())
	}
	return b.String()
}

// String gives the problem as `file:line:column: text`, the source line and a caret.
func (d Diagnostic) String() string {
	if d.File == "" {
		return d.Text
	}
	s := fmt.Sprintf("%s:%d:%d: %s", d.File, d.Line, d.Column, d.Text)
	if frame := d.Frame(); frame != "" {
		s += "\n" + frame
	}
	return s
}

// Frame is the source line with a caret under the place, "" when the line is not known. Tabs before the caret are
// kept so that it stands right however wide the terminal shows them.
func (d Diagnostic) Frame() string {
	if d.LineText == "" {
		return ""
	}
	at := min(max(d.Column-1, 0), len(d.LineText))
	pad := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, d.LineText[:at])
	marks := max(1, min(d.Length, len(d.LineText)-at))
	return "    " + d.LineText + "\n    " + pad + strings.Repeat("^", marks)
}
