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
