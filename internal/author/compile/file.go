package compile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kici/internal/author/bundle"
	"kici/internal/core/cron"
	"kici/internal/core/label"
	"kici/internal/core/lockfile"
	"kici/internal/kit/regex"
)

// unit is one workflow file on its way into the lock file.
type unit struct {
	root, file string // the repository and the file in it, with forward slashes
	source     string

	workflows []workflow
	fixtures  []Fixture
	problems  Diagnostics
	imports   []string // all files of the repository in the bundle
	script    []byte
	needsNode string // why, "" when it does not
	smap      *bundle.Map
	scripts   map[string]printed // by file, as far as they were asked for
}

// workflow is one described workflow: its fields in the order of the lock file, from triggers on.
type workflow struct {
	name, export string
	fields       []field
	at           bundle.Place

	assetDigest string
	assets      []string
	searched    []string // folders in which patterns of hashFiles look for files, there or not
}

type field struct {
	key   string
	value json.RawMessage
}

// The messages of the compile program.
type (
	questions struct {
		Stacks    []string
		Functions []struct{ Text, Stack string }
		Labels    []string
		Regexes   []struct{ Source, Flags string }
		Crons     []struct{ Expression, Timezone string }
		Workflows []struct {
			Name      string
			HashFiles json.RawMessage
			Stack     string
		}
	}
	location struct {
		File   string `json:"file"`
		Line   int    `json:"line"`
		Column int    `json:"column"`
	}
	answers struct {
		File      string          `json:"file"`
		Locations []*location     `json:"locations"`
		Inline    []*string       `json:"inline"`
		Labels    []label.Reading `json:"labels"`
		Guards    []string        `json:"guards"`
		Crons     []string        `json:"crons"`
	}
	description struct {
		Workflows []struct {
			Name, Export string
			Fields       [][2]json.RawMessage
		}
		Fixtures []struct {
			ID      string
			Options json.RawMessage
			Stack   string
		}
		Problems []struct{ Severity, Code, Message, Suggestion, Stack string }
	}
)

// compileUnit describes the workflows of one file. What is wrong with the file is in its problems; an error is a failure
// of the machine.
func compileUnit(ctx context.Context, root, file string) (*unit, error) {
	u := &unit{root: root, file: file}
	raw, err := os.ReadFile(u.path(file))
	if err != nil {
		return nil, fmt.Errorf("read workflow: %w", err)
	}
	u.source = string(raw)
	b, err := bundle.Build(bundle.Options{Root: root, Workflow: file, Program: "compile"})
	var wrong bundle.Diagnostics
	if errors.As(err, &wrong) {
		u.addBundleErrors(wrong)
		return u, nil
	}
	if err != nil {
		return nil, err
	}
	if u.smap, err = bundle.ParseMap(b.Map); err != nil {
		return nil, err
	}
	u.script, u.imports, u.needsNode = b.Script, b.Sources, b.NeedsNode
	return u, u.evaluate(ctx, b)
}

func (u *unit) path(file string) string { return filepath.Join(u.root, filepath.FromSlash(file)) }

// lockFile is the one that this becomes a part of. It is never one of hashFiles: then each compilation would change it.
func (u *unit) lockFile() string { return path.Join(path.Dir(path.Dir(u.file)), LockName) }

func (u *unit) evaluate(ctx context.Context, b bundle.Result) error {
	e, err := newEvaluator(ctx, u.root, b)
	if err != nil {
		return u.loadFailure(err)
	}
	defer e.close()
	var q questions
	if err := ask(ctx, e, "survey", nil, &q); err != nil {
		return u.loadFailure(err)
	}
	var d description
	if err := ask(ctx, e, "describe", u.answer(q), &d); err != nil {
		return u.loadFailure(err)
	}
	for _, p := range d.Problems {
		u.problem(p.Severity, p.Code, p.Message, p.Suggestion, p.Stack)
	}
	return u.collect(q, d)
}

