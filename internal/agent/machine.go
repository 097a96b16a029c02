package agent

import (
	"encoding/json"
	"os"

	"github.com/google/uuid"

	"kici/internal/agent/host"
	"kici/internal/agent/job"
	"kici/internal/agent/ledger"
	"kici/internal/core/wire"
)

// reboot is the wish of a job, which the server knows of, that the machine reboots.
type reboot struct {
	params json.RawMessage // of the job's call
	due    bool            // the job has ended
}

// rebootHost restarts the machine once the server has the end of the job that asked for it: the agent forgets with the machine
// what it has not told. When that fails, the server is told that it need not wait.
func (a *Agent) rebootHost() {
	if !a.ledger.Told(a.life) {
		return // the agent ends first; what becomes of the machine is for whoever ends it
	}
	a.log.Info("the machine is rebooted")
	err := a.rebootMachine()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reboot = nil
	if err != nil {
		a.log.Error("the machine cannot be rebooted", "err", err)
		a.askLocked(job.MethodCancelReboot, nil)
	}
}

// askLocked calls the agent API for the agent itself, which has no use for the answer.
func (a *Agent) askLocked(method string, params json.RawMessage) {
	a.ledger.Send(ledger.KeepNot, wire.APIRequest{RequestID: uuid.NewString(), Method: method, Params: params})
}

// wantReboot notes that the machine is to be rebooted after the job, as the params of the job's call say. A job that did not
// wait for the answer may have ended before it came.
func (a *Agent) wantReboot(params json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	begun := a.reboot != nil && a.reboot.due
	a.reboot = &reboot{params: params, due: begun || a.job == nil}
	if a.reboot.due && !begun {
		a.closing.Go(a.rebootHost)
	}
}

// keepMachine takes that back.
func (a *Agent) keepMachine() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reboot = nil
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
