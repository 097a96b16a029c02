package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kici/internal/agent/sandbox"
)

// installLimit bounds an installation.
const installLimit = 10 * time.Minute

// maxInstallOutput is how much of the output of an installation is kept: its end, which says what failed.
const maxInstallOutput = 64 << 10

// HasPackage tells whether the workflow folder of the repository dir names dependencies.
func (w *Workspace) HasPackage(dir string) bool {
	root, err := inside(w.dir, dir)
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(root, ".kici", "package.json"))
	return err == nil
}

// RestoreDependencies downloads and unpacks the dependencies of the repository dir. They are unpacked into a scratch
// folder first and moved into place then, so that a broken archive leaves no half of them. A wrong hash is a *HashError.
func (w *Workspace) RestoreDependencies(ctx context.Context, client *http.Client, dir string, a Archive) error {
	root, err := inside(w.dir, dir)
	if err != nil {
		return fmt.Errorf("restore dependencies: %w", err)
	}
	scratch := filepath.Join(root, ".kici", ".dep-restore-scratch-"+rand.Text()[:6])
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return fmt.Errorf("restore dependencies: %w", err)
	}
	defer func() { _ = removeAll(scratch) }()
	err = w.withDownload(ctx, client, a, func(f *os.File) error {
		if err := Unpack(ctx, f, scratch); err != nil {
			return err
		}
		return moveInto(scratch, root)
	})
	if err != nil {
		return fmt.Errorf("restore dependencies: %w", err)
	}
	return nil
}

// moveInto moves what lies in from to the same place in to. Folders that exist on both sides are entered, except
// node_modules, which is replaced as a whole.
func moveInto(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		info, err := os.Lstat(target)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case e.IsDir() && info.IsDir() && e.Name() != "node_modules":
			if err := moveInto(source, target); err != nil {
				return err
			}
			continue
		default:
			if err := removeAll(target); err != nil {
				return err
			}
		}
		if err := os.Rename(source, target); err != nil {
			return err
		}
	}
	return nil
}

// Registry is a package registry that needs a token.
type Registry struct {
	URL        string
	Scope      string // "@acme", "" for the default registry
	AlwaysAuth bool
	Token      string
}

// Install says how to install.
type Install struct {
	JobID      string
	Env        []string // of the package manager
	Registries []Registry
	Secrets    map[string]string // further variables of the package manager only
	Log        func(line string)
	// Wrap is a command that runs another one in a sandbox, up to the arguments that name its mounts; nil runs the
	// package manager as it is.
	Wrap []string
}

// InstallDependencies runs the package manager of the repository dir in its workflow folder, unless the dependencies
// are there already. Where tokens are given, packages may run no scripts: those could read them.
func (w *Workspace) InstallDependencies(ctx context.Context, dir string, in Install) error {
	root, err := inside(w.dir, dir)
	if err != nil {
		return fmt.Errorf("install dependencies: %w", err)
	}
	kici := filepath.Join(root, ".kici")
	if _, err := os.Stat(filepath.Join(kici, "node_modules")); err == nil {
		return nil
	}
	if err := checkNeighbours(root, kici); err != nil {
		return fmt.Errorf("install dependencies: %w", err)
	}
	manager := packageManager(root)
	if _, err := exec.LookPath(manager); err != nil {
		return fmt.Errorf("install dependencies: the workflow has a .kici/package.json and this agent has no %s: %w", manager, err)
	}
	store, err := tempDir(w.opts.TempDir)
	if err != nil {
		return fmt.Errorf("install dependencies: %w", err)
	}
	defer func() { _ = removeAll(store) }()
	if err := w.install(ctx, manager, root, store, in); err != nil {
		return err
	}
	return w.buildNeighbours(ctx, root, manager, store, in)
}

// install runs the package manager, with the registries and their tokens.
func (w *Workspace) install(ctx context.Context, manager, root, store string, in Install) error {
	kici := filepath.Join(root, ".kici")
	restore, err := writeNpmrc(kici, &in)
	if err != nil {
		return fmt.Errorf("install dependencies: %w", err)
	}
	defer restore()
	args, env, undo, err := installCommand(manager, root, kici, store, len(in.Registries)+len(in.Secrets) > 0)
	if err != nil {
		return fmt.Errorf("install dependencies: %w", err)
	}
	defer undo()
	in.Log("Installing dependencies with " + manager)
	if err := runInstall(ctx, kici, w.wrapped(in, kici, store, append([]string{manager}, args...)...), append(in.environ(), env...), in); err != nil {
		return fmt.Errorf("install dependencies with %s: %w", manager, err)
	}
	return nil
}

// wrapped is a command in the sandbox of installations, where there is one.
func (w *Workspace) wrapped(in Install, dir, store string, command ...string) []string {
	if in.Wrap == nil {
		return command
	}
	return slices.Concat(in.Wrap, []string{"--bind", w.dir, w.dir, "--bind", store, store, "--chdir", dir, "--"}, command)
}

func (in *Install) environ() []string {
	env := append([]string{}, in.Env...)
	for name, value := range in.Secrets {
		env = append(env, name+"="+value)
	}
	for i, r := range in.Registries {
		env = append(env, in.tokenName(i)+"="+r.Token)
	}
	return env
}

