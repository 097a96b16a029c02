-- owner: secrets
-- How the secret outputs of jobs are called. Their values go with the end of the run, the names with the run itself.
CREATE TABLE run_secret_output_names (
    run_id     TEXT NOT NULL,
    job_id     TEXT NOT NULL,
    output_key TEXT NOT NULL,
    PRIMARY KEY (run_id, job_id, output_key)
);
