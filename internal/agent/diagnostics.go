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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kici/internal/agent/ledger"
	"kici/internal/core/wire"
)

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
		"labels": a.facts.Labels, "executionMode": a.cfg.ExecutionMode, "scalerManaged": a.cfg.ScalerManaged,
		"backpressure": a.cfg.Backpressure, "sandbox": a.cfg.Sandbox, "token": a.cfg.Token != ""}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("make bundle: %w", err)
	}
	var numbers bytes.Buffer
	err = errors.Join(a.metrics.Write(&numbers), add("config.json", settings), add("metrics.txt", numbers.Bytes()))
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
