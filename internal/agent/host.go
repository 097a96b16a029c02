package agent

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"kici/internal/agent/ledger"
	"kici/internal/core/wire"
)

// commandLimit bounds the commands that the agent runs for the machine.
const commandLimit = 10 * time.Second

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
	command := map[string][]string{
		"linux": {"systemctl", "reboot"}, "darwin": {"shutdown", "-r", "now"}, "windows": {"shutdown", "/r", "/t", "0"},
	}[runtime.GOOS]
	a.closing.Go(func() {
		err := errors.New("no command for this system")
		if command != nil {
			ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
			defer cancel()
			err = exec.CommandContext(ctx, command[0], command[1:]...).Run()
		}
		if err != nil {
			a.log.Error("the machine cannot be rebooted", "err", err)
			a.ledger.Send(ledger.KeepNot, wire.APIRequest{RequestID: uuid.NewString(), Method: "host.cancelReboot"})
		}
	})
}

// guardMetadata closes the metadata address of a microVM, from which the agent got its token, before the first job.
func (a *Agent) guardMetadata() {
	if a.mode() != "firecracker" || os.Getuid() != 0 || a.guarded {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "iptables", "-A", "OUTPUT", "-d", "169.254.169.254", "-j", "DROP").CombinedOutput()
	if err != nil {
		a.log.Error("steps can reach the metadata address", "err", err, "output", string(out))
		return
	}
	a.guarded = true
}

// Bounds of a diagnostic bundle: the whole, and what one frame carries.
const (
	maxBundle   = 50 << 20
	bundleChunk = 87_040
)

// sendBundle answers a request for diagnostics with a ZIP of settings, metrics and log files.
func (a *Agent) sendBundle(ctx context.Context, r wire.FleetLogsRequest) {
	raw, err := a.bundle(r)
	if err != nil {
		a.ledger.Send(ledger.KeepNot, wire.FleetBundleError{RequestID: r.RequestID, Message: err.Error()})
		return
	}
	for seq := 0; ctx.Err() == nil; seq++ {
		n := min(bundleChunk, len(raw))
		last := n == len(raw)
		a.ledger.Send(ledger.KeepNot, wire.FleetBundleChunk{RequestID: r.RequestID, Seq: seq, IsLast: last,
			DataB64: base64.StdEncoding.EncodeToString(raw[:n])})
		if last {
			return
		}
		raw = raw[n:]
	}
}

func (a *Agent) bundle(r wire.FleetLogsRequest) ([]byte, error) {
	limit := r.MaxBytes
	if limit <= 0 || limit > maxBundle {
		limit = maxBundle
	}
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	add := func(name string, content []byte) error {
		if int64(out.Len()+len(content)) > limit {
			return nil // the newest files come first; older ones do not fit any more
		}
		w, err := z.Create(name)
		if err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	}
	settings, err := json.MarshalIndent(map[string]any{"agentId": a.cfg.AgentID, "version": a.cfg.Version,
		"labels": a.facts.labels, "executionMode": a.cfg.ExecutionMode, "scalerManaged": a.cfg.ScalerManaged,
		"backpressure": a.cfg.Backpressure, "sandbox": a.cfg.Sandbox, "token": a.cfg.Token != ""}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("make bundle: %w", err)
	}
	var numbers bytes.Buffer
	a.metrics.write(&numbers, a.cfg.Backpressure)
	err = errors.Join(add("config.json", settings), add("metrics.txt", numbers.Bytes()))
	since := time.Now().Add(-time.Duration(r.LogWindowHours * float64(time.Hour)))
	for _, path := range a.logFiles(since) {
		content, readErr := os.ReadFile(path)
		if readErr == nil {
			err = errors.Join(err, add("logs/"+filepath.Base(path), []byte(a.oplog.mask.String(string(content)))))
		}
	}
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("make bundle: %w", err)
	}
	return out.Bytes(), nil
}

// logFiles are the files of the log folder that have changed since then, the newest first.
func (a *Agent) logFiles(since time.Time) []string {
	dir := ""
	for _, kv := range a.cfg.Environ {
		if v, ok := strings.CutPrefix(kv, "KICI_LOG_DIR="); ok {
			dir = v
		}
	}
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	type file struct {
		path string
		when time.Time
	}
	var files []file
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && info.ModTime().After(since) && info.Size() <= maxBundle {
			files = append(files, file{filepath.Join(dir, e.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(x, y file) int { return y.when.Compare(x.when) })
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.path
	}
	return paths
}
