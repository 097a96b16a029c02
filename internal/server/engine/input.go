package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
	"kici/internal/decide/plan"
	"kici/internal/server/store"
)

// Input is what an agent is given of a job, without secrets and credentials.
type Input struct {
	RunID, JobID string
	JobName      string
	Kind         ci.JobKind
	OrgID        string
	RoutingKey   string
	Repo         string
	CloneURL     string
	Ref, SHA     string
	RequestID    string
	Config       json.RawMessage // with the event
	CacheScope   string          // shared or isolated, "" for jobs that use no cache
	Contexts     []string        // in the order in which they are laid over each other
	Workflow     plan.WorkflowSecrets
	Tier         ci.Tier // of the contributor, "" when nothing is known
	Upstreams    []lifecycle.Upstream
	UpstreamIDs  []string // of the same jobs, in the same order
	Bases        []string // base names of the jobs it needs, in order
}

// Stored is what the rows of a job and of its run give to its dispatch.
type Stored struct {
	in                        Input
	config, contexts          string
	event, source, tier, kept sql.NullString
	needs, found              bool
}

// AskStored asks for what is stored of a job.
func AskStored(jobID string, s *Stored) store.Ask {
	return store.Ask{Query: selectInput, Args: []any{jobID}, Row: func(r store.Row) error {
		s.in.JobID, s.found = jobID, true
		return r.Scan(&s.in.RunID, &s.in.JobName, &s.in.Kind, &s.in.OrgID, &s.in.RoutingKey, &s.in.Repo, &s.in.CloneURL, &s.in.Ref, &s.in.SHA,
			&s.in.RequestID, &s.config, &s.event, &s.contexts, &s.source, &s.tier, &s.kept, &s.needs)
	}}
}

// JobName is the name of the job.
func (s Stored) JobName() string { return s.in.JobName }

// Input reads what a dispatch of the job carries.
func (e *Engine) Input(ctx context.Context, jobID string) (Input, error) {
	var s Stored
	err := e.db.Read().All(ctx, AskStored(jobID, &s))
	if err == nil && !s.found {
		err = sql.ErrNoRows
	}
	if err != nil {
		return Input{}, fmt.Errorf("read job %s for its dispatch: %w", jobID, err)
	}
	return e.Complete(ctx, s)
}

// Complete makes of what is stored of a job what its dispatch carries.
func (e *Engine) Complete(ctx context.Context, s Stored) (Input, error) {
	in, jobID := s.in, s.in.JobID
	if err := json.Unmarshal([]byte(s.contexts), &in.Contexts); err != nil {
		return in, fmt.Errorf("decode contexts of job %s: %w", jobID, err)
	}
	in.Tier = ci.Tier(s.tier.String)
	secrets, err := decodeSecrets(s.kept)
	if err != nil {
		return in, err
	}
	in.Workflow = secrets.WorkflowSecrets
	in.Contexts = in.Workflow.MergeOrder(in.Contexts)
	var up upstreams
	if s.needs {
		if up, err = upstreamsOf(ctx, e.db.Read(), jobID); err != nil {
			return in, err
		}
	}
	in.Upstreams, in.UpstreamIDs, in.Bases = up.jobs, up.ids, up.bases
	in.Config = json.RawMessage(s.config)
	if in.CacheScope, err = cacheScope(in.Config); err != nil { // before the event joins, which may be large
		return in, fmt.Errorf("decode configuration of job %s: %w", jobID, err)
	}
	if s.event.Valid {
		in.Config = with(in.Config, "event", s.event.String)
	}
	if s.source.Valid && s.event.Valid { // a generated job is made again from what its generator saw
		in.Config = with(in.Config, "dynamicSource", string(with(json.RawMessage(s.source.String), "event", s.event.String)))
	}
	return in, in.addUpstreams(up)
}

func cacheScope(config json.RawMessage) (string, error) {
	var c struct {
		CacheRefScope string `json:"cacheRefScope"`
	}
	return c.CacheRefScope, json.Unmarshal(config, &c)
}

// addUpstreams completes the configuration of a job that depends on groups, and of a generator that reads results.
func (in *Input) addUpstreams(up upstreams) error {
	if in.Kind == ci.KindGenerator {
		if len(up.jobs) == 0 {
			return nil
		}
		snapshot, err := up.snapshot()
		in.Config = with(in.Config, "upstreamSnapshot", string(snapshot))
		return err
	}
	if len(up.groups) == 0 {
		return nil
	}
	groups, err := json.Marshal(up.groups)
	in.Config = with(in.Config, "upstreamGroups", string(groups))
	return err
}

