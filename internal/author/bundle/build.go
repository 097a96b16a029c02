package bundle

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"kici/internal/author/sdk"
)

const (
	// outputDir is where the script stands as far as its source map is concerned.
	outputDir = ".kici-bundle"

	hostEmbedded = "embedded"
	hostNode     = "node"
)

// programs maps Options.Program to the embedded module that is its entry. One named with "-node" in addition is the
// entry for node, where there is one.
var programs = map[string]string{
	"compile": "kici:compile",
	"run":     "kici:runner",
}

// entry is the module at which the bundle begins.
func (b *build) entry() string {
	name := programs[b.Program]
	if _, ok := sdk.Module(name + "-node"); ok && b.host == hostNode {
		return name + "-node"
	}
	return name
}

// Build bundles the workflow with the program for a host. Without Options.Host the embedded engine is tried first; when
// the bundle asks for something that only node has, it is made again for node and Result.NeedsNode says why. A bundle
// that cannot be made is a Diagnostics error.
func Build(o Options) (Result, error) {
	if err := o.check(); err != nil {
		return Result{}, err
	}
	if o.Host == hostNode {
		return o.build(hostNode, "the node host was asked for")
	}
	b := newBuild(o, hostEmbedded)
	var err error
	if b.library, err = libraries[o.Program](); err != nil {
		return Result{}, err
	}
	out := api.Build(b.options())
	reason, err := b.needsNode(out)
	if err != nil {
		return Result{}, err
	}
	if reason == "" {
		return b.result(out)
	}
	if o.Host == hostEmbedded {
		return Result{}, Diagnostics{{Text: "the embedded host cannot run this workflow: " + reason}}
	}
	return o.build(hostNode, reason)
}

func (o Options) build(host, reason string) (Result, error) {
	b := newBuild(o, host)
	out := api.Build(b.options())
	if len(out.Errors) > 0 {
		return Result{}, b.diagnostics(out.Errors)
	}
	res, err := b.result(out)
	res.NeedsNode = reason
	return res, err
}

func (o Options) check() error {
	if programs[o.Program] == "" {
		return fmt.Errorf("bundle workflow: unknown program %q", o.Program)
	}
	if o.Host != "" && o.Host != hostEmbedded && o.Host != hostNode {
		return fmt.Errorf("bundle workflow: unknown host %q", o.Host)
	}
	if !filepath.IsAbs(o.Root) {
		return fmt.Errorf("bundle workflow: root %q is not absolute", o.Root)
	}
	if !filepath.IsLocal(filepath.FromSlash(o.Workflow)) {
		return fmt.Errorf("bundle workflow: %q is not a path inside the repository", o.Workflow)
	}
	return nil
}

// build is one run of esbuild and what its plugin notes on the way.
type build struct {
	Options
	host    string
	found   *findings
	library library // for the embedded engine only
}

func newBuild(o Options, host string) *build {
	// Symbolic links in the root would otherwise show as paths that lead out of the repository.
	if real, err := filepath.EvalSymlinks(o.Root); err == nil {
		o.Root = real
	}
	return &build{Options: o, host: host, found: &findings{}}
}

func (b *build) workflowPath() string {
	return filepath.Join(b.Root, filepath.FromSlash(b.Workflow))
}

// tsconfigRaw stands for the author's tsconfig, which may ask for settings that concern an editor only.
const tsconfigRaw = `{"compilerOptions":{"target":"ES2023","useDefineForClassFields":true}}`

