-- owner: engine
-- References of a workflow to contexts and their secrets, which say where values lie and never hold one.
ALTER TABLE execution_runs ADD COLUMN workflow_secrets TEXT;
