package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kici/internal/server/logs"
	"kici/internal/server/logs/joined"
	"kici/internal/server/queue"
	"kici/internal/server/store"
)

// linesAtOnce is how many lines of a log are read at a time.
const linesAtOnce = 1000

// readLogs reads the log of every step, as a server would that can reach all others.
func (s *system) readLogs(ctx context.Context, db *store.DB, f *facts) (err error) {
	sinks, err := s.openSinks(ctx, db)
	defer func() {
		for _, sink := range sinks {
			err = errors.Join(err, sink.Close())
		}
	}()
	if err != nil {
		return err
	}
	jobs := map[string]jobFact{}
	for _, j := range f.Jobs {
		jobs[j.ID] = j
	}
	f.Logs = map[stepKey][]string{}
	for _, st := range f.Steps {
		f.Logs[st.stepKey] = nil
	}
	for _, l := range f.Acked.Lines {
		f.Logs[l.stepKey] = nil
	}
	for key := range f.Logs {
		whole := &joined.Log{Where: func(ctx context.Context) (joined.Parts, error) { return partsOf(ctx, db.Read(), key.Job, sinks) }}
		f.Logs[key], err = readLog(ctx, whole, logs.Path(jobs[key.Job].Run, jobs[key.Job].Name, key.Step))
		if err != nil {
			return fmt.Errorf("read the log of step %d of job %s: %w", key.Step, key.Job, err)
		}
	}
	return nil
}

// openSinks opens what each server has stored, by the server's id.
func (s *system) openSinks(ctx context.Context, db *store.DB) (map[string]*logs.Store, error) {
	sinks := map[string]*logs.Store{}
	for _, n := range s.nodes {
		folder := filepath.Join(s.Base, n.folder)
		id, err := os.ReadFile(filepath.Join(folder, "node-id"))
		if err != nil {
			return sinks, fmt.Errorf("read the identity of a server: %w", err)
		}
		sink, err := logs.Open(ctx, logs.Options{Root: filepath.Join(folder, "logs"), DB: db})
		if err != nil {
			return sinks, err
		}
		sinks[strings.TrimSpace(string(id))] = sink
	}
	return sinks, nil
}

func partsOf(ctx context.Context, q store.Querier, jobID string, sinks map[string]*logs.Store) (parts joined.Parts, err error) {
	stays, err := queue.Stays(ctx, q, jobID)
	if err != nil {
		return parts, err
	}
	for _, stay := range stays {
		at := slices.IndexFunc(parts.All, func(p joined.Part) bool { return p.Node == stay.NodeID })
		if at < 0 {
			at = len(parts.All)
			parts.All = append(parts.All, joined.Part{Node: stay.NodeID, Log: sinks[stay.NodeID]})
		}
		parts.Stays = append(parts.Stays, at)
	}
	return parts, nil
}

func readLog(ctx context.Context, log *joined.Log, path string) (out []string, err error) {
	for from := int64(0); ; {
		lines, _, next, err := log.Lines(ctx, path, from, linesAtOnce)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			var record struct{ Msg string }
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				return nil, err
			}
			out = append(out, record.Msg)
		}
		if next == 0 {
			return slices.Clip(out), nil
		}
		from = next
	}
}
