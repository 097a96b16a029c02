package compile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kici/internal/author/sdk"
)

// InitOptions say where to begin, and with what.
type InitOptions struct {
	// Dir is the root of the repository.
	Dir string
	// KiciDir is the folder to make below it; "" is DefaultDir.
	KiciDir string
	// Force writes the files of the scaffold over those that are there. Others stay, and so does what is the author's: a
	// package.json, and the workflows, beside which no first one is made.
	Force bool
	// JavaScript makes a workflow in plain JavaScript (.mjs).
	JavaScript bool
	// Preset is the name of one of Presets; "" takes the first that fits the repository.
	Preset string
	// Agents adds a page for programs that write workflows.
	Agents bool
	// Packages adds a package.json, for workflows that import packages.
	Packages bool
	// Registry is a private one, from which the packages come; nil: there is none.
	Registry *Registry
}

// Registry is a private registry of packages as a workflow names it.
type Registry struct {
	URL, Scope  string
	TokenSecret string // <context>:<secret>
}

// InitResult is what was made.
type InitResult struct {
	// Files are the files written, sorted by their paths.
	Files []File
	// Kept are files of the author's that are there already and stayed as they are.
	Kept []string
	// Workflow is the file in which to write.
	Workflow string
	// Preset is the one that was taken.
	Preset Preset
}

// File is one that was made.
type File struct {
	Path  string `json:"path"` // relative to InitOptions.Dir, with forward slashes
	About string `json:"about"`
}

// ErrExists is the error of Init for a folder that is there already.
var ErrExists = errors.New("the folder of workflows exists already")

// ErrPreset is the error of Init for a preset that there is not.
var ErrPreset = errors.New("no preset is called")

// Init makes the folder of workflows: one workflow, the types for an editor and what git must not see. It refuses an
// existing folder with ErrExists unless InitOptions.Force is set.
func Init(ctx context.Context, o InitOptions) (InitResult, error) {
	root, kiciDir, err := Options{Dir: o.Dir, KiciDir: o.KiciDir}.folders()
	if err != nil {
		return InitResult{}, err
	}
	folder := filepath.Join(root, kiciDir)
	if _, err := os.Stat(folder); err == nil && !o.Force {
		return InitResult{}, fmt.Errorf("init %s: %w", kiciDir, ErrExists)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return InitResult{}, fmt.Errorf("init %s: %w", kiciDir, err)
	}
	preset, err := choosePreset(root, o.Preset)
	if err != nil {
		return InitResult{}, fmt.Errorf("init %s: %w", kiciDir, err)
	}
	res := InitResult{Workflow: filepath.ToSlash(filepath.Join(kiciDir, firstWorkflow(o))), Preset: preset}
	files := scaffold(root, kiciDir, preset, o)
	if res.Kept, err = authors(root, kiciDir, files); err != nil {
		return InitResult{}, fmt.Errorf("init %s: %w", kiciDir, err)
	}
	if _, made := files[firstWorkflow(o)]; !made {
		res.Workflow = res.Kept[0]
	}
	for name, made := range files {
		if err := ctx.Err(); err != nil {
			return res, context.Cause(ctx)
		}
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return res, fmt.Errorf("init %s: %w", kiciDir, err)
		}
		if err := os.WriteFile(path, []byte(made.text), 0o644); err != nil {
			return res, fmt.Errorf("init %s: %w", kiciDir, err)
		}
		res.Files = append(res.Files, File{filepath.ToSlash(filepath.Join(kiciDir, filepath.FromSlash(name))), made.about})
	}
	slices.SortFunc(res.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return res, nil
}

// authors takes from the scaffold what the author has already, and lists that.
func authors(root, kiciDir string, files map[string]made) (kept []string, err error) {
	kept, err = workflowFiles(root, kiciDir)
	if err != nil {
		return nil, err
	}
	if len(kept) > 0 {
		maps.DeleteFunc(files, func(name string, _ made) bool { return strings.HasPrefix(name, "workflows/") })
	}
	if _, asked := files["package.json"]; asked && exists(filepath.Join(root, kiciDir), "package.json") {
		delete(files, "package.json")
		kept = append(kept, filepath.ToSlash(filepath.Join(kiciDir, "package.json")))
	}
	return kept, nil
}

func firstWorkflow(o InitOptions) string {
	if o.JavaScript {
		return "workflows/ci.mjs"
	}
	return "workflows/ci.ts"
}

// made is a file of the scaffold.
type made struct{ text, about string }

// scaffold gives the files by their path in the folder of workflows.
func scaffold(root, kiciDir string, preset Preset, o InitOptions) map[string]made {
	const types = "what the SDK offers, for your editor"
	files := map[string]made{
		firstWorkflow(o):  {preset.workflow(root, o.Registry), "your workflow: write it here"},
		"tsconfig.json":   {tsconfig, "how an editor reads the workflows"},
		"types/kici.d.ts": {sdk.Declarations(), types},
		"types/host.d.ts": {sdk.HostDeclarations(), "what the built-in JavaScript host offers"},
		"types/zod.d.ts":  {sdk.SchemaDeclarations(), "the schemas of inputs and outputs"},
		"types/README.md": {typesReadme, "how to write the types again"},
		".gitignore":      {ignored, "keeps packages and secrets out of git"},
	}
	if o.Agents {
		files["AGENTS.md"] = made{agentsPage, "what coding agents must know"}
	}
	if o.Packages || o.Registry != nil {
		files["package.json"] = made{packageFile, "the packages that workflows import"}
	}
	// The types of an installed zod are its own.
	for dir := filepath.Join(root, kiciDir); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "node_modules", "zod")); err == nil {
			delete(files, "types/zod.d.ts")
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return files
}

const tsconfig = `{
  "compilerOptions": {
    "target": "ES2023",
    "lib": ["ES2023"],
    "module": "ESNext",
    "moduleResolution": "Bundler",
    "strict": true,
    "allowJs": true,
    "noEmit": true,
    "skipLibCheck": true
  },
  "include": ["workflows", "lib", "types"]
}
`

const ignored = `node_modules/
.secrets
.env.local
secrets.yaml
`

const typesReadme = `# Types

Declarations of the modules that the kici binary contains, so that an editor knows them. ` + "`kici init --force`" + ` writes
them again, for example after an upgrade. Workflows run without them.
`

const packageFile = `{
  "private": true,
  "type": "module",
  "devDependencies": {
    "typescript": "^5.9.0"
  }
}
`

const agentsPage = `# Workflows of this repository

The files in workflows/ are TypeScript. Each exports workflows, made with the factories of ` + "`@kici-dev/sdk`" + `, whose types
are in types/kici.d.ts: read that file before you write. The module needs no installation.

- ` + "`kici compile`" + ` checks the workflows and writes kici.lock.json. Run it after every change and commit both.
- ` + "`kici preview push --json`" + ` shows which workflows an event starts, why, and with which jobs. It runs nothing.
- ` + "`kici run local push --json`" + ` runs them on this machine, on a copy of the repository.
- ` + "`kici fixture list`" + ` names the events to try.

Exit codes are 0 for success, 1 for failure, and 2 for a call that cannot be followed or a lock file that is out of date.
Secrets are never written into a workflow: a step reads them with ` + "`await secrets.get('NAME')`" + `.
`
