-- owner: cluster
-- Where other nodes reach this one, or empty when it did not say.
ALTER TABLE nodes ADD COLUMN address TEXT NOT NULL DEFAULT '';
