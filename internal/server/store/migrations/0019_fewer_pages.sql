-- Each index is written with every run. The rows that are with agents are few and one index leads to all of them, the rows
-- of a run are found by its jobs, and whether a job has ended stands beside its run.
-- owner: queue
DROP INDEX dispatch_queue_ack;
DROP INDEX dispatch_queue_recovery;
DROP INDEX dispatch_queue_run;
DROP INDEX dispatch_queue_expiry;
DROP INDEX dispatch_queue_heads;
CREATE INDEX dispatch_queue_heads ON dispatch_queue (selector_id, created_at, position, id, expires_at) WHERE status = 'pending';
DROP INDEX dispatch_queue_agents;
CREATE INDEX dispatch_queue_agents ON dispatch_queue (agent_id, status) WHERE status IN ('dispatched', 'recovering');

-- owner: engine
DROP INDEX execution_jobs_running;
DROP INDEX execution_jobs_open;
DROP INDEX execution_jobs_run;
CREATE INDEX execution_jobs_run ON execution_jobs (run_id, completed_at);
DROP INDEX execution_runs_open;
CREATE INDEX execution_runs_limited ON execution_runs (created_at)
    WHERE completed_at IS NULL AND (cancel_requested_at IS NOT NULL OR workflow_timeout_ms > 0);
