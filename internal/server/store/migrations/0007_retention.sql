-- owner: engine
-- Runs that were deleted with everything of theirs, so that who asks for one can be told so.
CREATE TABLE forgotten_runs (
    run_id       TEXT PRIMARY KEY,
    routing_key  TEXT NOT NULL,
    forgotten_at BIGINT NOT NULL
);
CREATE INDEX forgotten_runs_age ON forgotten_runs (forgotten_at);
CREATE INDEX execution_runs_ended ON execution_runs (completed_at) WHERE completed_at IS NOT NULL;

-- owner: events
CREATE INDEX kici_events_run ON kici_events (source_run_id) WHERE source_run_id IS NOT NULL;
