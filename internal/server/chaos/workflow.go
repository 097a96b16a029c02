package chaos

import _ "embed"

// workflows are what is run: needs, matrices in waves, steps that fail on purpose, jobs that run for it or never.
//
//go:embed workflow.ts
var workflows []byte

// script is what every step runs.
//
//go:embed work.sh
var script []byte

// workflowJobs are the jobs that a run of each workflow must have.
var workflowJobs = map[string][]string{
	"ladder": {"build", "test (x)", "test (y)", "test (z)", "pack", "tell"},
	"storm":  {"calm", "fragile", "mend", "vain", "fan (a)", "fan (b)", "fan (c)", "last"},
	"lane":   {"pass"},
}

// stepLines is how many numbered lines each step prints.
var stepLines = map[string]int{
	"fetch": 3, "make": 8, "run": 6, "wrap": 2, "sum": 2, "say": 1,
	"rest": 4, "bend": 2, "break": 2, "never": 1, "glue": 3, "hope": 1, "turn": 3, "close": 2, "drive": 3, "shout": 2500,
}

// fails is the only job that fails by itself.
const fails = "fragile"

// alone is the workflow of which one run goes on at a time.
const alone = "lane"
