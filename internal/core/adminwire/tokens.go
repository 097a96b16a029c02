package adminwire

// AdminToken is an admin token as lists show it. The names are the columns', as this resource has always had them.
type AdminToken struct {
	ID         string  `json:"id"`
	Label      string  `json:"label"`
	Role       string  `json:"role"`
	RoutingKey *string `json:"routing_key"` // null for all
	CreatedAt  Time    `json:"created_at"`
	ExpiresAt  Time    `json:"expires_at"`
	LastUsedAt Time    `json:"last_used_at"`
	Revoked    bool    `json:"revoked"`
}

// AdminTokenList is all admin tokens, newest first, revoked ones too.
type AdminTokenList struct {
	Tokens []AdminToken `json:"tokens"`
}

// NewAdminToken describes an admin token to make.
type NewAdminToken struct {
	Label      string  `json:"label"`
	Role       string  `json:"role"`
	RoutingKey *string `json:"routingKey,omitempty"`
	ExpiresAt  *Time   `json:"expiresAt,omitempty"`
	Subject    string  `json:"subject,omitempty"`
}

// CreatedAdminToken is the only answer that ever holds the token's text.
type CreatedAdminToken struct {
	Token string `json:"token"`
	ID    string `json:"id"`
}

// AgentToken is a token that agents register with.
type AgentToken struct {
	ID              string   `json:"id"`
	TokenPrefix     string   `json:"tokenPrefix"`
	Labels          []string `json:"labels"` // null is unrestricted
	MandatoryLabels []string `json:"mandatoryLabels"`
	AgentType       string   `json:"agentType"` // static or ephemeral
	CreatedBy       string   `json:"createdBy"`
	CreatedAt       Time     `json:"createdAt"`
	LastSeenAt      Time     `json:"lastSeenAt"`
	ExpiresAt       Time     `json:"expiresAt"`
}

// AgentTokenList is the agent tokens that are not revoked, newest first.
type AgentTokenList struct {
	Tokens []AgentToken `json:"tokens"`
}

// NewAgentToken describes an agent token to make. Labels bound what its agents may carry; absent is unrestricted.
type NewAgentToken struct {
	Labels          []string `json:"labels,omitempty"`
	MandatoryLabels []string `json:"mandatoryLabels,omitempty"`
	CreatedBy       string   `json:"createdBy,omitempty"`
}

// CreatedAgentToken is the only answer that ever holds the token's text.
type CreatedAgentToken struct {
	ID          string   `json:"id"`
	Token       string   `json:"token"`
	TokenPrefix string   `json:"tokenPrefix"`
	Labels      []string `json:"labels"`
	AgentType   string   `json:"agentType"`
	CreatedAt   Time     `json:"createdAt"`
}

// Revoked is the answer to the end of an admin token.
type Revoked struct {
	Revoked bool `json:"revoked"`
}

// Kicked is the answer to the end of an agent token: how many connections it closed.
type Kicked struct {
	Kicked int `json:"kicked"`
}
