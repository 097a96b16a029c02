package bundle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evanw/esbuild/pkg/api"

	"kici/internal/author/sdk"
)

const (
	// namespace holds the embedded modules, so that they never meet the repository's files.
	namespace = "kici"
	// sharedNamespace holds what stands for them where they are part of a library.
	sharedNamespace = "kici-library"
	// moduleMeta stands for import.meta in a bundle for node: each module has its own, as it has when not bundled.
	moduleMeta = "__kiciMeta"
)

// ownResolve marks a resolution that the plugin itself asked for, so that it does not answer itself.
type ownResolve struct{}

// findings are what the imports of a bundle ask of its host. esbuild calls the plugin from several goroutines.
type findings struct {
	mu      sync.Mutex
	imports []finding // of node's modules and of native packages
}

type finding struct{ what, importer string }

func (f *findings) add(what, importer string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.imports = append(f.imports, finding{what, importer})
}

func (b *build) plugin() api.Plugin {
	return api.Plugin{Name: "kici", Setup: func(pb api.PluginBuild) {
		pb.OnResolve(api.OnResolveOptions{Filter: `.*`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			return b.resolve(pb, a)
		})
		pb.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: namespace}, loadEmbedded)
		pb.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: sharedNamespace}, b.loadShared)
		if b.host == hostNode {
			pb.OnLoad(api.OnLoadOptions{Filter: `\.[cm]?[jt]sx?$`, Namespace: "file"}, loadWithMeta)
		}
	}}
}

func (b *build) resolve(pb api.PluginBuild, a api.OnResolveArgs) (api.OnResolveResult, error) {
	if _, own := a.PluginData.(ownResolve); own {
		return api.OnResolveResult{}, nil
	}
	switch {
	case a.Path == "kici:workflow":
		return api.OnResolveResult{Path: b.workflowPath(), Namespace: "file"}, nil
	case a.Path == "@kici-dev/sdk" && a.Namespace != namespace && b.host == hostEmbedded:
		return api.OnResolveResult{Path: a.Path, Namespace: sharedNamespace}, nil
	case a.Path == "@kici-dev/sdk", a.Namespace == namespace && !isBuiltin(a.Path), strings.HasPrefix(a.Path, "kici:"):
		return embedded(a)
	case a.Path == "zod":
		return b.resolveSchema(pb, a)
	case isOnTheWeb(a.Path) && a.Kind != api.ResolveJSDynamicImport:
		// esbuild would leave the import in the script, which no host could follow.
		return api.OnResolveResult{Errors: []api.Message{{Text: fmt.Sprintf("Could not resolve %q", a.Path)}}}, nil
	case isBuiltin(a.Path):
		b.found.add("import of "+a.Path, a.Importer)
		return api.OnResolveResult{Path: a.Path, External: true}, nil
	case strings.HasSuffix(a.Path, ".node"):
		return b.external(pb, a, "import of native module "+filepath.Base(a.Path))
	case isPackage(a.Path):
		return b.resolvePackage(pb, a)
	}
	return api.OnResolveResult{}, nil
}

func embedded(a api.OnResolveArgs) (api.OnResolveResult, error) {
	importer := ""
	if a.Namespace == namespace {
		importer = a.Importer
	}
	file, ok := sdk.Resolve(importer, a.Path)
	if !ok {
		return api.OnResolveResult{}, fmt.Errorf("no embedded module %q", a.Path)
	}
	return api.OnResolveResult{Path: file, Namespace: namespace, SideEffects: api.SideEffectsTrue}, nil
}

// resolveSchema takes the repository's own zod where it is installed, else the SDK's schema builder.
func (b *build) resolveSchema(pb api.PluginBuild, a api.OnResolveArgs) (api.OnResolveResult, error) {
	if r := b.ask(pb, a); len(r.Errors) == 0 {
		return api.OnResolveResult{Path: r.Path, Namespace: r.Namespace, PluginData: a.PluginData}, nil
	}
	if b.host == hostEmbedded {
		return api.OnResolveResult{Path: a.Path, Namespace: sharedNamespace}, nil
	}
	return embedded(api.OnResolveArgs{Path: a.Path})
}

func (b *build) loadShared(a api.OnLoadArgs) (api.OnLoadResult, error) {
	source := b.library.loadShared(a.Path)
	return api.OnLoadResult{Contents: &source, Loader: api.LoaderJS}, nil
}

