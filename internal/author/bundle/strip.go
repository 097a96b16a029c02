package bundle

import (
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"
)

// Strip gives a file of the author's without its types, printed as it is in a bundle but for names, which are the author's
// as Map.AuthorNames gives them. It is for files that have been bundled, and so have no mistakes; of one that has the text
// is "".
func Strip(file, source string) string {
	result := api.Transform(source, api.TransformOptions{
		Loader: loaderOf(file), Target: api.ES2023, Charset: api.CharsetUTF8, TsconfigRaw: tsconfigRaw, LogLevel: api.LogLevelSilent,
		Sourcemap: api.SourceMapExternal, SourcesContent: api.SourcesContentExclude,
	})
	names, err := ParseMap(result.Map)
	if len(result.Errors) > 0 || err != nil {
		return ""
	}
	return names.AuthorNames(result.Code, string(result.Code))
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
