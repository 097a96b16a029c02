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

// Reboot restarts the machine.
func Reboot() error {
	command := map[string][]string{
		"linux": {"systemctl", "reboot"}, "darwin": {"shutdown", "-r", "now"}, "windows": {"shutdown", "/r", "/t", "0"},
	}[runtime.GOOS]
	if command == nil {
		return errors.New("no command for this system")
	}
	_, err := run(command...)
	return err
}

// CloseMetadata closes the metadata address of a microVM. Error: with what the command said.
func CloseMetadata() error {
	out, err := run("iptables", "-A", "OUTPUT", "-d", "169.254.169.254", "-j", "DROP")
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

func run(command ...string) (output []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	return exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
}
