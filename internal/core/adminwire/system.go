package adminwire

// Error is the body of every refusal and failure.
type Error struct {
	Error     string    `json:"error"`
	Details   []Problem `json:"details,omitempty"`
	ErrorCode string    `json:"errorCode,omitempty"`
	Status    string    `json:"status,omitempty"` // of the run that a cancel came too late for
}

// Problem is one thing that is wrong with a request.
type Problem struct {
	Path    string `json:"path"`
	Message string `json:"message"`
	Code    string `json:"code"`
}

// Scopes is the list of secret scopes of an organisation.
type Scopes struct {
	Scopes []string `json:"scopes"`
}

// Keys is the list of keys in a scope. Values never leave the server.
type Keys struct {
	Keys []string `json:"keys"`
}

// Secret is a value to store.
type Secret struct {
	Value *string `json:"value"`
}

// Health is the answer of a process that is alive.
type Health struct {
	Status      string  `json:"status"`
	Timestamp   Time    `json:"timestamp"`
	Uptime      float64 `json:"uptime"` // seconds
	Version     string  `json:"version"`
	BuildDate   string  `json:"buildDate"`
	BuildCommit string  `json:"buildCommit"`
	SDKVersion  string  `json:"sdkVersion"`
}

// Readiness says whether a server can do its work, and which part of it cannot.
type Readiness struct {
	Status string            `json:"status"` // ready or not ready
	Checks map[string]string `json:"checks"` // ok or what is wrong, by part
}

// Capabilities say which agents and clients a server understands.
type Capabilities struct {
	OrchestratorVersion string `json:"orchestratorVersion"`
	ProtocolVersion     int    `json:"protocolVersion"`
	MinProtocolVersion  int    `json:"minProtocolVersion"`
}
