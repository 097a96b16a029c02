//go:build unix && !linux

package cli

import "syscall"

// bound makes nothing: only Linux can tie a child's life to its parent's.
func bound() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
