-- owner: orgs
-- What organisations decide for themselves. NULL leaves it to the server.
CREATE TABLE org_settings (
    org_id                    TEXT PRIMARY KEY,
    allow_self_approval       BOOLEAN NOT NULL,
    allow_http_npm_registries BOOLEAN NOT NULL,
    approval_expiry_seconds   BIGINT NOT NULL,
    user_cache_quota_bytes    BIGINT,
    user_cache_ttl_ms         BIGINT,
    created_at                BIGINT NOT NULL,
    updated_at                BIGINT NOT NULL
);