// options are esbuild's.
func (b *build) options() api.BuildOptions {
	o := api.BuildOptions{
		AbsWorkingDir:     b.Root,
		Bundle:            true,
		Write:             false,
		Format:            api.FormatESModule,
		Target:            api.ES2023,
		Charset:           api.CharsetUTF8,
		Sourcemap:         api.SourceMapExternal,
		SourcesContent:    api.SourcesContentExclude,
		Metafile:          true,
		LogLevel:          api.LogLevelSilent,
		LogLimit:          50,
		TreeShaking:       api.TreeShakingTrue,
		ResolveExtensions: []string{".ts", ".tsx", ".mts", ".cts", ".mjs", ".js", ".cjs", ".jsx", ".json"},
		TsconfigRaw:       tsconfigRaw,
		Plugins:           []api.Plugin{b.plugin()},
		// Nothing is written; the paths in the map are relative to this folder.
		Outfile: filepath.Join(b.Root, outputDir, "script.js"),
	}
	if b.host == hostNode {
		o.Stdin = &api.StdinOptions{Contents: reservedNames + fmt.Sprintf("import %q;", b.entry()), Sourcefile: "kici:entry"}
		o.Platform = api.PlatformNode
		o.Banner = map[string]string{"js": b.nodeBanner()}
		o.Define = map[string]string{"import.meta": moduleMeta, "__dirname": moduleMeta + ".dirname", "__filename": moduleMeta + ".filename"}
		return o
	}
	o.Platform = api.PlatformNeutral
	o.MainFields = []string{"module", "main"}
	o.Stdin = &api.StdinOptions{Contents: authorEntry, Sourcefile: "kici:entry"}
	o.Banner = map[string]string{"js": scriptHead}
	o.Define = freeGlobalDefines()
	// A classic script cannot wait while it is evaluated.
	o.Supported = map[string]bool{"top-level-await": false}
	return o
}

// nodeBanner gives CommonJS code inside an ES module its require, rooted at the workflow so that a script stored
// elsewhere finds the repository's packages.
func (b *build) nodeBanner() string {
	return fmt.Sprintf("import { createRequire as __kiciCreateRequire } from \"node:module\"; const require = __kiciCreateRequire(%q);", b.workflowPath())
}

func (b *build) result(out api.BuildResult) (Result, error) {
	if len(out.Errors) > 0 {
		return Result{}, b.diagnostics(out.Errors)
	}
	var res Result
	for _, f := range out.OutputFiles {
		if strings.HasSuffix(f.Path, ".map") {
			res.Map = f.Contents
		} else {
			res.Script, res.Part = b.whole(f.Contents)
		}
	}
	sources, err := b.sources(out.Metafile)
	if err != nil {
		return Result{}, err
	}
	res.Sources = sources
	return res, nil
}

// whole adds the library to the author's part of a script. The part alone has another head of one line, so the same
// source map fits both.
func (b *build) whole(out []byte) (script, part []byte) {
	if b.host == hostNode {
		return out, nil
	}
	script = slices.Concat(out, []byte(scriptMid), []byte(b.library.text), []byte(scriptTail))
	body := bytes.TrimPrefix(out, []byte(scriptHead))
	return script, slices.Concat([]byte(partHead), body, []byte(partTail))
}

// diagnostics turns esbuild's messages into ours. Files outside the repository keep their absolute path.
func (b *build) diagnostics(messages []api.Message) Diagnostics {
	var list Diagnostics
	for _, m := range messages {
		d := Diagnostic{Text: publicName(m.Text)}
		if at := m.Location; at != nil {
			d.File, d.Line, d.Column = b.relative(at.File), at.Line, at.Column+1
			d.LineText, d.Length = at.LineText, at.Length
		}
		list = append(list, d)
	}
	slices.SortStableFunc(list, func(a, b Diagnostic) int { return strings.Compare(a.File, b.File) })
	return list
}

// publicName names embedded modules in a message as authors import them.
func publicName(text string) string {
	for _, name := range []string{"@kici-dev/sdk", "zod"} {
		if file, ok := sdk.Resolve("", name); ok {
			text = strings.ReplaceAll(text, namespace+":"+file, name)
		}
	}
	return strings.ReplaceAll(text, sharedNamespace+":", "")
}

// relative is the path as a person knows it: from the repository's root, with forward slashes.
func (b *build) relative(file string) string {
	if !filepath.IsAbs(file) {
		return filepath.ToSlash(file)
	}
	rel, err := filepath.Rel(b.Root, file)
	if err != nil || !filepath.IsLocal(rel) {
		return filepath.ToSlash(file)
	}
	return filepath.ToSlash(rel)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
