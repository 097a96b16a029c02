//go:build unix

package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheSandboxedRunnerSeesItsWorkspaceOnly(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "bwrap"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	a := &Agent{cfg: Config{Sandbox: true, SandboxNetwork: "isolated", RunnerCommand: []string{"/usr/bin/kici", "__runner"}}}
	b, err := a.boxFor("/var/tmp/kici-abcdef", "file:///usr")
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Join(b.command, " ")
	for _, want := range []string{"--bind /var/tmp/kici-abcdef /workspace", "--chdir /workspace", "--unshare-net", "--unshare-pid",
		"--die-with-parent", "--tmpfs /tmp", "--ro-bind /usr /usr", "-- /usr/bin/kici __runner"} {
		if !strings.Contains(line, want) {
			t.Errorf("%s is missing from %s", want, line)
		}
	}
	if b.workDir != "/workspace" || b.env["TMPDIR"] != "/tmp" || b.kind != "bare-metal" {
		t.Errorf("%+v", b)
	}
	wrap, err := a.installWrap()
	if err != nil || slices.Contains(wrap, "--unshare-net") || !slices.Contains(wrap, "--unshare-pid") {
		t.Errorf("the package manager runs in %v, %v", wrap, err)
	}
	a.cfg.ScalerManaged = true
	if b, err := a.boxFor("/w", ""); err != nil || b.workDir != "/w" || b.kind != "firecracker" {
		t.Errorf("scaler-managed: %+v %v", b, err)
	}
}
