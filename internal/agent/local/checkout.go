//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kici/internal/agent/workspace"
)

// fetch makes the folder of a job a copy of the repository as it lies there.
func (w *worker) fetch(ws *workspace.Workspace) error {
	if err := w.copyRepository(w.r.o.Root, ws.Dir(), ""); err != nil {
		return fmt.Errorf("copy repository: %w", err)
	}
	return w.fetchDependencies(ws)
}

// copyRepository copies a repository, or a submodule that lies below within: the history, and the files that git knows or
// would take in, with every change that is not committed.
func (w *worker) copyRepository(root, dir, within string) error {
	clone := []string{"clone", "--quiet", "--no-checkout", root, dir}
	if w.order.image == "" {
		// The copy shares the objects of the repository, which git never changes. A container could not reach them.
		clone = append(clone, "--shared")
	}
	if _, err := git(w.ctx, root, clone...); err != nil {
		return err
	}
	if _, err := git(w.ctx, dir, "rev-parse", "--verify", "--quiet", "HEAD"); err == nil {
		if _, err := git(w.ctx, dir, "reset", "--quiet"); err != nil { // the index of a check-out
			return err
		}
	}
	list, err := git(w.ctx, root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimSuffix(list, "\x00"), "\x00") {
		if !w.order.checkout && !strings.HasPrefix(within+name, filepath.ToSlash(w.r.o.KiciDir)+"/") {
			continue
		}
		// A name that ends in a slash is a repository that this one knows nothing of.
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.IsDir() && !strings.HasSuffix(name, "/") {
			err = w.copySubmodule(root, dir, within, name)
			if err != nil {
				return fmt.Errorf("submodule %s: %w", within+name, err)
			}
			continue
		}
		if err := w.copyFile(root, dir, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) copySubmodule(root, dir, within, name string) error {
	if _, err := os.Lstat(filepath.Join(root, name, ".git")); err != nil {
		w.say(fmt.Sprintf("The submodule %s is not checked out in the repository, so its folder is empty here", within+name))
		return os.MkdirAll(filepath.Join(dir, name), 0o755)
	}
	return w.copyRepository(filepath.Join(root, name), filepath.Join(dir, name), within+name+"/")
}

// fetchDependencies takes those that are installed in the repository along, and installs them where they are not.
func (w *worker) fetchDependencies(ws *workspace.Workspace) error {
	dir := w.r.o.KiciDir
	if _, err := os.Stat(filepath.Join(ws.Dir(), dir, "package.json")); err != nil {
		return nil
	}
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(filepath.Join(w.r.o.Root, modules)); err == nil {
		return w.copyTree(w.r.o.Root, ws.Dir(), modules)
	}
	if filepath.Base(dir) != ".kici" { // where agents install them
		return fmt.Errorf("the packages of %s/package.json are not installed: install them there", filepath.ToSlash(dir))
	}
	install := workspace.Install{JobID: w.j.state.ID, Env: w.order.env, Log: w.say}
	if err := w.addInstallSecrets(&install); err != nil {
		return err
	}
	return ws.InstallDependencies(w.ctx, filepath.Dir(dir), install)
}

// addInstallSecrets adds the private registries of the workflow with their tokens, and what else its installation reads.
func (w *worker) addInstallSecrets(install *workspace.Install) error {
	secret := func(reference string) (name, value string, err error) {
		context, name, _ := strings.Cut(reference, ":")
		value, known := w.r.o.Secrets.Of([]string{context})[name]
		if !known {
			err = fmt.Errorf("the packages are installed with the secret %s of context %s, which is not among the secrets of this machine", name, context)
		}
		return name, value, err
	}
	for _, r := range w.r.in.Workflow.Registries {
		_, token, err := secret(r.TokenSecret)
		if err != nil {
			return err
		}
		install.Registries = append(install.Registries, workspace.Registry{URL: r.URL, Scope: r.Scope, AlwaysAuth: r.AlwaysAuth != nil && *r.AlwaysAuth, Token: token})
	}
	install.Secrets = map[string]string{}
	for _, reference := range w.r.in.Workflow.InstallEnv {
		name, value, err := secret(reference)
		if err != nil {
			return err
		}
		install.Secrets[name] = value
	}
	return nil
}

func (w *worker) copyTree(root, dir, name string) error {
	return filepath.WalkDir(filepath.Join(root, name), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		return w.copyFile(root, dir, rel)
	})
}

// copyFile copies a file or a link. What git lists and is not there was deleted.
func (w *worker) copyFile(root, dir, name string) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	from, to := filepath.Join(root, name), filepath.Join(dir, name)
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !info.Mode().IsRegular():
		return nil // sockets and the like are no content
	}
	return copyContent(from, to, info.Mode().Perm())
}

func copyContent(from, to string, mode fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
