package wire

// AuthRequest is the first frame of an agent that has a token.
type AuthRequest struct {
	Token           string `json:"token" wire:"min=1"`
	ProtocolVersion int    `json:"protocolVersion" wire:"int,min=1"`
}

// MessageType is "auth.request".
func (AuthRequest) MessageType() string { return "auth.request" }

// AuthSuccess accepts the token.
type AuthSuccess struct {
	ConnectionID string `json:"connectionId"`
}

// MessageType is "auth.success".
func (AuthSuccess) MessageType() string { return "auth.success" }

// AuthFailure refuses the token for good: an agent that gets one never reconnects.
type AuthFailure struct {
	Reason string `json:"reason"`
}

// MessageType is "auth.failure".
func (AuthFailure) MessageType() string { return "auth.failure" }

// InFlightJob is a job that an agent still runs, or has ended without an acknowledged terminal status.
type InFlightJob struct {
	JobID string `json:"jobId"`
	RunID string `json:"runId"`
}

// AgentRegister makes the connection that of an agent. Sent again on a registered connection it refreshes what is known.
type AgentRegister struct {
	MessageID      string         `json:"messageId"`
	AgentID        string         `json:"agentId"`
	Labels         []string       `json:"labels"`                                        // with the automatic ones
	Platform       string         `json:"platform,omitempty" wire:"opt"`                 // linux, darwin, win32; "" = linux
	Arch           string         `json:"arch,omitempty" wire:"opt"`                     // x64, arm64; "" = x64
	Version        string         `json:"version,omitempty" wire:"opt"`                  // of the agent
	MaxConcurrency int            `json:"maxConcurrency,omitempty" wire:"opt,int,min=1"` // jobs at a time, 0 = 1
	InFlightJobs   []InFlightJob  `json:"inFlightJobs,omitempty" wire:"opt"`
	Hostname       string         `json:"hostname,omitempty" wire:"opt"`
	OSRelease      string         `json:"osRelease,omitempty" wire:"opt"`
	OSVersion      string         `json:"osVersion,omitempty" wire:"opt"`
	TotalMemoryMb  int64          `json:"totalMemoryMb,omitempty" wire:"opt"`
	CPUCount       int64          `json:"cpuCount,omitempty" wire:"opt"`
	NodeVersion    string         `json:"nodeVersion,omitempty" wire:"opt"`
	RunningAsUser  string         `json:"runningAsUser,omitempty" wire:"opt"`
	RunningAsUID   *int64         `json:"runningAsUid,omitempty" wire:"opt"` // absent is not root
	Properties     map[string]any `json:"properties,omitempty" wire:"opt"`   // string, float64 or bool
	Features       []string       `json:"features,omitempty" wire:"opt"`
}

// MessageType is "agent.register".
func (AgentRegister) MessageType() string { return "agent.register" }

// RegisterAck accepts a registration. It is the first frame after it.
type RegisterAck struct {
	AgentID       string   `json:"agentId"`
	Labels        []string `json:"labels"`
	ScalerManaged bool     `json:"scalerManaged" wire:"opt"` // the server started this agent for a job or a pool
	// PendingDispatch makes an agent that was started for one job wait for it instead of leaving.
	PendingDispatch bool     `json:"pendingDispatch,omitempty" wire:"opt"`
	Features        []string `json:"features,omitempty" wire:"opt"` // those of the agent's that the server honours
}

// MessageType is "register.ack".
func (RegisterAck) MessageType() string { return "register.ack" }

// ConfigAck confirms the register.ack.
type ConfigAck struct {
	MessageID string `json:"messageId"`
	AgentID   string `json:"agentId"`
}

// MessageType is "config.ack".
func (ConfigAck) MessageType() string { return "config.ack" }

// Heartbeat is a sign of life. Either side may send it.
type Heartbeat struct {
	Timestamp int64 `json:"timestamp"`
}

// MessageType is "heartbeat".
func (Heartbeat) MessageType() string { return "heartbeat" }

// Ack acknowledges the frame with that id, after what it asked for has been stored.
type Ack struct {
	MessageID string `json:"messageId"`
	// Through widens the acknowledgement to every log chunk of the same run, job and step that was sent before this one on
	// the connection.
	Through bool `json:"through,omitempty" wire:"opt"`
}

// MessageType is "ack".
func (Ack) MessageType() string { return "ack" }

// RateLimitWarning tells an agent that it sends too fast. Ours never sends it: it reads more slowly instead.
type RateLimitWarning struct {
	RetryAfterMs int64 `json:"retryAfterMs"`
}

// MessageType is "rate.limit.warning".
func (RateLimitWarning) MessageType() string { return "rate.limit.warning" }

// ErrorFrame announces why the connection is about to be closed.
type ErrorFrame struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// MessageType is "error".
func (ErrorFrame) MessageType() string { return "error" }
