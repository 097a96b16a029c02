-- owner: queue
-- Where the agent of a delivery took its job later: a JSON list of nodes and times, in order. Each node has a part of the log.
ALTER TABLE dispatch_attempts ADD COLUMN moved TEXT NOT NULL DEFAULT '[]';
