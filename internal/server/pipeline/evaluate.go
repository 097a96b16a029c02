package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/plan"
	"kici/internal/decide/trigger"
	"kici/internal/server/engine"
	"kici/internal/server/forge"
	"kici/internal/server/inbox"
	"kici/internal/server/store"
)

// UnresolvedWorkflow is the name of the failed run that stands for a lock file that cannot be read.
const UnresolvedWorkflow = "(unresolved workflow)"

// evaluation is one delivery under work.
type evaluation struct {
	p     *Pipeline
	work  inbox.Work
	d     inbox.Delivery // of the work
	src   forge.Source
	ports Provider
	facts forge.Facts
	lock  forge.Lock

	branch    string // what the runs show as their ref
	sought    bool   // the repository was asked for its default branch
	checkMode string
	result    inbox.Result
	counted   string // how the delivery is counted

	// held is the last run to register. It waits for the next one or for the end of the delivery, which is recorded in the same
	// transaction: most deliveries start one run.
	held *engine.Registration
}

// evaluate goes from a delivery to its runs and records its end with the last of them. The error is one that may pass, or
// forge.ErrRefused; the result then tells how far it came.
func (p *Pipeline) evaluate(ctx context.Context, w inbox.Work) (inbox.Result, error) {
	p.deps.Received.Inc("pipeline", forge.EventLabel(w.Delivery.Event))
	e := &evaluation{p: p, work: w, d: w.Delivery, result: inbox.Result{Status: inbox.StatusReceived}}
	if err := e.find(ctx); err != nil {
		return e.result, errors.Join(err, e.registerHeld(ctx, nil)) // one workflow's failure is its own
	}
	err := e.finish(ctx)
	if err == nil {
		p.deps.Processed.Inc(e.counted)
	}
	return e.result, err
}

// find finds out what the delivery starts, and registers all of it but the last run.
func (e *evaluation) find(ctx context.Context) error {
	e.counted = "skipped"
	ok, err := e.identify(ctx)
	if err != nil || !ok {
		return err
	}
	e.lock, err = e.ports.LockFile(ctx, e.src, e.facts.Repo, e.facts.Ref)
	if parseErr, ok := errors.AsType[*lockfile.ParseError](err); ok {
		return e.corrupt(ctx, parseErr)
	}
	if errors.Is(err, forge.ErrNoLockFile) || errors.Is(err, forge.ErrNoCommit) || errors.Is(err, forge.ErrNoRepository) {
		e.result.Status, e.result.Error = inbox.StatusLockfileMissing, err.Error()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read lock file: %w", err)
	}
	return e.dispatch(ctx)
}

// finish records the end of the delivery, in one transaction with the run that is still to be registered. Without one it is
// recorded even when the server is being stopped.
func (e *evaluation) finish(ctx context.Context) error {
	if e.held != nil {
		return e.registerHeld(ctx, &e.result)
	}
	return e.p.deps.Inbox.Record(e.work, &e.result, func(done func(ctx context.Context, tx *store.Tx) error) error {
		recording, cancel := e.p.recording(ctx)
		defer cancel()
		return e.p.deps.DB.Write(recording, done)
	})
}

