-- Times are milliseconds since 1970 (UTC), ids are texts, documents are JSON texts. BYTEA columns hold raw bytes.

-- owner: cluster
CREATE TABLE nodes (
    id         TEXT PRIMARY KEY,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);
CREATE TABLE leases (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    epoch      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- owner: outbox
CREATE TABLE outbox (
    id            TEXT PRIMARY KEY,
    topic         TEXT NOT NULL,
    target        TEXT NOT NULL,
    payload       TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    due_at        BIGINT NOT NULL,
    attempts      BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX outbox_due ON outbox (topic, due_at);

-- owner: auth
CREATE TABLE admin_tokens (
    id           TEXT PRIMARY KEY,
    label        TEXT NOT NULL,
    token_hash   TEXT NOT NULL UNIQUE,
    role         TEXT NOT NULL,
    routing_key  TEXT,
    subject      TEXT,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT,
    revoked      BOOLEAN NOT NULL DEFAULT FALSE
);
-- Two servers that boot at once make one bootstrap token.
CREATE UNIQUE INDEX admin_tokens_bootstrap ON admin_tokens (label) WHERE label = 'bootstrap' AND NOT revoked;
CREATE TABLE agent_tokens (
    id               TEXT PRIMARY KEY,
    token_hash       TEXT NOT NULL UNIQUE,
    token_prefix     TEXT NOT NULL,
    labels           TEXT,
    mandatory_labels TEXT,
    agent_type       TEXT NOT NULL,
    created_by       TEXT NOT NULL DEFAULT '',
    created_at       BIGINT NOT NULL,
    last_seen_at     BIGINT,
    expires_at       BIGINT,
    revoked_at       BIGINT,
    consumed_at      BIGINT
);
CREATE TABLE access_log (
    id          TEXT PRIMARY KEY,
    at          BIGINT NOT NULL,
    org_id      TEXT NOT NULL,
    actor_type  TEXT NOT NULL,
    actor_id    TEXT NOT NULL,
    actor_meta  TEXT,
    action      TEXT NOT NULL,
    source      TEXT NOT NULL,
    target_type TEXT NOT NULL DEFAULT '',
    target_id   TEXT NOT NULL DEFAULT '',
    outcome     TEXT NOT NULL,
    meta        TEXT
);
CREATE INDEX access_log_at ON access_log (at);

-- owner: secrets
CREATE TABLE scoped_secrets (
    org_id          TEXT NOT NULL,
    scope           TEXT NOT NULL,
    key             TEXT NOT NULL,
    encrypted_value TEXT NOT NULL,
    key_version     BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    PRIMARY KEY (org_id, scope, key)
);
CREATE TABLE secret_audit_log (
    id           TEXT PRIMARY KEY,
    at           BIGINT NOT NULL,
    action       TEXT NOT NULL,
    context_name TEXT,
    routing_key  TEXT,
    secret_keys  TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    run_id       TEXT,
    job_id       TEXT,
    user_id      TEXT,
    role         TEXT,
    metadata     TEXT
);
CREATE INDEX secret_audit_log_at ON secret_audit_log (at);

-- owner: fleet
CREATE TABLE agents (
    agent_id         TEXT PRIMARY KEY,
    labels           TEXT NOT NULL,
    mandatory_labels TEXT NOT NULL,
    features         TEXT NOT NULL,
    platform         TEXT NOT NULL,
    arch             TEXT NOT NULL,
    hostname         TEXT NOT NULL DEFAULT '',
    version          TEXT NOT NULL DEFAULT '',
    lifecycle_class  TEXT NOT NULL,
    max_concurrency  BIGINT NOT NULL,
    properties       TEXT NOT NULL,
    inventory        TEXT NOT NULL,
    token_id         TEXT,
    node_id          TEXT NOT NULL DEFAULT '',
    connection_id    TEXT NOT NULL DEFAULT '',
    first_seen_at    BIGINT NOT NULL,
    last_seen_at     BIGINT NOT NULL,
    disconnected_at  BIGINT
);
CREATE INDEX agents_connected ON agents (node_id) WHERE disconnected_at IS NULL;

-- owner: forge
CREATE TABLE sources (
    id                      TEXT PRIMARY KEY,
    org_id                  TEXT NOT NULL,
    name                    TEXT NOT NULL,
    provider_type           TEXT NOT NULL,
    routing_key             TEXT NOT NULL UNIQUE,
    verification_method     TEXT NOT NULL,
    verification_config     TEXT NOT NULL, -- sealed: it holds secrets
    key_version             BIGINT NOT NULL,
    event_type_header       TEXT,
    event_type_path         TEXT,
    idempotency_key_header  TEXT,
    idempotency_key_path    TEXT,
    dedup_window_seconds    BIGINT NOT NULL,
    max_payload_bytes       BIGINT NOT NULL,
    allowed_events          TEXT,
    strip_headers           TEXT NOT NULL,
    rate_limit_rpm          BIGINT NOT NULL,
    local_config            TEXT,
    enabled                 BOOLEAN NOT NULL DEFAULT TRUE,
    created_at              BIGINT NOT NULL,
    updated_at              BIGINT NOT NULL,
    deleted_at              BIGINT
);
CREATE UNIQUE INDEX sources_name ON sources (org_id, name) WHERE deleted_at IS NULL;

-- owner: inbox
CREATE TABLE inbox (
    delivery_id  TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL,
    routing_key  TEXT NOT NULL,
    source_id    TEXT NOT NULL,
    event        TEXT NOT NULL,
    action       TEXT NOT NULL DEFAULT '',
    headers      TEXT NOT NULL,
    payload      BYTEA NOT NULL,
    request_id   TEXT NOT NULL,
    state        TEXT NOT NULL,           -- waiting, done
    received_at  BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,         -- the claim: until then the same delivery id is a duplicate
    lease_node   TEXT NOT NULL DEFAULT '',
    lease_until  BIGINT NOT NULL DEFAULT 0,
    attempts     BIGINT NOT NULL DEFAULT 0,
    last_error   TEXT
);
CREATE INDEX inbox_waiting ON inbox (received_at, delivery_id) WHERE state = 'waiting';
CREATE INDEX inbox_expires ON inbox (expires_at);
CREATE TABLE idempotency_keys (
    source_id  TEXT NOT NULL,
    key        TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (source_id, key)
);
CREATE TABLE event_log (
    org_id                 TEXT NOT NULL,
    delivery_id            TEXT NOT NULL,
    routing_key            TEXT NOT NULL,
    event                  TEXT NOT NULL,
    action                 TEXT,
    source                 TEXT NOT NULL,
    provider               TEXT NOT NULL,
    repo_identifier        TEXT,
    ref                    TEXT,
    status                 TEXT NOT NULL,
    matched_count          BIGINT NOT NULL DEFAULT 0,
    run_id                 TEXT,
    error_message          TEXT,
    payload_key            TEXT,
    payload_omitted        BOOLEAN NOT NULL DEFAULT FALSE,
    payload_omitted_reason TEXT,
    payload_size_bytes     BIGINT NOT NULL,
    payload_hash           TEXT NOT NULL,
    received_at            BIGINT NOT NULL,
    PRIMARY KEY (org_id, delivery_id)
);
CREATE INDEX event_log_received ON event_log (received_at);

-- owner: engine
CREATE TABLE execution_runs (
    run_id              TEXT PRIMARY KEY,
    org_id              TEXT NOT NULL,
    routing_key         TEXT NOT NULL,
    workflow_name       TEXT NOT NULL,
    status              TEXT NOT NULL,
    reason              TEXT,             -- why it waits or why it ended, a reason document
    failure_reason      TEXT,             -- the sentence of it that people see
    init_failure        TEXT,
    provider            TEXT NOT NULL,
    repo_identifier     TEXT NOT NULL,
    ref                 TEXT NOT NULL,
    sha                 TEXT NOT NULL,
    delivery_id         TEXT,
    request_id          TEXT NOT NULL DEFAULT '',
    trigger_event       TEXT,
    trigger_decision    TEXT,
    event               TEXT,             -- the envelope that every job of the run is given
    commit_message      TEXT,
    sender              TEXT,
    triggered_by        TEXT,
    parent_run_id       TEXT,
    original_run_id     TEXT,
    is_test_run         BOOLEAN NOT NULL DEFAULT FALSE,
    check_mode          TEXT,
    trust_tier          TEXT,
    lock_file_source    TEXT,
    context             TEXT,
    created_at          BIGINT NOT NULL,
    started_at          BIGINT,
    completed_at        BIGINT,
    duration_ms         BIGINT,
    log_bytes           BIGINT NOT NULL DEFAULT 0,
    workflow_timeout_ms BIGINT,
    cancelled_by        TEXT,
    cancel_reason       TEXT,
    cancel_requested_at BIGINT,
    cancel_forced       BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX execution_runs_created ON execution_runs (created_at DESC, run_id);
CREATE INDEX execution_runs_delivery ON execution_runs (delivery_id);
CREATE INDEX execution_runs_open ON execution_runs (created_at) WHERE completed_at IS NULL;
CREATE TABLE execution_jobs (
    job_id            TEXT PRIMARY KEY,
    run_id            TEXT NOT NULL REFERENCES execution_runs (run_id),
    position          BIGINT NOT NULL,     -- order of registration within the run
    job_name          TEXT NOT NULL,
    base_job_name     TEXT NOT NULL,
    status            TEXT NOT NULL,
    reason            TEXT,
    error_message     TEXT,
    init_failure      TEXT,
    matrix_values     TEXT,
    variant_kind      TEXT NOT NULL DEFAULT '',
    variant_label     TEXT NOT NULL DEFAULT '',
    fanout_index      BIGINT NOT NULL DEFAULT 0,
    fanout_total      BIGINT NOT NULL DEFAULT 0,
    wave_gated        BOOLEAN NOT NULL DEFAULT FALSE,
    wave_max_parallel BIGINT NOT NULL DEFAULT 0,
    wave_fail_fast    BOOLEAN NOT NULL DEFAULT FALSE,
    selector_id       TEXT NOT NULL,
    runs_on_labels    TEXT NOT NULL,       -- for people: the selector in words
    pick              TEXT NOT NULL DEFAULT '',
    job_config        TEXT NOT NULL,       -- no secret is ever in it
    contexts          TEXT NOT NULL,       -- names of bound contexts, in order
    repo_url          TEXT NOT NULL,
    ref               TEXT NOT NULL,
    sha               TEXT NOT NULL,
    timeout_ms        BIGINT NOT NULL DEFAULT 0,
    grace_ms          BIGINT NOT NULL DEFAULT 0,
    needs_satisfied   BOOLEAN NOT NULL,
    ready_at          BIGINT,
    agent_id          TEXT,
    attempts          BIGINT NOT NULL DEFAULT 0, -- deliveries to an agent so far
    created_at        BIGINT NOT NULL,
    started_at        BIGINT,
    completed_at      BIGINT,
    duration_ms       BIGINT,
    last_heartbeat_at BIGINT,
    progress          BIGINT NOT NULL DEFAULT 0,
    progress_at       BIGINT,
    log_bytes         BIGINT NOT NULL DEFAULT 0,
    outputs           TEXT
);
CREATE INDEX execution_jobs_run ON execution_jobs (run_id, position);
CREATE INDEX execution_jobs_open ON execution_jobs (run_id) WHERE completed_at IS NULL;
CREATE INDEX execution_jobs_base ON execution_jobs (run_id, base_job_name);
CREATE TABLE execution_job_needs (
    run_id      TEXT NOT NULL,
    job_id      TEXT NOT NULL REFERENCES execution_jobs (job_id),
    upstream_id TEXT NOT NULL REFERENCES execution_jobs (job_id),
    position    BIGINT NOT NULL,
    run_on      TEXT NOT NULL,
    PRIMARY KEY (job_id, upstream_id)
);
CREATE INDEX execution_job_needs_upstream ON execution_job_needs (upstream_id);
CREATE TABLE execution_steps (
    job_id           TEXT NOT NULL REFERENCES execution_jobs (job_id),
    step_index       BIGINT NOT NULL,
    run_id           TEXT NOT NULL,
    step_name        TEXT NOT NULL,
    status           TEXT NOT NULL,
    step_type        TEXT NOT NULL DEFAULT 'step',
    started_at       BIGINT,
    completed_at     BIGINT,
    duration_ms      BIGINT,
    exit_code        BIGINT,
    error_message    TEXT,
    log_path         TEXT NOT NULL,
    log_bytes        BIGINT NOT NULL DEFAULT 0,
    secrets_accessed TEXT,
    check_outcome    TEXT,
    drift_summary    TEXT,
    drift            TEXT,
    concurrency_kind TEXT,
    group_id         TEXT,
    PRIMARY KEY (job_id, step_index)
);
CREATE INDEX execution_steps_run ON execution_steps (run_id);

-- owner: timeline
CREATE TABLE run_events (
    id          TEXT PRIMARY KEY,
    run_id      TEXT NOT NULL,
    job_id      TEXT,
    at          BIGINT NOT NULL,
    event_type  TEXT NOT NULL,
    source      TEXT NOT NULL,
    duration_ms BIGINT,
    metadata    TEXT
);
CREATE INDEX run_events_run ON run_events (run_id, at);
CREATE TABLE job_contexts (
    job_id  TEXT PRIMARY KEY,
    run_id  TEXT NOT NULL,
    at      BIGINT NOT NULL,
    context TEXT NOT NULL
);

-- owner: queue
CREATE TABLE selectors (
    id        TEXT PRIMARY KEY,            -- hash of the canonical text
    canonical TEXT NOT NULL
);
CREATE TABLE dispatch_queue (
    id                      TEXT PRIMARY KEY, -- the job's id
    run_id                  TEXT NOT NULL,
    selector_id             TEXT NOT NULL REFERENCES selectors (id),
    status                  TEXT NOT NULL,
    reason                  TEXT,
    created_at              BIGINT NOT NULL,
    position                BIGINT NOT NULL DEFAULT 0, -- of the job in its run: the order among rows of one moment
    expires_at              BIGINT,
    attempts                BIGINT NOT NULL DEFAULT 0, -- completed re-deliveries
    agent_id                TEXT,
    node_id                 TEXT,
    claimed_at              BIGINT,
    ack_deadline            BIGINT,           -- set while an answer to the dispatch is awaited
    started                 BOOLEAN NOT NULL DEFAULT FALSE,
    recovery_deadline       BIGINT,
    last_provisioning_error TEXT
);
-- One row for each delivery of a job to an agent. It tells a late message of a former owner from a stranger's.
CREATE TABLE dispatch_attempts (
    job_id     TEXT NOT NULL,
    attempt    BIGINT NOT NULL,
    agent_id   TEXT NOT NULL,
    node_id    TEXT NOT NULL,
    claimed_at BIGINT NOT NULL,
    ended_at   BIGINT,
    outcome    TEXT,                       -- a reason code
    PRIMARY KEY (job_id, attempt)
);
CREATE INDEX dispatch_queue_heads ON dispatch_queue (selector_id, created_at, position, id) WHERE status = 'pending';
CREATE INDEX dispatch_queue_expiry ON dispatch_queue (expires_at) WHERE status = 'pending';
CREATE INDEX dispatch_queue_agents ON dispatch_queue (agent_id) WHERE status IN ('dispatched', 'recovering');
CREATE INDEX dispatch_queue_ack ON dispatch_queue (ack_deadline) WHERE status = 'dispatched';
CREATE INDEX dispatch_queue_recovery ON dispatch_queue (recovery_deadline) WHERE status = 'recovering';
CREATE INDEX dispatch_queue_run ON dispatch_queue (run_id);
