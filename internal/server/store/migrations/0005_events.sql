-- owner: engine
-- Of the event that started the run, 0 when none did. What the run emits is one deeper.
ALTER TABLE execution_runs ADD COLUMN chain_depth BIGINT NOT NULL DEFAULT 0;

-- owner: events
-- What runs and jobs tell other workflows.
CREATE TABLE kici_events (
    id                 TEXT PRIMARY KEY,
    event_name         TEXT NOT NULL,    -- one that begins with __ or kici. is the server's own
    payload            TEXT NOT NULL,    -- an object
    org_id             TEXT NOT NULL,
    source_repo        TEXT NOT NULL DEFAULT '',
    source_routing_key TEXT NOT NULL DEFAULT '',
    source_run_id      TEXT,
    source_job_id      TEXT,
    target_repos       TEXT,             -- a list, NULL for every repository
    chain_depth        BIGINT NOT NULL,
    rate_key           TEXT,             -- what is counted together, NULL for what is not limited
    processed          BOOLEAN NOT NULL DEFAULT FALSE,
    dlq_at             BIGINT,           -- when it became a dead letter
    created_at         BIGINT NOT NULL,
    expires_at         BIGINT NOT NULL
);
CREATE INDEX kici_events_expiry ON kici_events (expires_at) WHERE dlq_at IS NULL;
CREATE INDEX kici_events_rate ON kici_events (rate_key, created_at) WHERE rate_key IS NOT NULL;
