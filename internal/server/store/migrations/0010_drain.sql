-- owner: cluster
-- The node gives out no jobs.
ALTER TABLE nodes ADD COLUMN draining BOOLEAN NOT NULL DEFAULT FALSE;
