package adminwire

// Host is a host of the roster: one whose agent registered once, or one that was declared, or both.
type Host struct {
	AgentID             string         `json:"agentId"`
	LifecycleClass      string         `json:"lifecycleClass"` // static or ephemeral
	Status              string         `json:"status"`         // ready or unreachable
	ConnectedInstanceID *string        `json:"connectedInstanceId"`
	LastSeen            Time           `json:"lastSeen"` // null before its first agent
	Hostname            string         `json:"hostname"`
	Platform            string         `json:"platform"`
	Arch                string         `json:"arch"`
	Version             string         `json:"version"`
	MaxConcurrency      int            `json:"maxConcurrency"`
	Running             []string       `json:"running"` // jobs that it holds, by id
	Labels              []string       `json:"labels"`  // declared ones and its agent's
	MandatoryLabels     []string       `json:"mandatoryLabels"`
	Properties          map[string]any `json:"properties"`
	Uninitialized       bool           `json:"uninitialized"`        // it was declared and has no agent
	RebootUntil         Time           `json:"rebootUntil,omitzero"` // when it is to be back from a reboot; absent without one
	Declared            *Declaration   `json:"declared,omitempty"`   // absent when nobody declared it
}

// HostList is the roster by id.
type HostList struct {
	Hosts []Host `json:"hosts"`
}

// OneHost is one host of the roster.
type OneHost struct {
	Host Host `json:"host"`
}

// Declaration is what an operator writes down of a host.
type Declaration struct {
	Labels       []string       `json:"labels"`
	Properties   map[string]any `json:"properties"` // text, number or boolean
	Hostname     string         `json:"hostname"`
	Address      string         `json:"address"` // where SSH reaches it, without the port
	SSHUser      string         `json:"sshUser"`
	SSHPort      int            `json:"sshPort"`
	SSHKeySecret string         `json:"sshKeySecret"` // scope/key of the secret that holds the private key
	SSHHostKey   string         `json:"sshHostKey"`   // the host's public key, "" to accept whichever it shows first
	DeclaredAt   Time           `json:"declaredAt,omitzero"`
	UpdatedAt    Time           `json:"updatedAt,omitzero"`
}