// ask lets esbuild resolve the import by its own rules.
func (b *build) ask(pb api.PluginBuild, a api.OnResolveArgs) api.ResolveResult {
	return pb.Resolve(a.Path, api.ResolveOptions{
		Importer: a.Importer, Namespace: a.Namespace, ResolveDir: a.ResolveDir, Kind: a.Kind, PluginData: ownResolve{},
	})
}

// resolvePackage keeps packages with compiled parts out of the bundle: they look for those beside their own files.
func (b *build) resolvePackage(pb api.PluginBuild, a api.OnResolveArgs) (api.OnResolveResult, error) {
	r := b.ask(pb, a)
	if len(r.Errors) > 0 || !isNative(packageDir(r.Path)) {
		return api.OnResolveResult{}, nil // esbuild resolves again, with its own words for an error
	}
	b.found.add("import of native package "+a.Path, a.Importer)
	return api.OnResolveResult{Path: r.Path, External: true}, nil
}

func (b *build) external(pb api.PluginBuild, a api.OnResolveArgs, what string) (api.OnResolveResult, error) {
	b.found.add(what, a.Importer)
	path := a.Path
	if r := b.ask(pb, a); len(r.Errors) == 0 {
		path = r.Path
	} else if a.ResolveDir != "" {
		path = filepath.Join(a.ResolveDir, a.Path)
	}
	return api.OnResolveResult{Path: path, External: true}, nil
}

func loadEmbedded(a api.OnLoadArgs) (api.OnLoadResult, error) {
	source, ok := sdk.Module(a.Path)
	if !ok {
		return api.OnLoadResult{}, fmt.Errorf("no embedded module %q", a.Path)
	}
	return api.OnLoadResult{Contents: &source, Loader: api.LoaderTS}, nil
}

var metaUse = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bimport\.meta\b|\b__dirname\b|\b__filename\b`) })

// loadWithMeta gives a module that asks where it lies the answer it would have without a bundle. The declaration goes
// before the first line's text, so that no line moves.
func loadWithMeta(a api.OnLoadArgs) (api.OnLoadResult, error) {
	raw, err := os.ReadFile(a.Path)
	if err != nil || !metaUse().Match(raw) {
		return api.OnLoadResult{}, err
	}
	url := "file://" + filepath.ToSlash(a.Path)
	source := fmt.Sprintf("var %s = { url: %q, dirname: %q, filename: %q };%s", moduleMeta, url, filepath.Dir(a.Path), a.Path, raw)
	loader := loaderOf(a.Path)
	return api.OnLoadResult{Contents: &source, Loader: loader, ResolveDir: filepath.Dir(a.Path)}, nil
}

// isPackage tells a package's name from a path and from a scheme.
func isPackage(name string) bool {
	return name != "" && name[0] != '.' && name[0] != '#' && !filepath.IsAbs(name) && !strings.Contains(name, ":")
}

func isOnTheWeb(name string) bool {
	return strings.Contains(name, "://") || strings.HasPrefix(name, "//")
}

// packageDir is the folder of the installed package that the file belongs to, "" for a file of no package.
func packageDir(file string) string {
	const mark = "/node_modules/"
	slashed := filepath.ToSlash(file)
	at := strings.LastIndex(slashed, mark)
	if at < 0 {
		return ""
	}
	start := at + len(mark)
	parts := strings.SplitN(slashed[start:], "/", 3)
	if strings.HasPrefix(parts[0], "@") && len(parts) > 1 {
		return filepath.FromSlash(slashed[:start] + parts[0] + "/" + parts[1])
	}
	return filepath.FromSlash(slashed[:start] + parts[0])
}

// isNative reports whether a package carries compiled code: by the files that build tools look for.
func isNative(dir string) bool {
	return dir != "" && (exists(filepath.Join(dir, "binding.gyp")) || exists(filepath.Join(dir, "prebuilds")))
}

// sources lists the repository's files in the bundle.
func (b *build) sources(metafile string) ([]string, error) {
	var meta struct {
		Inputs map[string]json.RawMessage `json:"inputs"`
	}
	if err := json.Unmarshal([]byte(metafile), &meta); err != nil {
		return nil, fmt.Errorf("read bundle metafile: %w", err)
	}
	var list []string
	for name := range meta.Inputs {
		if !strings.HasPrefix(name, namespace+":") && !strings.HasPrefix(name, sharedNamespace+":") && name != "kici:entry" {
			list = append(list, b.relative(name))
		}
	}
	slices.Sort(list)
	return list, nil
}