func (in *Install) tokenName(i int) string {
	short := in.JobID
	if len(short) > 8 {
		short = short[:8]
	}
	return fmt.Sprintf("KICI_NPM_TOKEN_%s_%d", short, i)
}

// packageManager looks at the manifests and lock files of the repository, then of the workflow folder.
func packageManager(root string) string {
	for _, dir := range []string{root, filepath.Join(root, ".kici")} {
		name, _, _ := strings.Cut(readManifest(dir).PackageManager, "@")
		if name == "npm" || name == "pnpm" || name == "yarn" {
			return name
		}
		for _, known := range [][2]string{{"pnpm-lock.yaml", "pnpm"}, {"yarn.lock", "yarn"}, {"package-lock.json", "npm"}} {
			if _, err := os.Stat(filepath.Join(dir, known[0])); err == nil {
				return known[1]
			}
		}
	}
	return "npm"
}

// installCommand gives arguments and variables for the package manager, and what undoes the files made for it. Its
// store is private to the job: packages of one job must not reach another.
func installCommand(manager, root, kici, store string, noScripts bool) (args, env []string, undo func(), err error) {
	undo = func() {}
	switch {
	case manager == "pnpm":
		args = []string{"install", "--config.store-dir=" + store, "--config.package-import-method=copy"}
	case manager == "yarn" && !yarnClassic(root, kici):
		undo, err = writeYarnrc(kici, store, noScripts)
		return []string{"install"}, []string{"COREPACK_ENABLE_DOWNLOAD_PROMPT=0"}, undo, err
	case manager == "yarn":
		args = []string{"install", "--cache-folder", store, "--non-interactive", "--no-progress"}
	default:
		args = []string{"install", "--cache", store, "--no-audit", "--no-fund"}
	}
	if noScripts {
		args = append(args, "--ignore-scripts")
	}
	return args, nil, undo, nil
}

// yarnClassic tells yarn 1 from its successors, whose lock files begin differently.
func yarnClassic(root, kici string) bool {
	for _, dir := range []string{root, kici} {
		if _, err := os.Stat(filepath.Join(dir, ".yarnrc.yml")); err == nil {
			return false
		}
		if raw, err := os.ReadFile(filepath.Join(dir, "yarn.lock")); err == nil {
			return !strings.Contains(string(raw[:min(len(raw), 4096)]), "__metadata:")
		}
	}
	return true
}

func writeYarnrc(kici, store string, noScripts bool) (undo func(), err error) {
	text := fmt.Sprintf("nodeLinker: node-modules\nenableGlobalCache: false\ncacheFolder: %q\n", store)
	if noScripts {
		text += "enableScripts: false\n"
	}
	return replaceFile(filepath.Join(kici, ".yarnrc.yml"), func(old string) string { return old + "\n" + text })
}

// writeNpmrc names the registries, with their tokens as references to variables: the file itself holds no secret.
func writeNpmrc(kici string, in *Install) (undo func(), err error) {
	if len(in.Registries) == 0 {
		return func() {}, nil
	}
	var b strings.Builder
	for i, r := range in.Registries {
		u, err := url.Parse(r.URL)
		if err != nil {
			return nil, errors.New("the URL of a registry is malformed")
		}
		prefix := ""
		if r.Scope != "" {
			prefix = r.Scope + ":"
		}
		fmt.Fprintf(&b, "%sregistry=%s\n//%s%s:_authToken=${%s}\n", prefix, r.URL, u.Host, u.Path, in.tokenName(i))
		if r.AlwaysAuth {
			b.WriteString("always-auth=true\n")
		}
	}
	return replaceFile(filepath.Join(kici, ".npmrc"), func(old string) string {
		if old != "" && !strings.HasSuffix(old, "\n") {
			old += "\n"
		}
		return old + b.String()
	})
}

// replaceFile rewrites a file of the repository for a while; undo puts back what was there.
func replaceFile(path string, rewrite func(old string) string) (undo func(), err error) {
	old, readErr := os.ReadFile(path)
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		return nil, readErr
	}
	_ = os.Remove(path) // a link in the repository must not lead the write elsewhere
	if err := os.WriteFile(path, []byte(rewrite(string(old))), 0o600); err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(path)
		if readErr == nil {
			_ = os.WriteFile(path, old, 0o644)
		}
	}, nil
}

func runInstall(ctx context.Context, dir string, command, env []string, in Install) error {
	ctx, cancel := context.WithTimeoutCause(ctx, installLimit, fmt.Errorf("timed out after %v", installLimit))
	defer cancel()
	out := &tail{max: maxInstallOutput}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, out, out
	cmd.WaitDelay = time.Second
	group, err := sandbox.Start(cmd)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = group.Kill() })
	err = group.Wait()
	if !stop() {
		err = context.Cause(ctx)
	}
	_ = group.Kill()
	text := in.redact(strings.ToValidUTF8(out.String(), "?"))
	for line := range strings.Lines(text) {
		in.Log(strings.TrimRight(line, "\r\n"))
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil
}

// redact takes tokens out of what the package manager printed.
func (in *Install) redact(text string) string {
	var pairs []string
	for _, r := range in.Registries {
		if r.Token != "" {
			pairs = append(pairs, r.Token, "***REDACTED***")
		}
	}
	for _, v := range in.Secrets {
		if len(v) >= 3 {
			pairs = append(pairs, v, "***REDACTED***")
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
