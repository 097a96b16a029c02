package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Place is how jobs run on the machine.
type Place struct {
	Kind      string   // as the context of a job names it: bare-metal, container or firecracker
	Sandboxed bool     // in bubblewrap
	Isolated  bool     // without a network, when sandboxed
	Runner    []string // command of the step runner; nil = this executable with __runner
}

// Box is where one runner runs: on the machine as it is, or in a bubblewrap sandbox.
type Box struct {
	Kind    string   // as the job's context names it
	Command []string // of the runner; nil = its own default
	WorkDir string   // the workspace as the runner sees it
	Env     map[string]string
}

// sandboxDir is the workspace inside of a bubblewrap sandbox.
const sandboxDir = "/workspace"

// Path is a folder of the workspace as the runner sees it.
func (b Box) Path(elem string) string { return filepath.Join(b.WorkDir, elem) }

// Box gives the surroundings of a job in the workspace dir. Steps may fetch from a repository on this machine.
func (p Place) Box(dir, repoURL string) (Box, error) {
	if !p.Sandboxed {
		return Box{Kind: p.Kind, Command: p.Runner, WorkDir: dir}, nil
	}
	bwrap, err := findBubblewrap()
	if err != nil {
		return Box{}, err
	}
	command := p.Runner
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return Box{}, fmt.Errorf("find the step runner: %w", err)
		}
		command = []string{self, "__runner"}
	}
	mounts := []string{filepath.Dir(command[0])}
	if path, ok := strings.CutPrefix(repoURL, "file://"); ok {
		mounts = append(mounts, path) // steps may fetch from it
	}
	args := append(bubblewrap(mounts, p.Isolated), "--bind", dir, sandboxDir, "--chdir", sandboxDir, "--")
	return Box{
		Kind:    p.Kind,
		Command: slices.Concat([]string{bwrap}, args, command),
		WorkDir: sandboxDir,
		Env:     map[string]string{"TMPDIR": "/tmp"},
	}, nil
}

func findBubblewrap() (string, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return "", fmt.Errorf("KICI_SANDBOX is set and bubblewrap is missing: %w", err)
	}
	return bwrap, nil
}

// InstallWrap is the sandbox of the package manager: scripts of packages are not to be trusted more than steps, but
// they need the network, also where steps have none.
func (p Place) InstallWrap() ([]string, error) {
	if !p.Sandboxed {
		return nil, nil
	}
	bwrap, err := findBubblewrap()
	if err != nil {
		return nil, err
	}
	return append([]string{bwrap}, bubblewrap(nil, false)...), nil
}

// bubblewrap gives the arguments of bwrap but for the workspace: the system read-only, a private /tmp, own process and
// IPC name spaces, and no network when isolated. Everything dies with its first process.
func bubblewrap(mounts []string, isolated bool) []string {
	readable := []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/resolv.conf", "/etc/ssl", "/etc/passwd", "/etc/group",
		"/etc/hosts", "/etc/nsswitch.conf", "/etc/alternatives"}
	if node, err := exec.LookPath("node"); err == nil {
		if real, err := filepath.EvalSymlinks(node); err == nil {
			readable = append(readable, filepath.Dir(filepath.Dir(real))) // the folder above bin
		}
	}
	args := []string{"--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-pid", "--unshare-ipc",
		"--die-with-parent", "--new-session"}
	if isolated {
		args = append(args, "--unshare-net")
	}
	for _, path := range append(readable, mounts...) {
		if _, err := os.Stat(path); err == nil {
			args = append(args, "--ro-bind", path, path)
		}
	}
	return args
}
