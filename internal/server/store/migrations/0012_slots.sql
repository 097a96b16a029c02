-- owner: engine
-- Of whose slots a job takes one while a context of its limits how many go on: its concurrency group, or its first context.
-- NULL for a job that binds no context.
ALTER TABLE execution_jobs ADD COLUMN slot_group TEXT;
CREATE INDEX execution_jobs_slots ON execution_jobs (slot_group) WHERE slot_group IS NOT NULL AND completed_at IS NULL;
