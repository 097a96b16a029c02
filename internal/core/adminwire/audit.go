package adminwire

// AuditEntry is a row of the audit log of secrets.
type AuditEntry struct {
	ID         string   `json:"id"`
	CreatedAt  Time     `json:"createdAt"`
	Action     string   `json:"action"`
	Context    *string  `json:"contextName"`
	RoutingKey *string  `json:"routingKey"`
	Keys       []string `json:"secretKeys"`
	Outcome    string   `json:"outcome"`
	RunID      *string  `json:"runId"`
	JobID      *string  `json:"jobId"`
	UserID     *string  `json:"userId"`
	Role       *string  `json:"role"`
}

// AccessEntry is a row of the access log.
type AccessEntry struct {
	ID           string         `json:"id"`
	Timestamp    Time           `json:"timestamp"`
	OrgID        string         `json:"orgId"`
	ActorType    string         `json:"actorType"`
	ActorID      string         `json:"actorId"`
	ActorMeta    map[string]any `json:"actorMeta"`
	Action       string         `json:"action"`
	Source       string         `json:"source"`
	TargetType   *string        `json:"targetType"`
	TargetID     *string        `json:"targetId"`
	Outcome      string         `json:"outcome"`
	RoutingKey   *string        `json:"routingKey"`
	RequestID    *string        `json:"requestId"`
	ErrorMessage *string        `json:"errorMessage"`
	Meta         map[string]any `json:"meta,omitempty"`
}

// AuditList is entries of the audit log of secrets, newest first.
type AuditList struct {
	Entries []AuditEntry `json:"entries"`
}

// AccessList is a page of the access log, newest first.
type AccessList struct {
	Items      []AccessEntry `json:"items"`
	NextCursor *string       `json:"nextCursor"` // null after the last page
}