func ask(ctx context.Context, e evaluator, function string, argument, answer any) error {
	raw, err := json.Marshal(argument)
	if err != nil {
		return fmt.Errorf("encode %s: %w", function, err)
	}
	reply, err := e.call(ctx, function, raw)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(reply, answer); err != nil {
		return fmt.Errorf("decode answer of %s: %w", function, err)
	}
	return nil
}

// answer decides what the program cannot: places, the texts of pure functions, the safety of regular
// expressions and time tables.
func (u *unit) answer(q questions) answers {
	a := answers{File: u.file, Locations: []*location{}, Inline: []*string{}, Labels: label.Read(q.Labels), Guards: []string{}, Crons: []string{}}
	for _, stack := range q.Stacks {
		var at *location
		if p, ok := u.smap.Author(stack); ok {
			at = &location{p.File, p.Line, p.Column}
		}
		a.Locations = append(a.Locations, at)
	}
	for _, f := range q.Functions {
		var quoted *string
		if pure(f.Text) {
			named := u.quoted(u.smap.AuthorNames(u.script, f.Text), f.Stack)
			quoted = &named
		}
		a.Inline = append(a.Inline, quoted)
	}
	for _, r := range q.Regexes {
		a.Guards = append(a.Guards, reasonOf(regex.Guard(r.Source, r.Flags)))
	}
	for _, c := range q.Crons {
		a.Crons = append(a.Crons, reasonOf(cron.Check(c.Expression, c.Timezone)))
	}
	return a
}

// quoted lays out the text of a function as it stands in the file that has it: that of the job, or another one of the
// bundle. A text of one line is the same wherever it stands, but
// for a template, which only its file has as it was written.
func (u *unit) quoted(function, jobStack string) string {
	alone := layOut(function, "").text
	if !strings.ContainsAny(alone, "\n`") {
		return alone
	}
	job, _ := u.smap.Author(jobStack)
	for _, file := range append([]string{cmp.Or(job.File, u.file)}, u.imports...) {
		script := u.printed(file)
		line := 0
		if file == job.File {
			line = script.Line(job)
		}
		if text := script.quote(line, function); text != "" {
			return text
		}
	}
	return alone
}

// printed is a file of the author's as other compilers print it.
type printed struct {
	bundle.Stripped
	laidOut
}

