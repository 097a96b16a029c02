package compile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Preset is a first workflow for a sort of repository.
type Preset struct {
	Name  string
	About string   // which repositories it is for
	marks []string // files of which one tells such a repository
	steps func(root string) [][2]string
}

// Presets lists them in the order in which they are tried on a repository. The last one is for every other.
func Presets() []Preset { return slices.Clone(presets) }

var presets = []Preset{
	{"go", "a Go module", []string{"go.mod"}, fixed("vet", "go vet ./...", "test", "go test ./...")},
	{"rust", "a Rust crate", []string{"Cargo.toml"}, fixed("build", "cargo build --locked", "test", "cargo test --locked")},
	{"node", "a package of Node", []string{"package.json"}, nodeSteps},
	{"python", "a Python project", []string{"pyproject.toml", "setup.py", "requirements.txt"}, pythonSteps},
	{"make", "a Makefile", []string{"Makefile", "GNUmakefile", "makefile"}, fixed("build", "make", "test", "make test")},
	{"basic", "any repository", nil, fixed("hello", "echo hello from kici")},
}

func fixed(pairs ...string) func(string) [][2]string {
	return func(string) [][2]string {
		var steps [][2]string
		for pair := range slices.Chunk(pairs, 2) {
			steps = append(steps, [2]string{pair[0], pair[1]})
		}
		return steps
	}
}

func nodeSteps(root string) [][2]string {
	install, test := "npm install", "npm test"
	switch {
	case exists(root, "pnpm-lock.yaml"):
		install, test = "pnpm install --frozen-lockfile", "pnpm test"
	case exists(root, "yarn.lock"):
		install, test = "yarn install --frozen-lockfile", "yarn test"
	case exists(root, "package-lock.json"):
		install = "npm ci"
	}
	return [][2]string{{"install", install}, {"test", test}}
}

// pythonSteps use an environment of their own, since many systems refuse packages in theirs.
func pythonSteps(root string) [][2]string {
	install := ".venv/bin/pip install ."
	if exists(root, "requirements.txt") {
		install = ".venv/bin/pip install -r requirements.txt"
	}
	return [][2]string{{"environment", "python3 -m venv .venv"}, {"install", install}, {"test", ".venv/bin/python -m unittest"}}
}

func exists(root, name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

// choosePreset gives the preset of a name, or the first that fits the repository.
func choosePreset(root, name string) (Preset, error) {
	var names []string
	for _, p := range presets {
		fits := p.marks == nil || slices.ContainsFunc(p.marks, func(mark string) bool { return exists(root, mark) })
		if name == p.Name || name == "" && fits {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("%w %q; there are: %s", ErrPreset, name, strings.Join(names, ", "))
}

// workflow writes the first workflow.
func (p Preset) workflow(root string, registry *Registry) string {
	var steps strings.Builder
	for _, s := range p.steps(root) {
		fmt.Fprintf(&steps, "        step('%s', async ({ $ }) => {\n          await $`%s`;\n        }),\n", s[0], s[1])
	}
	packages := ""
	if registry != nil {
		scope := ""
		if registry.Scope != "" {
			scope = fmt.Sprintf("scope: %s, ", quoted(registry.Scope))
		}
		packages = fmt.Sprintf("  registries: [{ url: %s, %stokenSecret: %s }],\n", quoted(registry.URL), scope, quoted(registry.TokenSecret))
	}
	return strings.NewReplacer("@STEPS@", steps.String(), "@PACKAGES@", packages).Replace(firstText)
}

// quoted writes a text of JavaScript.
func quoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(text) + "'"
}

const firstText = `import { workflow, job, step, push, pr } from '@kici-dev/sdk';

// A workflow starts at its triggers and runs its jobs, each on an agent that has the job's labels.
// After a change run ` + "`kici compile`" + ` and commit kici.lock.json together with this file.
export default workflow('ci', {
  on: [push({ branches: 'main' }), pr({ target: 'main' })],
@PACKAGES@  jobs: [
    job('test', {
      runsOn: 'linux',
      steps: [
@STEPS@      ],
    }),
  ],
});
`
