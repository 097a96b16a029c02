package agent

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"

	"kici/internal/agent/host"
	"kici/internal/agent/ledger"
	"kici/internal/core/wire"
)

// allowed refuses API methods that this agent does not carry out itself, and a reboot of the server's own machine.
func (a *Agent) allowed(method string) error {
	switch method {
	case "kici.ensureInitRunner", "kici.preBootSend":
		return fmt.Errorf("this agent cannot reach other hosts by SSH, which %s needs", method)
	case "host.requestReboot":
		if a.cfg.OrchestratorHost {
			return errors.New("refusing to reboot the orchestrator host")
		}
	}
	return nil
}

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
