//go:build unix

package agent

import (
	"os"
	"syscall"
)

// drainSignals let the agent finish its job and take no other.
var drainSignals = []os.Signal{syscall.SIGUSR1}
