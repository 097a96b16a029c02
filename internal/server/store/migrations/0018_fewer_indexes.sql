-- Each index is written with every run, and these save nothing that another one does not: a run has at most some
-- thousand jobs, its steps are found by them, and runs end in about the order in which they begin.
DROP INDEX execution_runs_ended;
DROP INDEX execution_jobs_base;
DROP INDEX execution_steps_run;
DROP INDEX held_runs_slots;
