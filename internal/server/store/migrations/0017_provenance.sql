-- owner: provenance
-- Keys that sign the identity tokens of jobs. A key that is not revoked is published, and what it signed is believed.
CREATE TABLE orchestrator_signing_keys (
    kid                   TEXT PRIMARY KEY,  -- RFC 7638 thumbprint
    public_jwk            TEXT NOT NULL,
    encrypted_private_jwk TEXT NOT NULL,     -- an envelope under the master key
    key_version           BIGINT NOT NULL,   -- of the master key
    status                TEXT NOT NULL,     -- active, retiring, retired, revoked
    revocation_reason     TEXT,
    created_at            BIGINT NOT NULL,
    activated_at          BIGINT NOT NULL,
    retired_at            BIGINT,            -- since when it signs no more
    revoked_at            BIGINT
);
CREATE UNIQUE INDEX orchestrator_signing_keys_active ON orchestrator_signing_keys (status) WHERE status = 'active';

-- Provenance bundles that jobs left behind, whose bytes are blobs, and what is thought of each.
CREATE TABLE attestations (
    run_id         TEXT NOT NULL,
    job_id         TEXT NOT NULL,
    subject_digest TEXT NOT NULL,            -- lower-case hex
    subject_name   TEXT NOT NULL,
    storage_key    TEXT NOT NULL,            -- of the blob
    media_type     TEXT NOT NULL,
    size_bytes     BIGINT NOT NULL,
    verify_status  TEXT NOT NULL,            -- verified, failed, unverifiable
    verify_reason  TEXT NOT NULL,            -- '' for a verified one
    created_at     BIGINT NOT NULL,
    verified_at    BIGINT NOT NULL,          -- when it was judged last
    PRIMARY KEY (run_id, job_id, subject_digest)
);
