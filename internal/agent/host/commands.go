package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// commandLimit bounds the commands that the agent runs for the machine.
const commandLimit = 10 * time.Second

// Reboot restarts the machine. Error: with what the command said.
func Reboot() error {
	command := map[string][]string{
		"linux": {"systemctl", "reboot"}, "darwin": {"shutdown", "-r", "now"}, "windows": {"shutdown", "/r", "/t", "0"},
	}[runtime.GOOS]
	if command == nil {
		return errors.New("no command for this system")
	}
	return told(run(command...))
}

// CloseMetadata closes the metadata address of a microVM. Error: with what the command said.
func CloseMetadata() error {
	return told(run("iptables", "-A", "OUTPUT", "-d", "169.254.169.254", "-j", "DROP"))
}

// told is the error of a command with what it said.
func told(output []byte, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

func run(command ...string) (output []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	return exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
}
