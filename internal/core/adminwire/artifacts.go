package adminwire

// Artifact is a named file that a run left behind.
type Artifact struct {
	JobID     string  `json:"jobId"` // that made it
	Name      string  `json:"name"`  // chosen by the workflow: any text, never a path to trust
	SizeBytes int64   `json:"sizeBytes"`
	SHA256    *string `json:"sha256"` // in hex, as the agent reported it
	CreatedAt Time    `json:"createdAt"`
	ExpiresAt Time    `json:"expiresAt"`
}

// ArtifactList is the artifacts of a run by name.
type ArtifactList struct {
	Artifacts []Artifact `json:"artifacts"`
}

// ArtifactLink is an artifact with a URL to read it by, without a token and for a quarter of an hour. The URL may be
// relative to the server's base URL.
type ArtifactLink struct {
	Artifact
	DownloadURL string `json:"downloadUrl"`
}
