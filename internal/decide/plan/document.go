package plan

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

// jobSpace keeps ids of jobs apart from every other use of names as ids.
var jobSpace = uuid.MustParse("5f0e6d0e-4f52-4c0a-9c33-6f1f0c1b7a02")

// JobID follows from the run and the job's name, which is unique in it, so that a plan that is made twice is the same.
func JobID(runID, name string) string {
	return ci.DeriveBeside(jobSpace, runID, name)
}

// document is an Input as it is kept with a run whose jobs give more jobs. The event is kept with the run anyway.
type document struct {
	Workflow           lockfile.Workflow `json:"workflow"`
	Source             Source            `json:"source"`
	Org                string            `json:"org"`
	RunID              string            `json:"runId"`
	ContentHashOmitted bool              `json:"contentHashOmitted,omitempty"`
	CacheShared        bool              `json:"cacheShared,omitempty"`
	DispatchInputs     json.RawMessage   `json:"dispatchInputs,omitempty"`
	CheckMode          string            `json:"checkMode,omitempty"`
	MaxJobs            int               `json:"maxJobs"`
	Platform           string            `json:"platform,omitempty"`
	Arch               string            `json:"arch,omitempty"`
	LockfileHash       string            `json:"lockfileHash,omitempty"`
	RosterGraceMs      int64             `json:"rosterGraceMs,omitempty"`
	MaxHosts           int               `json:"maxHosts,omitempty"`
}

// encode keeps what joining jobs are made from. The roster is not among it: they choose from the hosts of their own time.
func (in Input) encode() (json.RawMessage, error) {
	raw, err := json.Marshal(document{
		Workflow: in.Workflow, Source: in.Source, Org: in.Org, RunID: in.RunID, ContentHashOmitted: in.ContentHashOmitted,
		CacheShared: in.CacheShared, DispatchInputs: in.DispatchInputs, CheckMode: in.CheckMode, MaxJobs: in.MaxJobs,
		Platform: in.Platform, Arch: in.Arch, LockfileHash: in.LockfileHash,
		RosterGraceMs: in.RosterGrace.Milliseconds(), MaxHosts: in.MaxHosts,
	})
	if err != nil {
		return nil, fmt.Errorf("encode what workflow %s was planned from: %w", in.Workflow.Name, err)
	}
	return raw, nil
}

// Decode reads a Plan's Document back, for Resolve and Generate. event is the run's.
func Decode(raw, event json.RawMessage) (Input, error) {
	var d struct {
		document
		Workflow json.RawMessage `json:"workflow"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return Input{}, fmt.Errorf("decode what a run was planned from: %w", err)
	}
	// The lock file's own reader is the only one that knows a workflow's JSON.
	file, err := json.Marshal(map[string]any{"schemaVersion": lockfile.SchemaVersion, "workflows": []json.RawMessage{d.Workflow}})
	if err != nil {
		return Input{}, fmt.Errorf("decode what a run was planned from: %w", err)
	}
	lock, parseErr := lockfile.Load(file, d.Source.Repo, d.Source.Ref)
	if parseErr != nil {
		return Input{}, fmt.Errorf("decode what a run was planned from: %w", parseErr)
	}
	in := Input{
		Workflow: lock.Workflows[0], Source: d.Source, Org: d.Org, RunID: d.RunID, ContentHashOmitted: d.ContentHashOmitted,
		CacheShared: d.CacheShared, DispatchInputs: d.DispatchInputs, CheckMode: d.CheckMode, MaxJobs: d.MaxJobs,
		Platform: d.Platform, Arch: d.Arch, LockfileHash: d.LockfileHash,
		RosterGrace: time.Duration(d.RosterGraceMs) * time.Millisecond, MaxHosts: d.MaxHosts,
	}
	if err := json.Unmarshal(event, &in.Event); err != nil {
		return Input{}, fmt.Errorf("decode the event of a run: %w", err)
	}
	return in, nil
}
