-- owner: fleet
-- Hosts that an operator declared, whether an agent ever ran there or not, and the way to them.
CREATE TABLE declared_hosts (
    agent_id       TEXT PRIMARY KEY,
    labels         TEXT NOT NULL,             -- a list
    properties     TEXT NOT NULL,             -- an object
    hostname       TEXT NOT NULL DEFAULT '',
    address        TEXT NOT NULL DEFAULT '',  -- where SSH reaches it, without the port
    ssh_user       TEXT NOT NULL DEFAULT '',
    ssh_port       BIGINT NOT NULL DEFAULT 22,
    ssh_key_secret TEXT NOT NULL DEFAULT '',  -- scope/key of the secret that holds the private key
    ssh_host_key   TEXT NOT NULL DEFAULT '',  -- the host's public key, "" to accept whichever it shows first
    declared_at    BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL
);

-- owner: engine
-- Of a job that starts an agent on a host: the id of that agent.
ALTER TABLE execution_jobs ADD COLUMN brings_up TEXT;
CREATE INDEX execution_jobs_bringups ON execution_jobs (brings_up) WHERE brings_up IS NOT NULL AND completed_at IS NULL;
