package wire

// AgentStatus tells how an agent is. It is advice: the server's own count of its jobs is the truth.
type AgentStatus struct {
	MessageID         string `json:"messageId"`
	AgentID           string `json:"agentId"`
	ActiveJobs        int    `json:"activeJobs"`
	MemoryUsedMb      int64  `json:"memoryUsedMb,omitempty" wire:"opt"`
	MemoryAvailableMb int64  `json:"memoryAvailableMb,omitempty" wire:"opt"`
	UptimeSeconds     int64  `json:"uptimeSeconds,omitempty" wire:"opt"`
}

// MessageType is "agent.status".
func (AgentStatus) MessageType() string { return "agent.status" }

// AgentLog carries lines of the agent's own log.
type AgentLog struct {
	MessageID string   `json:"messageId"`
	AgentID   string   `json:"agentId"`
	Lines     []string `json:"lines"`
	Timestamp int64    `json:"timestamp"`
}

// MessageType is "agent.log".
func (AgentLog) MessageType() string { return "agent.log" }

// AgentMetrics is the whole of an agent's metrics at one moment.
type AgentMetrics struct {
	MessageID string   `json:"messageId"`
	AgentID   string   `json:"agentId"`
	Metrics   []Metric `json:"metrics"`
	Timestamp int64    `json:"timestamp"`
}

// MessageType is "agent.metrics".
func (AgentMetrics) MessageType() string { return "agent.metrics" }

// The kinds of a Metric.
const (
	MetricCounter       = "counter"
	MetricHistogram     = "histogram"
	MetricGauge         = "gauge"
	MetricUpDownCounter = "upDownCounter"
)

// Metric is one series.
type Metric struct {
	Name    string            `json:"name"`
	Type    string            `json:"type" wire:"enum=counter|histogram|gauge|upDownCounter"`
	Value   *float64          `json:"value,omitempty" wire:"opt"`
	Labels  map[string]string `json:"labels,omitempty" wire:"opt"`
	Buckets []Bucket          `json:"buckets,omitempty" wire:"opt"` // cumulative, without the last one
	Count   *float64          `json:"count,omitempty" wire:"opt"`
	Sum     *float64          `json:"sum,omitempty" wire:"opt"`
}

// Bucket counts the observations up to a bound.
type Bucket struct {
	Le    float64 `json:"le"`
	Count float64 `json:"count"`
}

// FleetLogsRequest asks an agent for a diagnostic bundle.
type FleetLogsRequest struct {
	RequestID      string  `json:"requestId"`
	LogWindowHours float64 `json:"logWindowHours"`
	MaxBytes       int64   `json:"maxBytes"`
}

// MessageType is "fleet.logs.request".
func (FleetLogsRequest) MessageType() string { return "fleet.logs.request" }

// FleetBundleChunk is a part of a diagnostic bundle, at most 87,040 bytes before base64.
type FleetBundleChunk struct {
	RequestID string `json:"requestId"`
	Seq       int    `json:"seq" wire:"int,min=0"`
	IsLast    bool   `json:"isLast"`
	DataB64   string `json:"dataB64"`
}

// MessageType is "fleet.bundle.chunk".
func (FleetBundleChunk) MessageType() string { return "fleet.bundle.chunk" }

// FleetBundleError says that an agent cannot make its bundle.
type FleetBundleError struct {
	RequestID string `json:"requestId"`
	Message   string `json:"message"`
}

// MessageType is "fleet.bundle.error".
func (FleetBundleError) MessageType() string { return "fleet.bundle.error" }
