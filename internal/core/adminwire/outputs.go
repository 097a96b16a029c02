package adminwire

// RunKey tells whether a run has the key for which agents seal its secret outputs.
type RunKey struct {
	Exists    bool `json:"exists"`
	CreatedAt Time `json:"createdAt"` // null when there is none
}

// SecretOutput is a secret output of a job whose run goes on.
type SecretOutput struct {
	ID          string `json:"id"`
	JobID       string `json:"jobId"`
	OutputKey   string `json:"outputKey"`
	CreatedAt   Time   `json:"createdAt"`
	Value       string `json:"value"` // *** where it is masked
	Masked      bool   `json:"masked"`
	RevealError string `json:"revealError,omitempty"` // why it is masked although it was asked for
}

// SecretOutputList is secret outputs by job and key.
type SecretOutputList struct {
	Outputs []SecretOutput `json:"outputs"`
}

// PurgedSecrets counts secrets that were deleted.
type PurgedSecrets struct {
	Deleted int64 `json:"deleted"`
}

// Purged counts what was deleted of other routing keys.
type Purged struct {
	JobsDeleted int `json:"jobsDeleted"`
	RunsDeleted int `json:"runsDeleted"`
}
