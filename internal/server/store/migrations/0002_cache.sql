-- owner: cache
-- What was uploaded and confirmed. A run_id other than '' keeps an entry to one run.
CREATE TABLE cache_entries (
    id          TEXT PRIMARY KEY,          -- of the upload that it came of
    kind        TEXT NOT NULL,             -- source, deps, user, artifact
    org_id      TEXT NOT NULL,
    repo_id     TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    key         TEXT NOT NULL,
    path        TEXT NOT NULL UNIQUE,      -- of the blob
    size_bytes  BIGINT NOT NULL,           -- as the store has it
    hash        TEXT NOT NULL,             -- SHA-256 in hex as the agent reported it, '' when it did not
    job_id      TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    accessed_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX cache_entries_key ON cache_entries (kind, org_id, repo_id, run_id, key);
CREATE INDEX cache_entries_use ON cache_entries (kind, org_id, accessed_at);
CREATE INDEX cache_entries_run ON cache_entries (run_id) WHERE run_id <> '';

-- What somebody has a link to put. The row comes before the link, so no blob is without one of the three rows.
CREATE TABLE cache_uploads (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL,
    org_id     TEXT NOT NULL,
    repo_id    TEXT NOT NULL,
    run_id     TEXT NOT NULL,
    job_id     TEXT NOT NULL,
    key        TEXT NOT NULL,
    path       TEXT NOT NULL UNIQUE,       -- where the link leads
    target     TEXT NOT NULL UNIQUE,       -- where the blob goes once it is confirmed
    max_bytes  BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX cache_uploads_job ON cache_uploads (job_id, kind, key);
CREATE INDEX cache_uploads_age ON cache_uploads (created_at);

-- Paths whose blobs are to be removed, whether they are there or not.
CREATE TABLE cache_discards (
    path   TEXT PRIMARY KEY,
    due_at BIGINT NOT NULL
);
CREATE INDEX cache_discards_due ON cache_discards (due_at);

-- A row to lock while an organisation's use is counted.
CREATE TABLE cache_orgs (
    org_id TEXT PRIMARY KEY
);