// identify finds the source, the meaning of the delivery and its repository. Where there is nothing to evaluate it says
// why in the result; a generic delivery, which never has a repository, needs no words.
func (e *evaluation) identify(ctx context.Context) (ok bool, err error) {
	if e.d.Source != nil {
		e.src = *e.d.Source
	} else {
		e.src, err = e.p.deps.Sources.Get(ctx, e.d.SourceID)
	}
	if errors.Is(err, forge.ErrUnknownSource) || err == nil && e.src.DeletedAt != 0 {
		e.result.Error = "its source was deleted before it was processed"
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if e.ports, ok = e.p.deps.Providers[e.src.Provider]; !ok {
		e.result.Error = fmt.Sprintf("this server has no provider %q", e.src.Provider)
		return false, nil
	}
	if e.facts, ok = e.normalise(); !ok {
		e.result.Error = "its source gives this event no meaning"
		return false, nil
	}
	if e.ports.LockFiles == nil {
		return false, nil
	}
	if e.facts.Repo == "" {
		e.result.Error = "it names no repository"
		return false, nil
	}
	e.branch = e.facts.Branch
	e.result.Repo, e.result.Ref = e.facts.Repo, e.facts.Ref
	e.facts.Event.SourceRepo = e.facts.Repo
	e.facts.Event.ChangedFilesStatus = ci.FilesUnavailable
	return true, nil
}

func (e *evaluation) normalise() (forge.Facts, bool) {
	if e.src.Provider != forge.Local {
		return e.ports.Normalise(e.d.Event, forge.ParseBody(e.d.Payload, e.d.Headers["content-type"]))
	}
	payload, ok := forge.ParseJSON(e.d.Payload)
	if !ok {
		return forge.Facts{}, false
	}
	return e.ports.Normalise(e.d.Event, payload)
}

// corrupt makes the failed run by which people see that their lock file cannot be used, and where.
func (e *evaluation) corrupt(ctx context.Context, parseErr *lockfile.ParseError) error {
	e.counted = "error"
	e.result.Status, e.result.Error = inbox.StatusLockfileCorrupt, parseErr.Message
	e.nameBranch(ctx)
	w := lockfile.Workflow{Name: UnresolvedWorkflow}
	r, err := e.registration(w, nil, failed(w, ci.InitLockResolution, parseErr.Message))
	if err != nil {
		return err
	}
	err = e.hold(ctx, r)
	e.result.Matched = 0 // no workflow was
	return err
}

// dispatch matches every workflow and registers those that match. One workflow's failure is its own: the others go on,
// and what may pass by itself brings the whole delivery back, where what is registered already stays as it is.
func (e *evaluation) dispatch(ctx context.Context) error {
	matcher := trigger.NewMatcher(e.facts.Event, trigger.Options{Source: &trigger.GenericSource{Name: e.src.Name, EventType: e.d.Event}})
	var failures []error
	var matching time.Duration // of all workflows, without what is made of them
	defer func() { e.p.deps.Matching.Observe(matching.Seconds()) }()
	for _, w := range e.lock.File.Workflows {
		began := time.Now()
		decision, err := matcher.Match(w)
		matching += time.Since(began)
		if err == nil && !decision.Matched {
			continue
		}
		r, err := e.start(ctx, w, decision, err)
		if err != nil {
			failures = append(failures, fmt.Errorf("start workflow %q: %w", w.Name, err))
		} else if err := e.hold(ctx, r); err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	e.result.Status = inbox.StatusProcessed
	if e.result.Matched > 0 {
		e.counted = "matched"
	}
	return nil
}

// start plans one workflow, or a failed run of its name where it cannot be matched or planned.
func (e *evaluation) start(ctx context.Context, w lockfile.Workflow, decision trigger.Decision, matchErr error) (r engine.Registration, err error) {
	e.nameBranch(ctx)
	var trace json.RawMessage
	if matchErr == nil {
		if trace, err = json.Marshal(decision); err != nil {
			return r, fmt.Errorf("encode decision: %w", err)
		}
	}
	runPlan := e.plan(ctx, w, e.runID(w), matchErr)
	if runPlan.InitFailure != nil {
		e.p.about(e.d).Warn("workflow failed before any job", "workflow", w.Name, "category", runPlan.InitFailure.Category, "why", runPlan.InitFailure.Message)
	}
	return e.registration(w, trace, runPlan)
}

func (e *evaluation) plan(ctx context.Context, w lockfile.Workflow, runID string, matchErr error) plan.Plan {
	switch {
	case matchErr != nil:
		return failed(w, ci.InitLockResolution, matchErr.Error())
	case len(w.Problems) > 0:
		// What was misread counts as absent, and an absent filter or approval is a wider one.
		return failed(w, ci.InitLockResolution, "the lock file's text of this workflow is damaged; recompile it with `kici compile`: "+strings.Join(w.Problems, "; "))
	}
	in := plan.Input{
		Workflow: w, Event: e.facts.Event, Org: e.d.OrgID, RunID: runID, CheckMode: e.checkMode, LockfileHash: e.lock.File.LockfileHash,
		Source: plan.Source{Repo: e.facts.Repo, CloneURL: e.lock.CloneURL, Ref: e.branch, SHA: e.lock.SHA, Provider: e.src.Provider},
		// Sources of these kinds know no contributors: whoever may push to their repositories is trusted.
		CacheShared: true,
	}
	if err := e.p.addFleet(ctx, &in); err != nil {
		return failed(w, ci.InitNoAgent, fmt.Sprintf("the agents cannot be listed: %v", err))
	}
	made, err := plan.Build(in)
	if err != nil {
		return failed(w, ci.InitDynamicEval, err.Error())
	}
	return made
}

// nameBranch asks for the default branch where the event names none. Only a delivery that starts something needs it. A
// repository whose HEAD is detached has none either; the run then shows none.
func (e *evaluation) nameBranch(ctx context.Context) {
	if e.branch != "" || e.sought {
		return
	}
	e.sought = true
	if c, err := e.ports.Commit(ctx, e.src, e.facts.Repo, ""); err == nil {
		e.branch = c.Default
	}
}

func failed(w lockfile.Workflow, category, message string) plan.Plan {
	return plan.Plan{Workflow: w.Name, InitFailure: &ci.InitFailure{Scope: ci.ScopeRun, Category: category, Message: ci.CutText(message)}}
}

func (e *evaluation) registration(w lockfile.Workflow, trace json.RawMessage, made plan.Plan) (engine.Registration, error) {
	event, err := json.Marshal(e.facts.Event)
	if err != nil {
		return engine.Registration{}, fmt.Errorf("encode event: %w", err)
	}
	r := engine.Registration{
		RunID: e.runID(w), OrgID: e.d.OrgID, RoutingKey: e.d.RoutingKey, Provider: e.src.Provider, Repo: e.facts.Repo,
		Ref: e.branch, SHA: e.lock.SHA, CloneURL: e.lock.CloneURL, CheckoutRef: e.facts.CheckoutRef, DeliveryID: e.d.ID,
		RequestID: e.d.RequestID, TriggerEvent: e.facts.Event.Display(), Event: event, Decision: trace,
		CommitMessage: e.facts.CommitMessage, Sender: e.facts.Sender, LockFileSource: "head", Plan: made,
	}
	if strings.HasPrefix(e.d.ID, inbox.TriggerPrefix) {
		r.TriggeredBy = e.facts.Sender
	}
	return r, nil
}

// hold makes a run the one that waits, and registers the one before it.
func (e *evaluation) hold(ctx context.Context, r engine.Registration) error {
	err := e.registerHeld(ctx, nil)
	e.held = &r
	e.result.Matched++
	if e.result.RunID == "" {
		e.result.RunID = r.RunID
	}
	return err
}

// registerHeld registers the run that waits, if one does, and with end records how the delivery ended in the same transaction.
func (e *evaluation) registerHeld(ctx context.Context, end *inbox.Result) error {
	r := e.held
	if r == nil {
		return nil
	}
	e.held = nil
	err := e.p.deps.Inbox.Record(e.work, end, func(also func(ctx context.Context, tx *store.Tx) error) error {
		return e.p.deps.Engine.Register(ctx, *r, also)
	})
	if err == nil {
		return nil
	}
	e.result.Matched = max(0, e.result.Matched-1)
	if e.result.RunID == r.RunID {
		e.result.RunID = ""
	}
	return fmt.Errorf("start workflow %q: register run: %w", r.Plan.Workflow, err)
}
