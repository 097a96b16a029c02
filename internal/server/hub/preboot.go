package hub

import (
	"context"
	"encoding/json"
	"strings"
)

// What a host runs before it boots, where the caller names nothing else: a small SSH server that waits for the key of its disk.
const (
	preBootPort    = 2222
	preBootCommand = "cryptroot-unlock"
	maxPreBoot     = 4096 // characters of a command
)

// PreBoot is what a host is sent before it boots, and the way to it. Input goes to the standard input of Command.
type PreBoot struct {
	Reach      Reach  `json:"reach"` // its port is that of the booted system
	PrivateKey string `json:"privateKey"`
	Input      string `json:"input"`
	Port       int    `json:"port"`
	Command    string `json:"command"`
}

func (c *conn) preBoot() apiMethod {
	caller := c.caller()
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		q := struct {
			TargetAgentID string `json:"targetAgentId"`
			InputSecret   string `json:"inputSecret"`
			Port          int    `json:"port"`
			Command       string `json:"command"`
		}{Port: preBootPort, Command: preBootCommand}
		switch err := decodeParams(raw, &q); {
		case err != nil:
			return nil, Refuse("%s: targetAgentId, inputSecret and command must be texts, and port a whole number", methodPreBoot)
		case q.TargetAgentID == "":
			return nil, Refuse("%s: targetAgentId must be the id of an agent", methodPreBoot)
		case q.Port < 1 || q.Port > 65535:
			return nil, Refuse("%s: port must be from 1 to 65535", methodPreBoot)
		case q.Command == "" || len(q.Command) > maxPreBoot || strings.ContainsRune(q.Command, 0):
			return nil, Refuse("%s: command must have 1 to %d characters", methodPreBoot, maxPreBoot)
		}
		answer, err := c.hub.BringUps.PreBoot(ctx, caller, q.TargetAgentID, q.InputSecret)
		answer.Port, answer.Command = q.Port, q.Command
		return answer, err
	}
}
