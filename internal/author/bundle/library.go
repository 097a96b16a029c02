package bundle

import (
	"embed"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/evanw/esbuild/pkg/api"

	"kici/internal/author/sdk"
)

// A library is all of ours that a script for the embedded engine contains: the SDK, its schema builder and one program,
// as one CommonJS module that requires `kici:workflow`. It is the same for every workflow, so a bundle only has to parse
// the author's files. Bundles for node do not use it: there the author's module may await while it is loaded, which only
// a real ES module can.
type library struct {
	text    string
	exports map[string][]string // what each module exports, by the name that authors import
}

// libraryHead is the first line of a prebuilt library, after two slashes.
type libraryHead struct {
	Digest  string              `json:"digest"`
	Exports map[string][]string `json:"exports"`
}

//go:generate go test . -run TestPrebuiltLibrariesAreCurrent -update

//go:embed prebuilt/*.js
var prebuilt embed.FS

// libraries makes each program's library once in a process.
var libraries = map[string]func() (library, error){
	"compile": sync.OnceValues(func() (library, error) { return loadLibrary("compile") }),
	"run":     sync.OnceValues(func() (library, error) { return loadLibrary("run") }),
}

// loadLibrary takes the prebuilt library when it was made of the modules that are embedded now, else makes it. Only the
// time differs.
func loadLibrary(program string) (library, error) {
	raw, err := prebuilt.ReadFile("prebuilt/" + program + ".js")
	if err != nil {
		return makeLibrary(program)
	}
	first, text, _ := strings.Cut(string(raw), "\n")
	var head libraryHead
	if err := json.Unmarshal([]byte(strings.TrimPrefix(first, "// ")), &head); err != nil || head.Digest != sdk.Digest() {
		return makeLibrary(program)
	}
	return library{text: text, exports: head.Exports}, nil
}

// shared are the modules of a library that authors may import, by the name under which the library exports them.
var shared = map[string]string{"@kici-dev/sdk": "sdk", "zod": "zod"}

// makeLibrary bundles the embedded modules.
func makeLibrary(program string) (library, error) {
	entry := fmt.Sprintf("export * as sdk from '@kici-dev/sdk';\nexport * as zod from 'zod';\nimport %q;\n", programs[program])
	out, err := buildEmbedded(entry, api.FormatCommonJS)
	if err != nil {
		return library{}, err
	}
	l := library{text: string(out.OutputFiles[0].Contents), exports: map[string][]string{}}
	for name := range shared {
		if l.exports[name], err = exportsOf(name); err != nil {
			return library{}, err
		}
	}
	return l, nil
}

// exportsOf lists the names that an embedded module exports.
func exportsOf(name string) ([]string, error) {
	out, err := buildEmbedded(fmt.Sprintf("export * from %q;", name), api.FormatESModule)
	if err != nil {
		return nil, err
	}
	var meta struct {
		Outputs map[string]struct{ Exports []string }
	}
	if err := json.Unmarshal([]byte(out.Metafile), &meta); err != nil {
		return nil, fmt.Errorf("read library metafile: %w", err)
	}
	for _, o := range meta.Outputs {
		return o.Exports, nil
	}
	return nil, fmt.Errorf("module %q exports nothing", name)
}

func buildEmbedded(entry string, format api.Format) (api.BuildResult, error) {
	out := api.Build(api.BuildOptions{
		Stdin:            &api.StdinOptions{Contents: entry, Sourcefile: "library.ts", Loader: api.LoaderTS},
		Bundle:           true,
		Write:            false,
		Format:           format,
		Platform:         api.PlatformNeutral,
		Target:           api.ES2023,
		Charset:          api.CharsetUTF8,
		MinifyWhitespace: true,
		MinifySyntax:     true,
		Metafile:         true,
		LogLevel:         api.LogLevelSilent,
		TsconfigRaw:      tsconfigRaw,
		Plugins: []api.Plugin{{Name: "kici", Setup: func(pb api.PluginBuild) {
			pb.OnResolve(api.OnResolveOptions{Filter: `.*`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
				if a.Path == "kici:workflow" {
					return api.OnResolveResult{Path: a.Path, External: true}, nil
				}
				return embedded(a)
			})
			pb.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: namespace}, loadEmbedded)
		}}},
	})
	if len(out.Errors) > 0 {
		return out, fmt.Errorf("bundle embedded modules: %s", out.Errors[0].Text)
	}
	return out, nil
}

// prebuiltText is the text of the file that holds a library.
func prebuiltText(l library) (string, error) {
	head, err := json.Marshal(libraryHead{Digest: sdk.Digest(), Exports: l.exports})
	if err != nil {
		return "", err
	}
	return "// " + string(head) + "\n" + l.text, nil
}

// The script for the embedded engine: the author's modules as a function, then the library, which runs the program and
// with it that function. The author's part comes first so that the source map needs no offset but the head's line. It
// is an ES module without imports or exports, wrapped by hand: esbuild's own wrapper indents the body, and with it the
// text of the functions that a lock file quotes. A block keeps the names to itself; brackets around all would make the
// engine read the text twice, since it looks behind a bracket for an arrow.
const (
	scriptHead = `"use strict"; { const __kiciLibrary = { exports: {} }; const __kiciAuthor = function () { let __kiciNamespace;`
	scriptMid  = "return __kiciNamespace; };\nconst __kiciProgram = function (module, exports, require) {\n"
	scriptTail = "};\n__kiciProgram(__kiciLibrary, __kiciLibrary.exports, __kiciAuthor);\n}\n"

	// The same for an engine that has loaded the library already, see LoadLibrary.
	partHead = `"use strict"; __kiciStart(function (__kiciLibrary) { let __kiciNamespace;`
	partTail = "return __kiciNamespace; });\n"

	// authorEntry hands the author's exports out of the function, marked as those of an ES module: the library takes
	// the default export of any other kind of module to be the module itself.
	authorEntry = reservedNames + `import * as namespace from "kici:workflow"; __kiciNamespace = { ...namespace, __esModule: true };`

	// reservedNames is code that leaves nothing in a bundle but makes esbuild rename what an author calls like these: a
	// function whose text still has such a name means the built-in of the language and no other thing.
	reservedNames = `() => [undefined, NaN, Infinity, String, Number, Boolean, Array, Object, JSON, Math, parseInt, parseFloat,
isNaN, isFinite, encodeURIComponent, decodeURIComponent, encodeURI, decodeURI];
`
)

// loadShared gives a module of the library to the author's part of the script. Its names are such as no author writes,
// lest esbuild renames the author's.
func (l library) loadShared(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "const %s = __kiciLibrary.exports.%s;\n", sharedPrefix, shared[name])
	for _, export := range l.exports[name] {
		fmt.Fprintf(&b, "const %s_%s = %s.%s;\nexport { %s_%s as %s };\n", sharedPrefix, export, sharedPrefix, export, sharedPrefix, export, export)
	}
	return b.String()
}

const sharedPrefix = "__kici"
