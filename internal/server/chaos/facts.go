package chaos

import (
	"kici/internal/core/ci"
)

// facts are everything that was seen of the system, from the inside once it had come to rest, and from the outside all
// along. Times are milliseconds since 1970, 0 for never.
type facts struct {
	Runs     []runFact
	Jobs     []jobFact
	Steps    []stepFact
	Rows     []rowFact
	Attempts []attemptFact
	// Logs holds the stored lines of each step, as a reader gets them: the parts of all servers as one log.
	Logs map[stepKey][]string

	// What the senders, the steps and the wire know.
	Accepted   []acceptance
	Reruns     []rerun
	Executions []execution
	Acked      ackedFacts
	Seen       []sighting
	Open       []openRun
	Ends       []agentEnd
	Crashes    []string // servers and agents that ended by themselves, with their last words
}

// runFact is a run as the database has it.
type runFact struct {
	ID       string
	Delivery string
	Mark     string // of the push that it comes of
	Workflow string
	Parent   string // the run that it repeats, "" for none
	Status   ci.RunStatus
	Created  int64
	Ended    int64
}

// jobFact is a job as the database has it.
type jobFact struct {
	ID      string
	Run     string
	Name    string
	Status  ci.JobStatus
	Reason  string // its code
	Message string // and its sentence
	Ended   int64
	Needs   []needFact
}

// needFact is one job that a job waits for.
type needFact struct {
	Job   string // its id
	RunOn []ci.JobStatus
}

// stepKey names a step of a job.
type stepKey struct {
	Job  string // its id
	Step int
}

// stepFact is a step as the database has it.
type stepFact struct {
	stepKey
	Name   string
	Type   string
	Status ci.StepStatus
}

// rowFact is a row of the queue.
type rowFact struct {
	Job      string
	Status   ci.QueueStatus
	Requeued int // how often it came back
}

// attemptFact is one delivery of a job to an agent.
type attemptFact struct {
	Job     string
	Number  int
	Agent   string
	Claimed int64
	Ended   int64
	Outcome string
}

// execution is what the steps of one execution of a job have noted themselves.
type execution struct {
	Mark     string
	Workflow string
	Job      string // its name
	Agent    string
	Token    string
	Begun    int64
	Last     int64 // the latest note
	Steps    []string
	Finished []string // steps that came to their end
}

// acceptance is a push whose sender was told that it is taken care of.
type acceptance struct{ Mark, Delivery string }

// rerun is a run of which somebody was told that it repeats another.
type rerun struct{ Run, Parent string }

// ackedFacts is what servers have acknowledged to agents.
type ackedFacts struct {
	Lines []ackedLine
	Ends  []ackedEnd
}

// ackedLine is a line of a log.
type ackedLine struct {
	stepKey
	Agent string // that sent it
	Text  string
	Sent  int64 // when it was on its way to the server
	At    int64 // when its acknowledgement was on its way back
}

// ackedEnd is the report of a job's end.
type ackedEnd struct {
	Job    string
	Agent  string // that sent it
	Status ci.JobStatus
	At     int64
}

// sighting is the status of an ended run that the API told at some time.
type sighting struct {
	Run    string
	Status ci.RunStatus
}

// openRun is a run that had not ended when there was no more reason to wait, with what the server says of it.
type openRun struct {
	Run         string
	Explanation string
}

// agentEnd is the moment when an agent's process was gone, killed or stopped.
type agentEnd struct {
	Agent string
	At    int64
}
