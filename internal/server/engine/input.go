package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"kici/internal/core/ci"
	"kici/internal/decide/lifecycle"
)

// Input is what an agent is given of a job, without secrets and credentials.
type Input struct {
	RunID, JobID string
	JobName      string
	OrgID        string
	RoutingKey   string
	Repo         string
	CloneURL     string
	Ref, SHA     string
	RequestID    string
	Config       json.RawMessage // with the event
	Contexts     []string
	Upstreams    []lifecycle.Upstream
	Bases        []string // base names of the jobs it needs, in order
}

// Input reads what a dispatch of the job carries.
func (e *Engine) Input(ctx context.Context, jobID string) (Input, error) {
	in := Input{JobID: jobID}
	var config, contexts string
	var event sql.NullString
	err := e.db.Read().QueryRowContext(ctx, selectInput, jobID).Scan(&in.RunID, &in.JobName, &in.OrgID, &in.RoutingKey, &in.Repo,
		&in.CloneURL, &in.Ref, &in.SHA, &in.RequestID, &config, &event, &contexts)
	if err != nil {
		return in, fmt.Errorf("read job %s for its dispatch: %w", jobID, err)
	}
	if err := json.Unmarshal([]byte(contexts), &in.Contexts); err != nil {
		return in, fmt.Errorf("decode contexts of job %s: %w", jobID, err)
	}
	in.Config = withEvent(config, event.String)
	return in, e.readUpstreams(ctx, &in)
}

// withEvent puts the run's event into a job's configuration, which is stored without it: a run of a thousand jobs keeps
// a large payload once.
func withEvent(config, event string) json.RawMessage {
	if event == "" {
		return json.RawMessage(config)
	}
	body := config[:len(config)-1] // a compact object, so it ends with its brace
	separator := ","
	if body == "{" {
		separator = ""
	}
	return json.RawMessage(body + separator + `"event":` + event + "}")
}

func (e *Engine) readUpstreams(ctx context.Context, in *Input) error {
	rows, err := e.db.Read().QueryContext(ctx, selectUpstreams, in.JobID)
	if err != nil {
		return fmt.Errorf("read upstreams of job %s: %w", in.JobID, err)
	}
	defer rows.Close()
	seen := map[string]bool{}
	for rows.Next() {
		var u lifecycle.Upstream
		var outputs sql.NullString
		if err := rows.Scan(&u.Name, &u.Base, &u.Kind, &u.Label, &u.Status, &outputs); err != nil {
			return err
		}
		if outputs.Valid {
			u.Outputs = json.RawMessage(outputs.String)
		}
		if !seen[u.Base] {
			seen[u.Base] = true
			in.Bases = append(in.Bases, u.Base)
		}
		in.Upstreams = append(in.Upstreams, u)
	}
	return rows.Err()
}

// CannotDispatch ends a job that was claimed and whose frame cannot be made, because a secret cannot be read for
// example. It never started.
func (e *Engine) CannotDispatch(ctx context.Context, jobID, category, message string) error {
	return e.onJob(ctx, jobID, func(_ lifecycle.Run, job lifecycle.Job, now int64) lifecycle.Outcome {
		return lifecycle.CannotStart(job, ci.InitFailure{Scope: ci.ScopeJob, Category: category, Message: message, JobName: job.Name}, now)
	})
}

const (
	selectInput = `SELECT j.run_id, j.job_name, r.org_id, r.routing_key, r.repo_identifier, j.repo_url, j.ref, j.sha, r.request_id,
j.job_config, r.event, j.contexts FROM execution_jobs j JOIN execution_runs r ON r.run_id = j.run_id WHERE j.job_id = $1`

	selectUpstreams = `SELECT u.job_name, u.base_job_name, u.variant_kind, u.variant_label, u.status, u.outputs
FROM execution_job_needs n JOIN execution_jobs u ON u.job_id = n.upstream_id WHERE n.job_id = $1 ORDER BY n.position, u.position`
)
