package bundle

import (
	"path/filepath"
	"slices"

	"github.com/evanw/esbuild/pkg/api"
)

// Stripped is a file of the author's without its types, printed as it is in a bundle but for names, which are the author's
// as Map.AuthorNames gives them.
type Stripped struct {
	Text  string
	lines *Map
}

// Strip takes the types out of a file. It is for files that have been bundled, and so have no mistakes; one that has gives
// no text.
func Strip(file, source string) Stripped {
	result := api.Transform(source, api.TransformOptions{
		Loader: loaderOf(file), Target: api.ES2023, Charset: api.CharsetUTF8, TsconfigRaw: tsconfigRaw, LogLevel: api.LogLevelSilent,
		Sourcemap: api.SourceMapExternal, SourcesContent: api.SourcesContentExclude,
	})
	lines, err := ParseMap(result.Map)
	if len(result.Errors) > 0 || err != nil {
		return Stripped{}
	}
	return Stripped{lines.AuthorNames(result.Code, string(result.Code)), lines}
}

// Line is the line of the text, counted from 1, with what stands at a place of the file; 0 where nothing does.
func (s Stripped) Line(at Place) int {
	if s.lines == nil {
		return 0
	}
	return 1 + slices.IndexFunc(s.lines.lines, func(segments []segment) bool {
		return slices.ContainsFunc(segments, func(one segment) bool { return one.line == at.Line-1 && one.sourceColumn == at.Column-1 })
	})
}

// loaderOf tells by its name how a script is read.
func loaderOf(file string) api.Loader {
	switch filepath.Ext(file) {
	case ".ts", ".mts", ".cts":
		return api.LoaderTS
	case ".tsx":
		return api.LoaderTSX
	case ".jsx":
		return api.LoaderJSX
	}
	return api.LoaderJS
}
