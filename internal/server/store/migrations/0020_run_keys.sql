-- owner: engine
-- The key pair of a run that goes on, for which agents seal its secret outputs. The end of the run takes it away.
ALTER TABLE execution_runs ADD COLUMN public_key TEXT;         -- goes to agents
ALTER TABLE execution_runs ADD COLUMN sealed_private_key TEXT; -- an envelope under the master key
ALTER TABLE execution_runs ADD COLUMN key_made_at BIGINT;      -- NULL: with the run
UPDATE execution_runs SET
    public_key = (SELECT k.public_key FROM run_ephemeral_keys k WHERE k.run_id = execution_runs.run_id),
    sealed_private_key = (SELECT k.encrypted_private_key FROM run_ephemeral_keys k WHERE k.run_id = execution_runs.run_id),
    key_made_at = (SELECT k.created_at FROM run_ephemeral_keys k WHERE k.run_id = execution_runs.run_id)
WHERE completed_at IS NULL AND run_id IN (SELECT run_id FROM run_ephemeral_keys);
DROP TABLE run_ephemeral_keys;
