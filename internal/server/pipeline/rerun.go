package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/server/engine"
	"kici/internal/server/forge"
)

// RerunRefusal says why a run cannot be repeated.
type RerunRefusal struct {
	Kind    RerunKind
	Message string
}

func (e *RerunRefusal) Error() string { return e.Message }

// RerunKind sorts refusals of a repetition.
type RerunKind string

// The kinds.
const (
	RerunUnknown         RerunKind = "unknown"          // there is no such run
	RerunForgotten       RerunKind = "forgotten"        // it ended too long ago and was removed
	RerunOpen            RerunKind = "open"             // it goes on
	RerunTest            RerunKind = "test"             // its source was an upload that nobody has any more
	RerunTooSoon         RerunKind = "too_soon"         // it was repeated a moment ago
	RerunLockMissing     RerunKind = "lock_missing"     // the commit, or its lock file, is gone
	RerunWorkflowMissing RerunKind = "workflow_missing" // the lock file has no such workflow
	RerunSourceMissing   RerunKind = "source_missing"   // the source is gone
)

// Rerun makes a run like an ended one: the same commit, the same event, the lock file read anew, and everything decided
// as for any run, with the trust of the original. by is who asked. The errors that people can do something about are
// *RerunRefusal.
func (p *Pipeline) Rerun(ctx context.Context, runID, by string) (string, error) {
	o, err := p.deps.Engine.Origin(ctx, runID)
	if errors.Is(err, engine.ErrRunNotFound) {
		return "", p.absent(ctx, runID)
	}
	if err != nil {
		return "", err
	}
	if refusal := refuse(o); refusal != nil {
		return "", refusal
	}
	e, w, err := p.reopen(ctx, o)
	if err != nil {
		return "", err
	}
	made, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make the id of a repetition: %w", err)
	}
	id := made.String()
	r := o.Registration
	r.ParentRunID, r.OriginalRunID, r.RunID = runID, o.Original, id
	r.DeliveryID, r.TriggerEvent, r.TriggeredBy, r.RequestID = "rerun:"+id, "rerun", by, uuid.NewString()
	r.CloneURL, r.Plan = e.lock.CloneURL, e.plan(ctx, w, id, nil)
	err = p.deps.Engine.Register(ctx, r)
	switch {
	case errors.Is(err, engine.ErrRunNotFound):
		return "", p.absent(ctx, runID) // it went meanwhile
	case errors.Is(err, engine.ErrRepeated):
		return "", &RerunRefusal{RerunTooSoon, "This run was repeated a moment ago"}
	case err != nil:
		return "", fmt.Errorf("register the repetition of run %s: %w", runID, err)
	}
	return id, nil
}

// absent tells a run that was removed from one that never was.
func (p *Pipeline) absent(ctx context.Context, runID string) error {
	_, was, err := engine.Forgotten(ctx, p.deps.DB.Read(), runID)
	switch {
	case err != nil:
		return err
	case was:
		return &RerunRefusal{RerunForgotten, fmt.Sprintf("Run %s ended too long ago and was removed; it cannot be re-run", runID)}
	}
	return &RerunRefusal{RerunUnknown, fmt.Sprintf("Run %s not found", runID)}
}

func refuse(o engine.Origin) error {
	switch {
	case !o.Status.Terminal():
		return &RerunRefusal{RerunOpen, fmt.Sprintf("Run is not in a terminal state (current: %s)", o.Status)}
	case o.Test:
		return &RerunRefusal{RerunTest, "Test runs cannot be re-run"}
	}
	return nil
}

// reopen finds what a run was planned from: its source, the lock file at its commit, and its workflow there.
func (p *Pipeline) reopen(ctx context.Context, o engine.Origin) (*evaluation, lockfile.Workflow, error) {
	none := lockfile.Workflow{}
	e := &evaluation{p: p, branch: o.Ref, checkMode: o.CheckMode}
	e.d.OrgID, e.d.RoutingKey = o.OrgID, o.RoutingKey
	e.facts = forge.Facts{Repo: o.Repo, Ref: o.SHA, Branch: o.Ref, CheckoutRef: o.CheckoutRef}
	if err := json.Unmarshal(o.Event, &e.facts.Event); err != nil {
		return nil, none, fmt.Errorf("decode the event of run %s: %w", o.RunID, err)
	}
	var err error
	if e.src, err = p.deps.Sources.ByRoutingKey(ctx, o.RoutingKey); errors.Is(err, forge.ErrUnknownSource) {
		return nil, none, &RerunRefusal{RerunSourceMissing, "The source of this run was deleted"}
	}
	if err != nil {
		return nil, none, err
	}
	e.ports = p.deps.Providers[e.src.Provider]
	if e.ports.LockFiles == nil {
		return nil, none, &RerunRefusal{RerunSourceMissing, fmt.Sprintf("Runs of %s sources cannot be repeated", e.src.Provider)}
	}
	if e.lock, err = e.ports.LockFile(ctx, e.src, o.Repo, o.SHA); err != nil {
		return nil, none, lockRefusal(err)
	}
	i := slices.IndexFunc(e.lock.File.Workflows, func(w lockfile.Workflow) bool { return ci.CutName(w.Name) == o.Workflow })
	if i < 0 {
		return nil, none, &RerunRefusal{RerunWorkflowMissing, fmt.Sprintf("Workflow '%s' not found in lock file at SHA %s", o.Workflow, o.SHA)}
	}
	e.nameBranch(ctx)
	return e, e.lock.File.Workflows[i], nil
}

func lockRefusal(err error) error {
	if parseErr, ok := errors.AsType[*lockfile.ParseError](err); ok {
		return &RerunRefusal{RerunLockMissing, parseErr.Message}
	}
	if errors.Is(err, forge.ErrNoLockFile) || errors.Is(err, forge.ErrNoCommit) || errors.Is(err, forge.ErrNoRepository) {
		return &RerunRefusal{RerunLockMissing, "Lock file not found at original SHA (branch may have been force-pushed)"}
	}
	return fmt.Errorf("read lock file: %w", err)
}