// SetVariables adds the environment variables of the job's contexts to its configuration.
func (in *Input) SetVariables(variables map[string]string) error {
	if len(variables) == 0 {
		return nil
	}
	raw, err := json.Marshal(variables)
	if err != nil {
		return fmt.Errorf("encode variables of job %s: %w", in.JobID, err)
	}
	in.Config = with(in.Config, "environmentVars", string(raw))
	return nil
}

// with adds a member to a compact JSON object. The event is stored apart from the configurations that carry it: a run of
// a thousand jobs keeps a large payload once.
func with(object json.RawMessage, key, value string) json.RawMessage {
	body := string(object[:len(object)-1]) // a compact object, so it ends with its brace
	separator := ","
	if body == "{" {
		separator = ""
	}
	return json.RawMessage(body + separator + `"` + key + `":` + value + "}")
}

// upstreams are the jobs that a job needs, but for those that only worked for them.
type upstreams struct {
	jobs   []lifecycle.Upstream
	ids    []string
	bases  []string            // in order
	groups map[string][]string // group → names of its jobs that the job needs
}

func upstreamsOf(ctx context.Context, q store.Querier, jobID string) (up upstreams, err error) {
	rows, err := q.QueryContext(ctx, selectUpstreams, jobID)
	if err != nil {
		return up, fmt.Errorf("read upstreams of job %s: %w", jobID, err)
	}
	defer rows.Close()
	up.groups = map[string][]string{}
	for rows.Next() {
		var u lifecycle.Upstream
		var id string
		var outputs, group sql.NullString
		if err := rows.Scan(&u.Name, &u.Base, &u.Kind, &u.Label, &u.Status, &outputs, &group, &id); err != nil {
			return up, err
		}
		u.Outputs = storedOutputs(outputs.String)
		if !slices.Contains(up.bases, u.Base) {
			up.bases = append(up.bases, u.Base)
		}
		if group.Valid {
			up.groups[group.String] = append(up.groups[group.String], u.Name)
		}
		up.jobs, up.ids = append(up.jobs, u), append(up.ids, id)
	}
	return up, rows.Err()
}

// snapshot is what a generator reads of the jobs that it needs. The same rows give the same text, so that what its jobs
// are made from again is what they were made from.
func (up upstreams) snapshot() (json.RawMessage, error) {
	outputs, err := lifecycle.UpstreamOutputs(up.bases, up.jobs)
	if err != nil {
		return nil, err
	}
	statuses := lifecycle.UpstreamStatuses(up.jobs, false)
	if outputs == nil {
		outputs = map[string]json.RawMessage{}
	}
	if statuses == nil {
		statuses = map[string]ci.JobStatus{}
	}
	return json.Marshal(map[string]any{"jobs": outputs, "groups": up.groups, "statuses": statuses})
}

// CannotDispatch ends a job that was claimed and whose frame cannot be made, because a secret cannot be read for
// example. It never started.
func (e *Engine) CannotDispatch(ctx context.Context, jobID, category, message string) error {
	return e.onJob(ctx, jobID, func(_ lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
		return lifecycle.CannotStart(job, ci.InitFailure{Scope: ci.ScopeJob, Category: category, Message: message, JobName: job.Name}, now)
	})
}

const (
	selectInput = `SELECT j.run_id, j.job_name, j.kind, r.org_id, r.routing_key, r.repo_identifier, j.repo_url, j.ref, j.sha, r.request_id,
j.job_config, r.event, j.contexts, j.dynamic_source, r.trust_tier, r.workflow_secrets,
EXISTS (SELECT 1 FROM execution_job_needs n WHERE n.job_id = j.job_id) FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id WHERE j.job_id = $1`

	selectUpstreams = `SELECT u.job_name, u.base_job_name, u.variant_kind, u.variant_label, u.status, u.outputs, u.group_name, u.job_id
FROM execution_job_needs n JOIN execution_jobs u ON u.job_id = n.upstream_id WHERE n.job_id = $1 AND u.kind = 'standard'
ORDER BY n.position, u.position`
)
