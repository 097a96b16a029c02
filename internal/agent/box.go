package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// box is where the runner runs: on the machine as it is, or in a bubblewrap sandbox.
type box struct {
	kind    string   // as the job's context names it
	command []string // of the runner; nil = its own default
	workDir string   // the workspace as the runner sees it
	env     map[string]string
}

// sandboxDir is the workspace inside of a bubblewrap sandbox.
const sandboxDir = "/workspace"

// path is a folder of the workspace as the runner sees it.
func (b box) path(elem string) string { return filepath.Join(b.workDir, elem) }

// boxFor gives the surroundings of a job in the workspace dir.
func (a *Agent) boxFor(dir, repoURL string) (box, error) {
	kind := a.mode()
	if !a.sandboxed() {
		return box{kind: kind, command: a.cfg.RunnerCommand, workDir: dir}, nil
	}
	bwrap, err := findBubblewrap()
	if err != nil {
		return box{}, err
	}
	command := a.cfg.RunnerCommand
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return box{}, fmt.Errorf("find the step runner: %w", err)
		}
		command = []string{self, "__runner"}
	}
	mounts := []string{filepath.Dir(command[0])}
	if path, ok := strings.CutPrefix(repoURL, "file://"); ok {
		mounts = append(mounts, path) // steps may fetch from it
	}
	args := append(bubblewrap(mounts, a.cfg.SandboxNetwork == "isolated"), "--bind", dir, sandboxDir, "--chdir", sandboxDir, "--")
	return box{
		kind:    kind,
		command: slices.Concat([]string{bwrap}, args, command),
		workDir: sandboxDir,
		env:     map[string]string{"TMPDIR": "/tmp"},
	}, nil
}

// mode is what the agent runs in, as it was told, or as its starter lets suppose: scalers tell it, except microVMs.
func (a *Agent) mode() string {
	switch {
	case a.cfg.ExecutionMode != "":
		return a.cfg.ExecutionMode
	case a.cfg.ScalerManaged:
		return "firecracker"
	}
	return "bare-metal"
}

// sandboxed tells whether jobs run in bubblewrap. In a container or microVM of a scaler they are isolated already.
func (a *Agent) sandboxed() bool {
	return a.cfg.Sandbox && !a.cfg.ScalerManaged && a.mode() == "bare-metal"
}

func findBubblewrap() (string, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return "", fmt.Errorf("KICI_SANDBOX is set and bubblewrap is missing: %w", err)
	}
	return bwrap, nil
}

// installWrap is the sandbox of the package manager: scripts of packages are not to be trusted more than steps, but
// they need the network, also where steps have none.
func (a *Agent) installWrap() ([]string, error) {
	if !a.sandboxed() {
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
