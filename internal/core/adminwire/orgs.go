package adminwire

// OrgSettings are what an organisation decides for itself. Null leaves it to the server.
type OrgSettings struct {
	CustomerID             string `json:"customerId"`
	AllowHTTPNpmRegistries bool   `json:"allowHttpNpmRegistries"`
	AllowSelfApproval      bool   `json:"allowSelfApproval"`
	ApprovalExpirySeconds  int64  `json:"approvalExpirySeconds"`
	UserCacheQuotaBytes    *int64 `json:"userCacheQuotaBytes"`
	UserCacheTTLMs         *int64 `json:"userCacheTtlMs"`
	CreatedAt              Time   `json:"createdAt"` // null while nothing was ever decided
	UpdatedAt              Time   `json:"updatedAt"`
}

// OneOrgSettings is the answer about the settings of one organisation.
type OneOrgSettings struct {
	Settings OrgSettings `json:"settings"`
}
