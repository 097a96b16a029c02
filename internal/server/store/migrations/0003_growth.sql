-- owner: engine
ALTER TABLE execution_runs ADD COLUMN plan_input TEXT;                        -- what jobs that join later are made from
ALTER TABLE execution_runs ADD COLUMN concurrency TEXT;                       -- the workflow's rule for its group
ALTER TABLE execution_runs ADD COLUMN concurrency_group TEXT;                 -- as an agent named it
ALTER TABLE execution_jobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'standard';  -- standard, init, generator, build
ALTER TABLE execution_jobs ADD COLUMN deferred BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE execution_jobs ADD COLUMN holds BIGINT NOT NULL DEFAULT 0;        -- pending holds
ALTER TABLE execution_jobs ADD COLUMN slot_waiting BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE execution_jobs ADD COLUMN approval TEXT;                          -- what the author asks for before it may run
ALTER TABLE execution_jobs ADD COLUMN target_id TEXT;                         -- of an init job: the job it works for
ALTER TABLE execution_jobs ADD COLUMN group_name TEXT;                        -- of a generator and of its jobs
ALTER TABLE execution_jobs ADD COLUMN generator_id TEXT;                      -- of a generated job
ALTER TABLE execution_jobs ADD COLUMN dynamic_source TEXT;                    -- of a generated job, without the event
ALTER TABLE execution_job_needs ADD COLUMN via_group BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX execution_runs_parent ON execution_runs (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX execution_jobs_running ON execution_jobs (last_heartbeat_at) WHERE status = 'running';
CREATE INDEX execution_jobs_target ON execution_jobs (target_id) WHERE target_id IS NOT NULL;
CREATE INDEX execution_jobs_generator ON execution_jobs (generator_id) WHERE generator_id IS NOT NULL;

-- One row for each place of a run in a group, or in the line for one. A run has one place, and jobs of it may wait for it.
CREATE TABLE concurrency_slots (
    routing_key TEXT NOT NULL,
    group_key   TEXT NOT NULL,
    run_id      TEXT NOT NULL REFERENCES execution_runs (run_id),
    active      BOOLEAN NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (routing_key, group_key, run_id)
);
CREATE INDEX concurrency_slots_run ON concurrency_slots (run_id);
-- Jobs that wait for their run's place: with the agent that asked, or taken back from it.
CREATE TABLE concurrency_waiters (
    job_id     TEXT PRIMARY KEY REFERENCES execution_jobs (job_id),
    run_id     TEXT NOT NULL,
    agent_id   TEXT NOT NULL DEFAULT '', -- "" when the job was taken back
    request_id TEXT NOT NULL DEFAULT ''  -- of the agent's question
);
CREATE INDEX concurrency_waiters_run ON concurrency_waiters (run_id);
-- A row for each group that is in use, locked by whoever decides about it.
CREATE TABLE concurrency_groups (
    routing_key TEXT NOT NULL,
    group_key   TEXT NOT NULL,
    used_at     BIGINT NOT NULL,
    PRIMARY KEY (routing_key, group_key)
);

-- A pending gate on a run, a job or a step that a person, a time or a slot releases.
CREATE TABLE held_runs (
    id             TEXT PRIMARY KEY,
    org_id         TEXT NOT NULL,
    run_id         TEXT NOT NULL REFERENCES execution_runs (run_id),
    job_id         TEXT NOT NULL DEFAULT '',  -- "" for a hold on the workflow
    hold_scope     TEXT NOT NULL,             -- workflow, job, step
    step_index     BIGINT NOT NULL DEFAULT -1,
    step_name      TEXT NOT NULL DEFAULT '',
    hold_type      TEXT NOT NULL,             -- reviewer, timer, concurrency, security
    queue_type     TEXT NOT NULL,             -- context, security
    trigger_source TEXT NOT NULL,             -- context, explicit
    context_name   TEXT,
    status         TEXT NOT NULL,
    reason         TEXT NOT NULL,             -- a reason document
    clauses        TEXT NOT NULL,             -- a list of {team} or {user}, all of which must be satisfied
    payload        TEXT,                      -- what a step showed its reviewers
    agent_id       TEXT NOT NULL DEFAULT '',  -- of a step: who waits for the answer
    request_id     TEXT NOT NULL DEFAULT '',
    created_at     BIGINT NOT NULL,
    expires_at     BIGINT,
    resolved_at    BIGINT,
    resolved_by    TEXT
);
CREATE UNIQUE INDEX held_runs_open ON held_runs (run_id, job_id, hold_scope, step_index) WHERE status = 'pending';
CREATE INDEX held_runs_slots ON held_runs (org_id, context_name) WHERE status = 'pending' AND hold_type = 'concurrency';
CREATE INDEX held_runs_due ON held_runs (expires_at) WHERE status = 'pending';
CREATE INDEX held_runs_run ON held_runs (run_id);
CREATE TABLE held_run_approvals (
    id                TEXT PRIMARY KEY,
    held_run_id       TEXT NOT NULL REFERENCES held_runs (id),
    approver_id       TEXT NOT NULL,
    decision          TEXT NOT NULL,          -- approve, reject
    clauses_satisfied TEXT NOT NULL,
    reason            TEXT,
    created_at        BIGINT NOT NULL
);
CREATE INDEX held_run_approvals_hold ON held_run_approvals (held_run_id);
