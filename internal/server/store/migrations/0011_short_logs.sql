-- owner: logs
-- Logs of steps that are short so far. Longer ones are files. A node has those of its own folder of logs.
CREATE TABLE short_logs (
    run_id     TEXT NOT NULL,   -- as it is named in paths
    folder     TEXT NOT NULL,   -- id of the folder, '' where the database is in the data folder itself
    name       TEXT NOT NULL,   -- the path below the folder of the run
    written_at BIGINT NOT NULL, -- by the clock of the node
    data       TEXT NOT NULL,   -- whole chunks. The last column, so that what stands before it is read without it
    PRIMARY KEY (run_id, folder, name)
);
