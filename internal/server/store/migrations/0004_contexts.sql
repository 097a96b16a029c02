-- owner: secrets
-- The key pair of a run that goes on, made at its first dispatch and forgotten with the end of the run.
CREATE TABLE run_ephemeral_keys (
    run_id                TEXT PRIMARY KEY,
    public_key            TEXT NOT NULL, -- goes to agents
    encrypted_private_key TEXT NOT NULL,
    key_version           BIGINT NOT NULL,
    created_at            BIGINT NOT NULL
);
-- What the jobs of a run that goes on gave to their dependants in secret.
CREATE TABLE run_secret_outputs (
    run_id          TEXT NOT NULL,
    job_id          TEXT NOT NULL,
    output_key      TEXT NOT NULL,
    encrypted_value TEXT NOT NULL,
    key_version     BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    PRIMARY KEY (run_id, job_id, output_key)
);
-- owner: contexts
-- Named deployment targets that own variables, select secrets and guard jobs. Lists are JSON.
CREATE TABLE contexts (
    id                     TEXT PRIMARY KEY,
    org_id                 TEXT NOT NULL,
    name                   TEXT NOT NULL,
    type                   TEXT NOT NULL, -- fixed, glob
    glob_pattern           TEXT NOT NULL,
    enabled                BOOLEAN NOT NULL,
    branch_restrictions    TEXT NOT NULL,
    trigger_type_filters   TEXT NOT NULL,
    repo_patterns          TEXT NOT NULL,
    concurrency_limit      BIGINT,
    concurrency_strategy   TEXT NOT NULL,
    concurrency_timeout_ms BIGINT NOT NULL,
    required_reviewers     TEXT NOT NULL,
    wait_timer_seconds     BIGINT,
    hold_expiry_seconds    BIGINT NOT NULL,
    minimum_trust          TEXT NOT NULL, -- "" is any
    allow_local_execution  BOOLEAN NOT NULL,
    created_at             BIGINT NOT NULL,
    updated_at             BIGINT NOT NULL,
    created_by             TEXT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE TABLE context_bindings (
    id            TEXT PRIMARY KEY, -- rises, so that bindings of one moment keep their order
    context_id    TEXT NOT NULL REFERENCES contexts (id) ON DELETE CASCADE,
    scope_pattern TEXT NOT NULL,
    host_pattern  TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    UNIQUE (context_id, scope_pattern, host_pattern)
);
CREATE TABLE context_variables (
    context_id TEXT NOT NULL REFERENCES contexts (id) ON DELETE CASCADE,
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    locked     BOOLEAN NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (context_id, key)
);
-- Other values of variables for the runs of one source.
CREATE TABLE context_source_overrides (
    context_id  TEXT NOT NULL REFERENCES contexts (id) ON DELETE CASCADE,
    routing_key TEXT NOT NULL,
    key         TEXT NOT NULL,
    value       TEXT NOT NULL,
    updated_at  BIGINT NOT NULL,
    PRIMARY KEY (context_id, routing_key, key)
);
