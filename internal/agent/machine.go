package agent

import (
	"os"

	"github.com/google/uuid"

	"kici/internal/agent/host"
	"kici/internal/agent/ledger"
	"kici/internal/core/wire"
)

// rebootHost restarts the machine after the job that asked for it. When that fails, the server is told that it need not
// wait.
func (a *Agent) rebootHost() {
	a.closing.Go(func() {
		if err := host.Reboot(); err != nil {
			a.log.Error("the machine cannot be rebooted", "err", err)
			a.ledger.Send(ledger.KeepNot, wire.APIRequest{RequestID: uuid.NewString(), Method: "host.cancelReboot"})
		}
	})
}

// guardMetadata closes the metadata address of a microVM, from which the agent got its token, before the first job.
func (a *Agent) guardMetadata() {
	if a.cfg.mode() != "firecracker" || os.Getuid() != 0 || a.guarded {
		return
	}
	if err := host.CloseMetadata(); err != nil {
		a.log.Error("steps can reach the metadata address", "err", err)
		return
	}
	a.guarded = true
}

// wantReboot notes whether the machine is to be rebooted after the job.
func (a *Agent) wantReboot(wanted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reboot = wanted
}
