//go:build !linux

package proc

import "os/exec"

// startBound just starts the program: only Linux can tie a child's life to its parent's.
func startBound(cmd *exec.Cmd) error { return cmd.Start() }
