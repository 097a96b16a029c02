package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Figure sums up measured times, in milliseconds.
type Figure struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Max    float64 `json:"max"`
}

// summarise gives the figure of some times; none gives the zero figure.
func summarise(times []time.Duration) *Figure {
	if len(times) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(q float64) float64 {
		i := int(math.Ceil(q*float64(len(sorted)))) - 1
		return millis(sorted[max(i, 0)])
	}
	return &Figure{N: len(sorted), Min: millis(sorted[0]), Median: at(0.5), P95: at(0.95), Max: millis(sorted[len(sorted)-1])}
}

func millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e5) / 100 }

func (f *Figure) String() string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("median %.2f ms (min %.2f, p95 %.2f, max %.2f, n %d)", f.Median, f.Min, f.P95, f.Max, f.N)
}

// Result is what a measure found. Absent figures were not measured.
type Result struct {
	Measure    string   `json:"measure"`
	Store      string   `json:"store"`
	ColdStart  *Figure  `json:"coldStartMs,omitempty"`
	HTTP202    *Figure  `json:"http202Ms,omitempty"`
	Dispatch   *Figure  `json:"dispatchMs,omitempty"`
	Success    *Figure  `json:"successMs,omitempty"`
	RunsPerSec *float64 `json:"runsPerSec,omitempty"`
	Runs       *int     `json:"runs,omitempty"`
	Succeeded  *int     `json:"succeeded,omitempty"`
	Lost       *int     `json:"lost,omitempty"`
	Stuck      *int     `json:"stuck,omitempty"`
	ServerCPU  *float64 `json:"serverCpuMsPerRun,omitempty"`
	Jobs       *int     `json:"jobs,omitempty"`
	Repeated   *int     `json:"repeated,omitempty"` // jobs that were given out more than once

	Claims       *float64 `json:"claimsPerSec,omitempty"`
	ClaimCPU     *float64 `json:"cpuMsPerClaim,omitempty"`
	ClaimsBehind *float64 `json:"claimsPerSecBehindOthers,omitempty"` // with rows ahead that fit nobody
	Registration *Figure  `json:"registrationMs,omitempty"`           // from the webhook to the run in the API
	Updates      *float64 `json:"statusUpdatesPerSec,omitempty"`
	UpdateCPU    *float64 `json:"serverCpuMsPerUpdate,omitempty"`
	Ready        *float64 `json:"restartMs,omitempty"` // from the start of the server's process until it answers
	Reowned      *float64 `json:"reownedMs,omitempty"` // from then until every agent has its job again
	Ingest       *float64 `json:"logMiBPerSec,omitempty"`
	LogCPU       *float64 `json:"serverCpuMsPerMiB,omitempty"`
	OpenFirst    *Figure  `json:"logFirstPageMs,omitempty"`
	OpenLast     *Figure  `json:"logLastPageMs,omitempty"`
	ServerRSS    *float64 `json:"serverRssMiB,omitempty"`
	AgentRSS     *float64 `json:"agentRssMiB,omitempty"`
	Status       string   `json:"status"` // success, or failed: runs were lost, stuck or ended otherwise
}
