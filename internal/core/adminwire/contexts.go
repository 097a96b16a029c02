package adminwire

// Context is a named deployment target of an organisation. Lists are never null; a number or text that is null demands
// nothing.
type Context struct {
	ID                   string   `json:"id"`
	OrgID                string   `json:"org_id"`
	Name                 string   `json:"name"`
	Type                 string   `json:"type"` // fixed, glob
	GlobPattern          *string  `json:"glob_pattern"`
	Enabled              bool     `json:"enabled"`
	BranchRestrictions   []string `json:"branch_restrictions"`
	TriggerTypeFilters   []string `json:"trigger_type_filters"`
	RepoPatterns         []string `json:"repo_patterns"`
	ConcurrencyLimit     *int64   `json:"concurrency_limit"`
	ConcurrencyStrategy  string   `json:"concurrency_strategy"` // queue, cancel-pending
	ConcurrencyTimeoutMs int64    `json:"concurrency_timeout_ms"`
	RequiredReviewers    []string `json:"required_reviewers"` // user ids
	WaitTimerSeconds     *int64   `json:"wait_timer_seconds"`
	HoldExpirySeconds    int64    `json:"hold_expiry_seconds"`
	MinimumTrust         *string  `json:"minimum_trust"` // known, trusted
	AllowLocalExecution  bool     `json:"allow_local_execution"`
	CreatedAt            Time     `json:"created_at"`
	UpdatedAt            Time     `json:"updated_at"`
	CreatedBy            string   `json:"created_by"`
	SecretKeys           []string `json:"secret_keys,omitempty"` // names only, where they were asked for
}

// ContextBinding lets a context see the secrets of scopes, on some hosts.
type ContextBinding struct {
	ScopePattern string `json:"scope_pattern"`
	HostPattern  string `json:"host_pattern"`
	CreatedAt    Time   `json:"created_at"`
}

// ContextVariable is an environment variable of a context.
type ContextVariable struct {
	Key       string `json:"key"`
	Value     string `json:"value"`
	Locked    bool   `json:"locked"` // no override replaces it
	UpdatedAt Time   `json:"updated_at"`
}

// ContextOverride is the value of a variable for the runs of one source.
type ContextOverride struct {
	RoutingKey string `json:"routing_key"`
	Key        string `json:"key"`
	Value      string `json:"value"`
}

// ContextList lists contexts by name. Environments is what they were called once.
type ContextList struct {
	Contexts     []Context `json:"contexts"`
	Environments []Context `json:"environments"`
}

// ContextDetail is one context with what belongs to it. Environment is what it was called once.
type ContextDetail struct {
	Context     Context           `json:"context"`
	Environment Context           `json:"environment"`
	Variables   []ContextVariable `json:"variables"`
	Overrides   []ContextOverride `json:"overrides"`
	Bindings    []ContextBinding  `json:"bindings"`
}

// ContextVariables lists the variables of a context by key.
type ContextVariables struct {
	Variables []ContextVariable `json:"variables"`
}

// ContextPut answers that a context was made or changed. EnvID is what ContextID was called once.
type ContextPut struct {
	EnvID        string `json:"envId"`
	ContextID    string `json:"contextId"`
	Created      bool   `json:"created"`
	VariablesSet *int   `json:"variablesSet,omitempty"` // of a template
}

// Created answers whether something was not there before.
type Created struct {
	Created bool `json:"created"`
}

// SetVariable is the body that sets a variable, or with a routing key its value for the runs of one source.
type SetVariable struct {
	Value      *string `json:"value"`
	Locked     bool    `json:"locked,omitempty"`
	RoutingKey string  `json:"routingKey,omitempty"`
}
