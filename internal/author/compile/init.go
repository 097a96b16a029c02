package compile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"kici/internal/author/sdk"
)

// InitOptions say where to begin.
type InitOptions struct {
	// Dir is the root of the repository.
	Dir string
	// KiciDir is the folder to make below it; "" is DefaultDir.
	KiciDir string
	// Force writes the files of the scaffold over those that are there. Others stay.
	Force bool
	// JavaScript makes a workflow in plain JavaScript (.mjs).
	JavaScript bool
}

// InitResult is what was made.
type InitResult struct {
	// Files are the files written, relative to InitOptions.Dir with forward slashes, sorted.
	Files []string
	// Workflow is the one among them in which to write.
	Workflow string
}

// ErrExists is the error of Init for a folder that is there already.
var ErrExists = errors.New("the folder of workflows exists already")

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
	res := InitResult{Workflow: filepath.ToSlash(filepath.Join(kiciDir, firstWorkflow(o)))}
	for name, text := range scaffold(root, kiciDir, o) {
		if err := ctx.Err(); err != nil {
			return res, context.Cause(ctx)
		}
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return res, fmt.Errorf("init %s: %w", kiciDir, err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return res, fmt.Errorf("init %s: %w", kiciDir, err)
		}
		res.Files = append(res.Files, filepath.ToSlash(filepath.Join(kiciDir, filepath.FromSlash(name))))
	}
	slices.Sort(res.Files)
	return res, nil
}

func firstWorkflow(o InitOptions) string {
	if o.JavaScript {
		return "workflows/ci.mjs"
	}
	return "workflows/ci.ts"
}

// scaffold gives the files by their path in the folder of workflows.
func scaffold(root, kiciDir string, o InitOptions) map[string]string {
	files := map[string]string{
		firstWorkflow(o):  exampleWorkflow,
		"tsconfig.json":   tsconfig,
		"types/kici.d.ts": sdk.Declarations(),
		"types/host.d.ts": sdk.HostDeclarations(),
		"types/zod.d.ts":  sdk.SchemaDeclarations(),
		"types/README.md": typesReadme,
		".gitignore":      ignored,
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

const exampleWorkflow = `import { workflow, job, step, push, pr } from '@kici-dev/sdk';

// A workflow starts at its triggers and runs its jobs, each on an agent that has the job's labels.
// After a change run ` + "`kici compile`" + ` and commit kici.lock.json together with this file.
export default workflow('ci', {
  on: [push({ branches: 'main' }), pr({ target: 'main' })],
  jobs: [
    job('test', {
      runsOn: 'linux',
      steps: [
        step('hello', async ({ $, log }) => {
          log.info('hello from kici');
          await $` + "`git log -1 --oneline`" + `;
        }),
      ],
    }),
  ],
});
`

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
