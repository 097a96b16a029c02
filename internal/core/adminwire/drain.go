package adminwire

// The actions of a DrainRequest.
const (
	DrainAction  = "drain"
	ResumeAction = "resume"
)

// DrainRequest asks a node to give out no more jobs, or to do so again.
type DrainRequest struct {
	Action string `json:"action"`
}

// Drain is whether a node drains, and how many jobs are still with its agents.
type Drain struct {
	Draining    bool `json:"draining"`
	JobsRunning int  `json:"jobsRunning"`
}

// QueueDepth is the whole queue as it was a few seconds ago.
type QueueDepth struct {
	Pending      int   `json:"pending"`
	Dispatched   int   `json:"dispatched"`
	OldestAgeMs  int64 `json:"oldestAgeMs"`  // of the job that waits for longest
	Backpressure bool  `json:"backpressure"` // more have waited for a while than the configured threshold
	Draining     bool  `json:"draining"`     // the node that answers gives out nothing
}