// printed prints a file, none that is no script. It is in the bundle, so that it can be read and has no mistakes.
func (u *unit) printed(file string) printed {
	if script, known := u.scripts[file]; known {
		return script
	}
	var script printed
	if raw, err := os.ReadFile(u.path(file)); err == nil && !strings.Contains("/"+file, "/node_modules/") {
		script.Stripped = bundle.Strip(file, string(raw))
		script.laidOut = layOut(script.Text, string(raw))
	}
	if u.scripts == nil {
		u.scripts = map[string]printed{}
	}
	u.scripts[file] = script
	return script
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (u *unit) collect(q questions, d description) error {
	for i, w := range d.Workflows {
		one := workflow{name: w.Name, export: w.Export}
		for _, pair := range w.Fields {
			var key string
			if err := json.Unmarshal(pair[0], &key); err != nil {
				return fmt.Errorf("decode description: %w", err)
			}
			one.fields = append(one.fields, field{key, pair[1]})
		}
		one.at, _ = u.smap.Author(q.Workflows[i].Stack)
		var patterns []string
		// Patterns that are no list of texts are among the problems already.
		if json.Unmarshal(q.Workflows[i].HashFiles, &patterns) == nil && len(patterns) > 0 {
			var err error
			files := &askedFiles{FS: os.DirFS(u.root)}
			patterns = append(patterns, "!"+u.lockFile())
			if one.assetDigest, one.assets, err = lockfile.AssetDigest(files, patterns); err != nil {
				u.problem(SeverityError, "E119", "hashFiles: "+err.Error(), "", q.Workflows[i].Stack)
			}
			one.searched = slices.DeleteFunc(files.names, func(name string) bool { return slices.Contains(one.assets, name) })
		}
		u.workflows = append(u.workflows, one)
	}
	for _, f := range d.Fixtures {
		one := Fixture{ID: f.ID, File: u.file, Options: f.Options}
		one.at, _ = u.smap.Author(f.Stack)
		u.fixtures = append(u.fixtures, one)
	}
	return nil
}

// loadFailure makes a mistake of the file out of what its evaluation threw; other errors stay errors.
func (u *unit) loadFailure(err error) error {
	var f *failure
	if !errors.As(err, &f) {
		return err
	}
	suggestion := ""
	if f.stack == "" && f.thrown {
		suggestion = "throw an Error: other values do not know where they were thrown"
	}
	u.problem(SeverityError, "E003", f.message, suggestion, f.stack)
	return nil
}

func (u *unit) problem(severity, code, text, suggestion, stack string) {
	d := Diagnostic{File: u.file, Severity: severity, Code: code, Text: text, Suggestion: suggestion}
	if at, ok := u.smap.Author(stack); ok {
		d.File, d.Line, d.Column = at.File, at.Line, at.Column
		d.Frame = u.frame(at)
	}
	u.problems = append(u.problems, d)
}

func (u *unit) addBundleErrors(list bundle.Diagnostics) {
	for _, b := range list {
		d := Diagnostic{File: b.File, Line: b.Line, Column: b.Column, Severity: SeverityError, Code: "E003", Text: b.Text, Frame: frame(b.LineText, b.Column, b.Length)}
		if d.File == "" {
			d.File = u.file
		}
		if name, ok := strings.CutPrefix(b.Text, "Could not resolve "); ok {
			d.Suggestion = suggestImport(strings.TrimPrefix(name, `"`))
		}
		u.problems = append(u.problems, d)
	}
}

// suggestImport says how something can be imported that was not found.
func suggestImport(name string) string {
	switch {
	case strings.Contains(name, "://"), strings.HasPrefix(name, "//"):
		return "workflows import files of the repository and installed packages, nothing from the web"
	case strings.HasPrefix(name, "."), strings.HasPrefix(name, "/"):
		return "a path begins at the file that imports it; correct it, or add the file"
	}
	return "install the package where the workflows can find it, or correct its name"
}

// frame shows the line of the place, which may be in another file that this one imports.
func (u *unit) frame(at bundle.Place) string {
	source := u.source
	if at.File != u.file {
		raw, err := os.ReadFile(u.path(at.File))
		if err != nil {
			return "" // the place itself is still named
		}
		source = string(raw)
	}
	lines := strings.Split(source, "\n")
	if at.Line > len(lines) {
		return ""
	}
	text := strings.TrimRight(lines[at.Line-1], "\r")
	return frame(text, byteColumn(text, at.Column), 1)
}

// workflowFiles lists the files of a folder that may hold workflows, as paths from the repository's root.
func workflowFiles(root, kiciDir string) ([]string, error) {
	folder := filepath.Join(root, kiciDir, "workflows")
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list workflows: %w", err)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && isWorkflowFile(e.Name()) {
			files = append(files, filepath.ToSlash(filepath.Join(kiciDir, "workflows", e.Name())))
		}
	}
	return files, nil
}

func isWorkflowFile(name string) bool {
	base, ext := strings.TrimSuffix(name, filepath.Ext(name)), filepath.Ext(name)
	switch ext {
	case ".ts", ".mts", ".tsx", ".js", ".mjs":
	default:
		return false
	}
	return !strings.HasPrefix(name, ".") && !strings.HasSuffix(base, ".d") && !strings.HasSuffix(base, ".test") && !strings.HasSuffix(base, ".spec")
}

// encode writes a value as ECMAScript would: no escapes for the sake of HTML.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
