//go:build unix

package host

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
	p := Place{Kind: "bare-metal", Sandboxed: true, Isolated: true, Runner: []string{"/usr/bin/kici", "__runner"}}
	b, err := p.Box("/var/tmp/kici-abcdef", "file:///usr")
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Join(b.Command, " ")
	for _, want := range []string{"--bind /var/tmp/kici-abcdef /workspace", "--chdir /workspace", "--unshare-net", "--unshare-pid",
		"--die-with-parent", "--tmpfs /tmp", "--ro-bind /usr /usr", "-- /usr/bin/kici __runner"} {
		if !strings.Contains(line, want) {
			t.Errorf("%s is missing from %s", want, line)
		}
	}
	if b.WorkDir != "/workspace" || b.Env["TMPDIR"] != "/tmp" || b.Kind != "bare-metal" {
		t.Errorf("%+v", b)
	}
	wrap, err := p.InstallWrap()
	if err != nil || slices.Contains(wrap, "--unshare-net") || !slices.Contains(wrap, "--unshare-pid") {
		t.Errorf("the package manager runs in %v, %v", wrap, err)
	}
	p.Sandboxed = false
	if b, err := p.Box("/w", ""); err != nil || b.WorkDir != "/w" || len(b.Command) != 2 {
		t.Errorf("not sandboxed: %+v %v", b, err)
	}
}
